"""The dimension that a family really has: the rank of its Jacobian at random points.

Note [Rank and capacity]
Let r be the largest rank of the Jacobian of a smooth map into U(n). The image has dimension r: for r < n^2 it has
measure zero (Sard), whatever the number of parameters, and for r = n^2 it holds an open set. Analytic maps, which all
families here are, have that rank at almost every point, so a few random points decide. The Jacobian is taken in
coordinates of the Lie algebra, W^H dW, in complex128; the gap in its singular values tells how sure the rank is.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from urnn._checks import check_complex, check_square
from urnn._typing import Square
from urnn.linalg import reals_from_skew, skew, unitarity_defect

NOISE = 20 * torch.finfo(torch.float64).eps
"""Singular values below this times the larger side of the Jacobian, relative to the largest, are rounding errors."""


class Rank(NamedTuple):
    """``rank``, and the singular values at both sides of the cut relative to the largest (0.0: there is none below)."""

    rank: int
    smallest_kept: float
    largest_dropped: float


def jacobian_rank(to_matrix: Callable[[Tensor], Square], point: Tensor) -> Rank:
    """Rank of ``to_matrix`` (P reals to a unitary (n, n) matrix) at ``point``.

    Raises:
        ValueError, TypeError: the callable gives no square complex matrix, or none that is unitary.
    """
    W = to_matrix(point).detach()
    check_complex("family", W)
    n = check_square("family", W)
    defect = float(unitarity_defect(W).max())
    if not defect <= 1e-10 * n:
        raise ValueError(f"family: expected a callable that gives unitary matrices, got max|W^H W - I| = {defect:.1e}")

    def tangent(theta: Tensor) -> Tensor:
        return reals_from_skew(skew(W.mH @ to_matrix(theta))).reshape(-1)  # (n^2,)

    J = torch.func.jacrev(tangent)(point)  # (n^2, P); forward mode would load TorchScript, which warns (torch 2.13)
    values = torch.linalg.svdvals(J)
    if values.numel() == 0 or float(values[0]) == 0:
        return Rank(0, 0.0, 0.0)
    values = values / values[0]
    rank = int((values > NOISE * max(J.shape)).sum())
    return Rank(rank, float(values[rank - 1]), float(values[rank]) if rank < values.numel() else 0.0)
