"""Predictions that need no training: the last frame again, and a linear prediction of each bin from its own past."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

Predict = Callable[[Tensor], Tensor]
"""Features (T, F) to predictions (T - 1, F) of all frames but the first."""

ORDER = 8
"""Frames that the linear prediction looks back."""


def previous_frame(x: Tensor) -> Tensor:
    """What was is what will be."""
    return x[:-1]


class LinearPrediction:
    """``y_t = m + sum_k a_k (x_{t-k} - m)``, k = 1 to the order, with m and a of each bin fitted by least squares.

    Before the start of an utterance the mean m stands for the past.
    """

    def __init__(self, mean: Tensor, weights: Tensor) -> None:
        self.mean, self.weights = mean, weights  # (F,), (F, order)

    @classmethod
    def fitted(cls, utterances: Iterable[Tensor], order: int = ORDER) -> "LinearPrediction":
        """Least squares over all frames but the first of each utterance, in double precision."""
        kept = list(utterances)
        mean = torch.cat(kept).double().mean(0)
        F = len(mean)
        G = torch.zeros(F, order, order, dtype=torch.float64)
        c = torch.zeros(F, order, dtype=torch.float64)
        for x in kept:
            z = x.double() - mean
            past = _past(z, order)
            G += past @ past.mT
            c += (past @ z[1:].mT.unsqueeze(-1)).squeeze(-1)
        ridge = 1e-9 * G.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-30)  # a bin that never changes has G = 0
        weights = torch.linalg.solve(G + ridge[:, None, None] * torch.eye(order, dtype=torch.float64), c)
        return cls(mean, weights)

    def __call__(self, x: Tensor) -> Tensor:
        past = _past(x.double() - self.mean, self.weights.shape[1])
        return (self.mean[:, None] + (self.weights[:, None] @ past).squeeze(1)).mT.to(x.dtype)


def _past(z: Tensor, order: int) -> Tensor:
    """(F, order, T - 1): for each frame but the first those before it, the latest first; zeros before the start."""
    padded = torch.cat([z.new_zeros(order - 1, z.shape[1]), z[:-1]])  # (order - 1 + T - 1, F)
    return padded.mT.unfold(1, order, 1).flip(2).mT
