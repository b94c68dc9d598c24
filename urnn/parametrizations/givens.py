"""Layers of 2x2 rotations and a diagonal of phases, as bricks or in the order of the FFT."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from urnn._checks import PRECISIONS, check_choice, check_int
from urnn._typing import Square, Vectors
from urnn.parametrizations.base import Parametrization

LAYOUTS = ("brick", "fft")


def layer_pairs(layout: str, n: int, layer: int) -> list[tuple[int, int]]:
    """The pairs (i, j), i < j, that a layer rotates.

    ``brick`` pairs neighbours, from 0 in even layers and from 1 in odd ones. ``fft`` pairs i with i + 2^l where bit l
    of i is 0, l counting the layers modulo ceil(log2 n). Indices without a partner pass through.

    >>> layer_pairs("brick", 5, 1), layer_pairs("fft", 5, 1)
    ([(1, 2), (3, 4)], [(0, 2), (1, 3)])
    """
    if layout == "brick":
        return [(i, i + 1) for i in range(layer % 2, n - 1, 2)]
    step = 1 << (layer % max((n - 1).bit_length(), 1))
    return [(i, i + step) for i in range(n - step) if not i & step]


def _phase(z: complex) -> float:
    return math.atan2(z.imag, z.real)


def _rotation(theta: float, phi: float) -> "np.ndarray[Any, np.dtype[np.complex128]]":
    c, s, e = math.cos(theta), math.sin(theta), complex(math.cos(phi), math.sin(phi))
    return np.array([[e * c, -s], [e * s, c]])


class Givens(Parametrization):
    r"""L layers of rotations with angle and phase, then n phases: :math:`W = D\, G_L \cdots G_1`.

    On each pair a layer is :math:`\begin{pmatrix} e^{i\varphi}\cos\theta & -\sin\theta \\ e^{i\varphi}\sin\theta &
    \cos\theta \end{pmatrix}`. The brick layout is all of U(n) at L = n (Clements et al. 2016), with exactly n^2
    parameters; ``right_inverse`` is their decomposition. One sweep of the FFT layout, L = ceil(log2 n), costs
    O(n log n) and, where n is a power of two, mixes every entry with every other.

    Args:
        n, batch_shape, generator, device, dtype: as in ``Parametrization``.
        layers: L >= 1; None means n for bricks and ceil(log2 n) for the FFT layout.
        layout: ``"brick"`` or ``"fft"``.

    >>> Givens(6).num_real_params, Givens(6, layers=2).num_real_params
    (36, 16)
    """

    angles: Tensor
    phases: Tensor
    diagonal: Tensor
    first: Tensor
    second: Tensor

    def __init__(
        self,
        n: int,
        batch_shape: tuple[int, ...] = (),
        *,
        layers: int | None = None,
        layout: str = "brick",
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_int("n", n, 1)
        self.layout = check_choice("layout", layout, LAYOUTS)
        default = n if layout == "brick" else max((n - 1).bit_length(), 1)
        self.layers = default if layers is None else check_int("layers", layers, 1)
        super().__init__(n, batch_shape, generator=generator, device=device, dtype=dtype)

    def _build(self) -> None:
        self._sizes = [len(layer_pairs(self.layout, self.n, layer)) for layer in range(self.layers)]
        for name in ("first", "second"):
            self.register_buffer(name, torch.empty(sum(self._sizes), dtype=torch.int64, device=self._device))
        self._real_parameter("angles", sum(self._sizes))
        self._real_parameter("phases", sum(self._sizes))
        self._real_parameter("diagonal", self.n)

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw new values; also write the indices of the pairs, which a module made on ``meta`` has not got."""
        super().reset_parameters(generator)
        pairs = [pair for layer in range(self.layers) for pair in layer_pairs(self.layout, self.n, layer)]
        indices = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
        self.first.copy_(indices[:, 0])
        self.second.copy_(indices[:, 1])

    def initial_values(self, generator: Generator | None = None) -> tuple[Tensor, ...]:
        """All angles and phases uniform on the circle."""
        return tuple(self._uniform(p, math.pi, generator) for p in self._own())

    def matrix(self, *parameters: Tensor) -> Square:
        """The rotations work on the rows of the identity."""
        angles, phases, diagonal = parameters
        eye = torch.eye(self.n, dtype=PRECISIONS[angles.dtype][1], device=angles.device)
        rows = eye.expand(*angles.shape[:-1], self.n, self.n)
        return self._rotate(angles.unsqueeze(-1), phases.unsqueeze(-1), diagonal.unsqueeze(-1), rows)

    def apply_to(self, x: Vectors) -> Vectors:
        """O(n L) for each vector."""
        angles, phases, diagonal = (p.unsqueeze(-1) for p in self._own())
        return self._rotate(angles, phases, diagonal, x.unsqueeze(-1)).squeeze(-1)

    def _rotate(self, angles: Tensor, phases: Tensor, diagonal: Tensor, x: Tensor) -> Tensor:
        """W x, with x (..., n, columns) and the parameters (..., P, 1)."""
        cos, sin = angles.cos(), angles.sin()
        turn = torch.polar(torch.ones_like(phases), phases)
        start = 0
        for size in self._sizes:
            rotations = slice(start, start + size)
            i, j = self.first[rotations], self.second[rotations]
            c, s, e = cos[..., rotations, :], sin[..., rotations, :], turn[..., rotations, :]
            upper, lower = x.index_select(-2, i) * e, x.index_select(-2, j)  # (..., size, columns)
            x = x.index_copy(-2, i, c * upper - s * lower).index_copy(-2, j, s * upper + c * lower)
            start += size
        return torch.polar(torch.ones_like(diagonal), diagonal) * x

    def right_inverse(self, W: Square) -> tuple[Tensor, ...]:
        """The decomposition of Clements et al. (2016), for n (n - 1) / 2 rotations or more as bricks; in complex128."""
        if self.layout != "brick" or sum(self._sizes) < self.n * (self.n - 1) // 2:
            return super().right_inverse(W)
        flat = [self._decompose(w) for w in W.detach().cpu().to(torch.complex128).reshape(-1, self.n, self.n)]
        real = W.real.dtype
        return tuple(
            torch.stack(values).reshape(*self.batch_shape, -1).to(W.device, real) for values in zip(*flat, strict=True)
        )

    def _decompose(self, W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Angles and phases of all rotations, and the diagonal, of one matrix.

        Entries below the diagonal are nulled along its sub-diagonals, in turn by rotations from the right and from the
        left. What remains is a diagonal; the left rotations are then moved through it to the right side.
        """
        n, U = self.n, W.numpy().copy()
        right: list[tuple[int, float, float]] = []  # U G^{-1}: (index of the pair, angle, phase)
        left: list[tuple[int, float, float]] = []
        for diagonal in range(n - 1):
            for step in range(diagonal + 1):
                if diagonal % 2 == 0:
                    row, m = n - 1 - step, diagonal - step
                    a, b = U[row, m], U[row, m + 1]  # columns m, m + 1; make the first 0
                    theta = math.atan2(abs(a), abs(b))
                    phi = _phase(a) - _phase(b)
                    U[:, m : m + 2] = U[:, m : m + 2] @ _rotation(theta, phi).conj().swapaxes(0, 1)
                    right.append((m, theta, phi))
                else:
                    row, column = n - 1 - diagonal + step, step
                    a, b = U[row - 1, column], U[row, column]  # rows row - 1, row; make the second 0
                    theta = math.atan2(abs(b), abs(a))
                    phi = _phase(b) - _phase(a) + math.pi
                    U[row - 1 : row + 1] = _rotation(theta, phi) @ U[row - 1 : row + 1]
                    left.append((row - 1, theta, phi))
        alpha = [_phase(U[i, i]) for i in range(n)]
        rotations = right  # in the order in which they are applied to a vector: the first nulled acts first
        for m, theta, phi in reversed(left):
            # G(theta, phi)^H diag(a, b) = diag(a', b') G(theta, phi'), with the four phases below.
            a, b = alpha[m], alpha[m + 1]
            alpha[m], alpha[m + 1] = b - phi + math.pi, b
            rotations.append((m, theta, a - b + math.pi))
        angles = torch.zeros(sum(self._sizes), dtype=torch.float64)
        phases = torch.zeros_like(angles)
        for place, theta, phi in self._place(rotations):
            angles[place], phases[place] = theta, phi
        return angles, phases, torch.tensor(alpha, dtype=torch.float64)

    def _place(self, rotations: list[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
        """The slot of each rotation: the first layer that pairs its indices and lies behind all it must follow."""
        starts = [sum(self._sizes[:layer]) for layer in range(self.layers)]
        free = [0] * self.n  # the first layer that may still touch an index
        placed = []
        for m, theta, phi in rotations:
            layer = max(free[m], free[m + 1])
            free[m] = free[m + 1] = layer + 1
            placed.append((starts[layer] + m // 2, theta, phi))
        return placed

    def options(self) -> Mapping[str, object]:
        return {"layers": self.layers, "layout": self.layout}
