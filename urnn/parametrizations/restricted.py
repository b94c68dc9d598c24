"""The restricted product of Arjovsky et al. (2016), the paper's Eq. 3."""

import math

import torch
from torch import Generator, Tensor

from urnn._typing import Square, Vectors
from urnn.linalg.factors import dense, fourier, inverse_fourier, phase_diagonal, reflection
from urnn.parametrizations.base import Parametrization


class Restricted(Parametrization):
    r"""Eq. 3, :math:`W = D_3 R_2 F^{-1} D_2 P R_1 F D_1`, with 7n real parameters.

    D are diagonals of phases, R reflections, F the unitary DFT and P a permutation that is drawn once and kept in a
    buffer. Its dimension is min(n^2, 7n - 7): it is full up to n = 5 and short of U(n) from n = 6 (the paper's count
    says n > 7; docs/equations.md explains the seven redundant directions). ``apply_to`` costs O(n log n).

    >>> Restricted(512).num_real_params
    3584
    """

    angles: Tensor
    vectors: Tensor
    permutation: Tensor

    def _build(self) -> None:
        self._real_parameter("angles", 3, self.n)
        self._complex_parameter("vectors", 2, self.n)
        self.register_buffer("permutation", torch.arange(self.n, device=self._device))

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw new values and a new permutation, one for the whole ensemble."""
        super().reset_parameters(generator)
        source = None if generator is None else generator.device
        self.permutation.copy_(torch.randperm(self.n, generator=generator, device=source))

    def initial_values(self, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """As the released code: angles uniform on (-pi, pi), vectors uniform on a cube (their scale has no effect)."""
        bound = math.sqrt(6 / (2 + 2 * self.n))
        return self._uniform(self.angles, math.pi, generator), self._uniform(self.vectors, bound, generator)

    def matrix(self, *parameters: Tensor) -> Square:
        angles, vectors = (
            p.unsqueeze(-2) for p in parameters
        )  # (..., 3, 1, n): the rows of the identity go in between
        return dense(lambda x: self._product(angles, vectors, x), self.n, vectors.dtype, vectors.device)

    def apply_to(self, x: Vectors) -> Vectors:
        return self._product(self.angles, self.vectors, x)

    def _product(self, angles: Tensor, vectors: Tensor, x: Tensor) -> Tensor:
        """W x; ``angles`` (..., 3, [1,] n) and ``vectors`` (..., 2, [1,] n) broadcast against ``x`` (..., n)."""
        axis = -angles.dim() + len(self.batch_shape)  # of the three angles and of the two vectors
        d1, d2, d3 = angles.unbind(axis)
        v1, v2 = vectors.unbind(axis)
        x = reflection(v1, fourier(phase_diagonal(d1, x)))
        x = phase_diagonal(d2, x.index_select(-1, self.permutation))
        return phase_diagonal(d3, reflection(v2, inverse_fourier(x)))
