"""The Cayley map around a movable base."""

import torch

from urnn._typing import Square
from urnn.parametrizations.exponential import Based


class Cayley(Based):
    """W = (I + A/2)^{-1} (I - A/2) B, the curve of Eq. 6 as a map.

    From one base it misses the matrices for which W B^H has the eigenvalue -1, a set of measure zero; ``rebase`` moves
    that set away, and so -1 is within reach of W itself.

    >>> Cayley(4).num_real_params
    16
    """

    def _map(self, A: Square) -> Square:
        half = A / 2
        eye = torch.eye(self.n, dtype=A.dtype, device=A.device)
        return torch.linalg.solve_ex(eye + half, eye - half, check_errors=False)[0]
