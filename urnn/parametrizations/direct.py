"""Full capacity, the paper's contribution: W is itself the parameter."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from urnn._typing import Square
from urnn.linalg import exponential, haar_unitary, skew_from_reals
from urnn.parametrizations.base import Parametrization


class Full(Parametrization):
    """All of U(n): W is the parameter, with n^2 real degrees of freedom (Lemma 3.1).

    The parameter carries the mark by which the optimizers of ``urnn.optim`` know it, and they move it along U(n). Any
    other optimizer leaves U(n) at its first step; ``urnn.check_unitary`` says so.

    >>> family = Full(4)
    >>> family.num_real_params, family() is family.weight
    (16, True)
    """

    direct = True
    weight: nn.Parameter

    def _build(self) -> None:
        shape = (*self.batch_shape, self.n, self.n)
        self.register_unitary("weight", nn.Parameter(torch.empty(shape, dtype=self._complex, device=self._device)))

    def initial_values(self, generator: Generator | None = None) -> tuple[Tensor]:
        W = self.weight
        return (haar_unitary(self.n, self.batch_shape, generator=generator, dtype=W.dtype, device=W.device),)

    def matrix(self, *parameters: Tensor) -> Square:
        return parameters[0]

    def right_inverse(self, W: Square) -> tuple[Tensor]:
        return (W,)

    @property
    def num_real_params(self) -> int:
        """n^2, the dimension of U(n), and not the 2 n^2 real numbers that store W."""
        return self.n**2

    def chart(self) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        W = self.weight.detach()
        shape = (*self.batch_shape, self.n, self.n)
        zero = torch.zeros(shape, dtype=W.real.dtype, device=W.device)
        return zero.reshape(-1), lambda theta: exponential(skew_from_reals(theta.reshape(shape))) @ W
