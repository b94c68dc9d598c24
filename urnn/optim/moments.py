"""Statistics of gradients in the Lie algebra, and elementwise ones of the gradient itself.

A lies in the Lie algebra at the identity, because the step multiplies from the left. So its moments of all iterations
live in one space and need no transport. All tensors carry the ensemble dimension E in front.
"""

import math

import torch
from torch import Tensor

from urnn._checks import check_number

EPS = 1e-16
"""Guards the division where every gradient so far was 0."""


def check_betas(betas: object) -> None:
    """``unitary_betas`` must be two numbers in [0, 1)."""
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise TypeError(f"unitary_betas: expected two numbers, got {betas!r}")
    for beta in betas:
        check_number("unitary_betas", beta, 0.0, 1.0, open_end=True)


def new_moments(W: Tensor, betas: tuple[float, float]) -> dict[str, Tensor]:
    """What ``normalized`` remembers of W (..., n, n): the mean of A where there is one, and its mean square (...)."""
    square = {"square": W.real.new_zeros(W.shape[:-2])}
    return {"mean": torch.zeros_like(W), **square} if betas[0] else square


def normalized(A: Tensor, state: dict[str, Tensor], betas: tuple[float, float], step: float | Tensor) -> Tensor:
    """The running mean of A over the running root mean square of its entries, one number for each matrix.

    Both are corrected for their start at 0. A is (E, n, n); ``step``, a number or (E,), counts from 1.
    """
    mean_decay, square_decay = betas
    norm = torch.linalg.vector_norm(A, dim=(-2, -1))
    state["square"].mul_(square_decay).addcmul_(norm, norm, value=(1 - square_decay) / A.shape[-1] ** 2)
    scale = (state["square"] / _correction(square_decay, step, A)).sqrt() + EPS
    if mean_decay:
        A = state["mean"].lerp_(A, 1 - mean_decay)
        scale = scale * _correction(mean_decay, step, A)
    return A / scale.reshape(-1, 1, 1)


def _correction(decay: float, step: float | Tensor, A: Tensor) -> float | Tensor:
    """``1 - decay^step``; as a difference of two numbers near 1 it would lose most digits at the first steps."""
    exponent = math.log(decay) if decay else -math.inf
    if isinstance(step, Tensor):
        return -torch.expm1(step.to(A.real.dtype) * exponent)
    return -math.expm1(step * exponent)


def elementwise_rms(G: Tensor, square: Tensor, decay: float, eps: float) -> Tensor:
    """G over its elementwise running RMS, Re and Im apart, with no bias correction: the paper's normalization.

    ``square`` (E, n, n) is complex: the mean squares of Re in its real part, those of Im in the imaginary part.
    """
    g, v = torch.view_as_real(G.resolve_conj()), torch.view_as_real(square)
    v.mul_(decay).addcmul_(g, g, value=1 - decay)
    return torch.view_as_complex(g / (v.sqrt() + eps))
