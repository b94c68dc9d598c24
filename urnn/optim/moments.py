"""Statistics of gradients in the Lie algebra, and elementwise ones of the gradient itself.

A lies in the Lie algebra at the identity, because the step multiplies from the left. So its moments of all iterations
live in one space and need no transport. All tensors carry the ensemble dimension E in front.
"""

import torch
from torch import Tensor

EPS = 1e-16
"""Guards the division where every gradient so far was 0."""


def momentum(A: Tensor, mean: Tensor, decay: float, step: float | Tensor) -> Tensor:
    """The bias-corrected running mean of A. ``mean`` (E, n, n) is updated; ``step``, a number or (E,), counts from 1."""
    mean.lerp_(A, 1 - decay)
    correction = 1 - decay**step
    return mean / (correction.reshape(-1, 1, 1) if isinstance(correction, Tensor) else correction)


def scalar_rms(A: Tensor, square: Tensor, decay: float, step: float | Tensor) -> Tensor:
    """The bias-corrected running root mean square of A's entries, one number for each matrix: (E, 1, 1)."""
    square.lerp_(torch.view_as_real(A).square().sum(-1).mean((-2, -1)), 1 - decay)
    rms: Tensor = (square / (1 - decay**step)).sqrt() + EPS
    return rms.reshape(-1, 1, 1)


def elementwise_rms(G: Tensor, square: Tensor, decay: float, eps: float) -> Tensor:
    """G over its elementwise running RMS, Re and Im apart, with no bias correction: the paper's normalization.

    ``square`` (E, n, n) is complex: the mean squares of Re in its real part, those of Im in the imaginary part.
    """
    g, v = torch.view_as_real(G.resolve_conj()), torch.view_as_real(square)
    v.mul_(decay).addcmul_(g, g, value=1 - decay)
    return torch.view_as_complex(g / (v.sqrt() + eps))
