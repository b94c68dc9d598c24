"""Products of complex reflections in compact WY form: capacity tunable from 2n to n^2."""

import math
from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn

from urnn._checks import check_choice, check_int, format_shape
from urnn._typing import Square, Vectors
from urnn.linalg import unitarity_tol, unitary_eig
from urnn.linalg.factors import unit_vectors
from urnn.parametrizations.base import Parametrization


class Householder(Parametrization):
    r"""A product of k complex reflections, :math:`W = H_1 \cdots H_k`.

    Each is :math:`H_i = I - (1 - e^{i\varphi_i}) v_i v_i^H / ||v_i||^2`.

    Note [Members of the Householder family]
    Each factor differs from I by rank one, so rank(W - I) <= k. Conversely the spectral theorem writes any unitary W
    as a product of such factors, one for each eigenvalue other than 1. The family is exactly {W : rank(W - I) <= k},
    of dimension n^2 - (n - k)^2, and all of U(n) at k = n.

    With ``phase="pi"`` the phases stay at pi and the factors are Eq. 3's reflections. Then det W = (-1)^k, and no k is
    full. W is built in compact WY form, I - V T V^H, from two products of matrices.

    Args:
        n, batch_shape, generator, device, dtype: as in ``Parametrization``.
        reflections: k, 1..n; None means n.
        phase: ``"learned"`` or ``"pi"``.

    >>> Householder(8, reflections=3).num_real_params
    51
    """

    vectors: nn.Parameter

    def __init__(
        self,
        n: int,
        batch_shape: tuple[int, ...] = (),
        *,
        reflections: int | None = None,
        phase: str = "learned",
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_int("n", n, 1)
        self.reflections = n if reflections is None else check_int("reflections", reflections, 1, n)
        self.phase = check_choice("phase", phase, ("learned", "pi"))
        super().__init__(n, batch_shape, generator=generator, device=device, dtype=dtype)

    def _build(self) -> None:
        self._complex_parameter("vectors", self.reflections, self.n)
        if self.phase == "learned":
            self._real_parameter("phases", self.reflections)

    def initial_values(self, generator: Generator | None = None) -> tuple[Tensor, ...]:
        """Directions uniform on the sphere, phases uniform on the circle."""
        v = self.vectors
        device = v.device if generator is None else generator.device
        vectors = torch.randn(v.shape, dtype=v.dtype, device=device, generator=generator).to(v.device)
        if self.phase == "pi":
            return (vectors,)
        return vectors, self._uniform(self._own()[1], math.pi, generator)

    def matrix(self, *parameters: Tensor) -> Square:
        V, T = self._compact(*parameters)
        return torch.eye(self.n, dtype=V.dtype, device=V.device) - V @ T @ V.mH

    def apply_to(self, x: Vectors) -> Vectors:
        """O(n k) for each vector."""
        V, T = self._compact(*self._own())
        x = x.unsqueeze(-1)
        return (x - V @ (T @ (V.mH @ x))).squeeze(-1)

    def _compact(self, vectors: Tensor, phases: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """V (..., n, k) of unit columns and T = (I + D S)^{-1} D (..., k, k); D has 1 - e^{i phi}, S = striu(V^H V)."""
        V = unit_vectors(vectors).mT
        k = self.reflections
        if phases is None:
            factors = torch.full((k,), 2.0, dtype=V.dtype, device=V.device)
        else:
            factors = 1 - torch.polar(torch.ones_like(phases), phases)
        D = torch.diag_embed(factors)
        left = factors.unsqueeze(-1) * (V.mH @ V).triu(1)
        eye = torch.eye(k, dtype=V.dtype, device=V.device)
        return V, torch.linalg.solve_triangular(eye + left, D.expand_as(left), upper=True, unitriangular=True)

    def right_inverse(self, W: Square) -> tuple[Tensor, ...]:
        """The k eigenvectors of the eigenvalues farthest from 1, and their phases; see the Note."""
        if self.phase == "pi":
            return super().right_inverse(W)
        phases, Q = unitary_eig(W)
        order = phases.abs().argsort(-1, descending=True)
        rest = phases.gather(-1, order[..., self.reflections :]).abs()
        if rest.numel() and float(rest.max()) > unitarity_tol(self.n, W.dtype):
            raise ValueError(
                f"W: expected rank(W - I) <= {self.reflections}, the number of reflections, got a matrix of shape "
                f"{format_shape(W.shape)} with a further eigenvalue {float(rest.max()):.1e} away from 1. "
                f"reflections={self.n} takes any W."
            )
        chosen = order[..., : self.reflections]
        vectors = Q.gather(-1, chosen.unsqueeze(-2).expand(*Q.shape[:-1], self.reflections)).mT
        return vectors.to(W.dtype), phases.gather(-1, chosen).to(W.real.dtype)

    def options(self) -> Mapping[str, object]:
        fixed = {"phase": self.phase} if self.phase != "learned" else {}
        return {"reflections": self.reflections, **fixed}
