"""The exponential map around a movable base."""

import torch
from torch import Generator, Tensor, nn

from urnn._typing import Square
from urnn.linalg import exponential, haar_unitary, skew_from_reals
from urnn.parametrizations.base import Parametrization


class Based(Parametrization):
    """W = map(A) B: A in the Lie algebra, given by n^2 real coordinates, and a base B in a buffer.

    The map takes 0 to I. ``rebase`` moves the base to the present W and the coordinates to 0, where the map is best
    conditioned; the right inverse does the same with the W that it is given.
    """

    coordinates: nn.Parameter
    base: Tensor

    def _build(self) -> None:
        self._real_parameter("coordinates", self.n, self.n)
        shape = (*self.batch_shape, self.n, self.n)
        self.register_unitary("base", torch.empty(shape, dtype=self._complex, device=self._device))

    def initial_values(self, generator: Generator | None = None) -> tuple[Tensor]:
        """Coordinates 0 and a base from the Haar measure."""
        B = self.base
        self.base = haar_unitary(self.n, self.batch_shape, generator=generator, dtype=B.dtype, device=B.device)
        return (torch.zeros_like(self.coordinates),)

    def matrix(self, *parameters: Tensor) -> Square:
        return self._map(skew_from_reals(parameters[0])) @ self.base

    def right_inverse(self, W: Square) -> tuple[Tensor]:
        """Moves the base to ``W``."""
        self.base = W.detach().clone()
        return (torch.zeros_like(W.real),)

    def rebase(self) -> None:
        """Move the base to the present W; W stays. An optimizer's moments of the coordinates lose their meaning."""
        with torch.no_grad():
            self.base = self().detach().clone()
            self.coordinates.zero_()

    def _map(self, A: Square) -> Square:
        raise NotImplementedError


class Exponential(Based):
    """W = exp(A) B. The exponential map is onto U(n), from any base.

    >>> family = Exponential(4)
    >>> family.num_real_params
    16
    """

    def _map(self, A: Square) -> Square:
        return exponential(A)
