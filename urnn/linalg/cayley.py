"""The Cayley step by matrix products alone, for GPUs, to which a solve is slow and a CUDA graph no place to choose.

Note [Cayley by products]
With X = lr/2 A and B = X^2 Eq. 6 reads W' = W - 2 (X - B) (I - B)^{-1} W. B is Hermitian, its spectrum in [-R^2, 0],
where R is the spectral norm of X. So at alpha = 2 / (2 + R^2) the norm of E = I - alpha (I - B) is at most
e = R^2 / (2 + R^2). The inverse is the geometric series of E in factors,

    (I - B)^{-1} = alpha (I + E) (I + E^2) (I + E^4) ... ,

and k factors leave the residual E^(2^k): what Newton-Schulz steps for the inverse reach from the best start. The
factors go into W one by one, so that the square of a power of E and its product with W are one product of twice the
width. Only the correction to W passes through them, and is rounded less than the result of a solve.

Largest absolute row sums bound the norms of Hermitian matrices. R^2 is bounded by that of B, which for a Gaussian A is
3.5 and 6 times as large at n = 128 and 512; the residual by the square of that of the last power, for such an A and
R = 0.5 up to 20 and 65 times as large.
"""

import math

import torch
from torch import Tensor

from urnn._typing import Matrices

LONGEST = 1.0
"""A solve takes over where the bound of R exceeds this: more factors are needed, and they round more."""
LONGEST_CAPTURED = 0.5
"""The number of factors in a CUDA graph is fixed. It is made for steps up to this R: 3 in complex64."""
RESIDUAL = 16
"""A step in a CUDA graph fails where the bound of its residual exceeds so many roundings: at R of 0.55 in complex64."""


def cayley_step_by_products(W: Matrices, A: Matrices, lr: float | Tensor) -> Matrices | None:
    """As ``cayley_step`` for a batch (E, n, n), or None where the step is too long for this way, or not a number.

    One number is read, the bound of R, which decides on the number of factors.
    """
    Y = A * lr
    C = Y @ Y
    square = float(_norm_bound(C).amax()) / 4 if W.numel() else 0.0
    return _products(W, Y, C, square)[0] if square <= LONGEST**2 else None


def captured_cayley_step(W: Matrices, A: Matrices, lr: float | Tensor) -> tuple[Matrices, Tensor]:
    """As ``cayley_step`` for a batch (E, n, n), with nothing read: for CUDA graphs.

    Returns:
        The matrices moved, and for which of them (E,) the step was too long, so that what was returned is of no use.
        A step that is not a number is not too long: NaN comes out, as from a solve.
    """
    Y = A * lr
    torch.view_as_real(Y).clamp_(-2, 2)  # no entry is larger where R < 1; of larger ones the powers might overflow
    moved, power = _products(W, Y, Y @ Y, LONGEST_CAPTURED**2)
    return moved, _norm_bound(power) > math.sqrt(RESIDUAL * torch.finfo(W.dtype).eps)


def _norm_bound(B: Matrices) -> Tensor:
    """An upper bound (E,) of the spectral norm of Hermitian matrices: the largest absolute row sum."""
    return torch.linalg.vector_norm(B, 1, dim=-1).amax(-1)


def _products(W: Matrices, Y: Matrices, C: Matrices, square: float) -> tuple[Matrices, Matrices]:
    """The step for Y = 2 X and C = Y^2 (which is overwritten) where R^2 is at most ``square``, and the last power of E.

    See Note [Cayley by products].
    """
    n, alpha = W.shape[-1], 2 / (2 + square)
    factors = _factors(square, torch.finfo(W.dtype).eps)
    correction = torch.sub(Y, C, alpha=0.5)  # 2 (X - B)
    V, power = W, C.mul_(alpha / 4)
    power.diagonal(dim1=-2, dim2=-1).add_(1 - alpha)
    if factors > 1:
        pair = torch.cat((power, W), -1)  # (E, n, 2 n)
        for _ in range(factors - 1):
            product = pair[..., :n] @ pair
            product[..., n:].add_(pair[..., n:])
            pair = product
        power, V = pair[..., :n], pair[..., n:]
    if factors:
        V = torch.baddbmm(V, power, V)
    return torch.baddbmm(W, correction, V, alpha=-alpha), power


def _factors(square: float, eps: float) -> int:
    """How many factors bring the error of W', 2 R e^(2^k), under half a rounding."""
    factors, e = 0, square / (2 + square)
    while 2 * math.sqrt(square) * e > eps / 2:
        factors, e = factors + 1, e * e
    return factors
