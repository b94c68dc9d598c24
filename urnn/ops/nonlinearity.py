"""The nonlinearities of the recurrence: for each the map, and its gradient as the hand-written backward needs it.

Note [Eq. 2 near zero and near overflow]
With the phase e = z/|z|, Eq. 2 is h = z + b e where |z| + b > 0, and 0 elsewhere. Written so, the modulus decides only
which case holds; the value is finite for every finite z. The phase is taken of z times a power of two that brings
tiny and huge entries into the safe range. The gradient is g + i (b/|z|) e Im(g conj(e)); the factor b/|z| leaves the
range of the type as |z| -> 0, so below ``sqrt(tiny)`` (1e-19 in single precision) the phase counts as constant there.
At z = 0 value and gradient are 0.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from urnn._typing import Reals, Vectors

PAPER_EPSILON = 1e-5
"""Both epsilons of the released code: under the root and in the denominator."""


class Nonlinearity(NamedTuple):
    """``forward(z, b)`` gives h; ``backward(g, z, b)`` the gradients with respect to z and, unsummed, to b."""

    forward: Callable[[Vectors, Reals], Vectors]
    backward: Callable[[Vectors, Vectors, Reals], tuple[Vectors, Reals]]


def _phase(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (e, |z|, whether |z| is large enough for a gradient through e); e = 0 at z = 0. See the Note."""
    info = torch.finfo(z.dtype)
    small = info.tiny**0.5
    shift = 2.0 ** (100 if info.bits == 32 else 800)
    size = torch.view_as_real(z.detach()).abs().amax(-1)
    regular = size >= small
    scale = torch.ones_like(size)
    scale = torch.where(regular, scale, shift)
    scale = torch.where(size <= 1 / small, scale, 1 / shift)
    scaled = torch.where(regular, z, z.detach()) * scale
    zero = size == 0
    scaled = torch.where(zero, 1.0, scaled)
    modulus = scaled.abs()
    e = torch.where(zero, 0.0, scaled / modulus)
    return e, torch.where(zero, 0.0, modulus.detach() / scale), regular


def _inactive(r: Tensor, b: Tensor) -> Tensor:
    """Where the output is 0. Written so that NaN, which is on no side of a comparison, goes through."""
    return (r + b <= 0) | (r == 0)


def _modrelu(z: Tensor, b: Tensor) -> Tensor:
    """Eq. 2: the modulus is lowered by -b and cut at zero, the phase is kept."""
    e, r, _ = _phase(z)
    return torch.where(_inactive(r, b), 0.0, z + b * e)


def _modrelu_backward(g: Tensor, z: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    e, r, regular = _phase(z)
    along = g * torch.conj_physical(e)  # real part: along the radius; imaginary part: across it
    gz = g + torch.complex(torch.zeros_like(r), torch.where(regular, b / r, 0.0) * along.imag) * e
    inactive = _inactive(r, b)
    return torch.where(inactive, 0.0, gz), torch.where(inactive, 0.0, along.real)


def _epsilon(z: Tensor, b: Tensor) -> Tensor:
    """The released code: m = sqrt(1e-5 + |z|^2), h = z max(m + b, 0) / (m + 1e-5). It shrinks the state at b = 0."""
    m = torch.hypot(z.abs(), torch.full((), PAPER_EPSILON**0.5, dtype=b.dtype, device=b.device))
    return z * (torch.relu(m + b) / (m + PAPER_EPSILON))


def _epsilon_backward(g: Tensor, z: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    m = torch.hypot(z.abs(), torch.full((), PAPER_EPSILON**0.5, dtype=b.dtype, device=b.device))
    factor = torch.relu(m + b) / (m + PAPER_EPSILON)
    along = (g * torch.conj_physical(z)).real  # derivative with respect to the factor
    gb = torch.where(m + b > 0, along / (m + PAPER_EPSILON), 0.0)
    gm = gb - along * factor / (m + PAPER_EPSILON)
    return g * factor + z * (gm / m), gb


def _hard(z: Tensor, b: Tensor) -> Tensor:
    """Hard thresholding, as the text under Eq. 2 has it: z where |z| + b > 0, and 0 elsewhere."""
    r = z.detach().abs()
    return torch.where(_inactive(r, b), 0.0, z)


def _hard_backward(g: Tensor, z: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    r = z.abs()
    return torch.where(_inactive(r, b), 0.0, g), torch.zeros_like(r)


NONLINEARITIES: dict[str, Nonlinearity] = {
    "modrelu": Nonlinearity(_modrelu, _modrelu_backward),
    "modrelu_epsilon": Nonlinearity(_epsilon, _epsilon_backward),
    "hard": Nonlinearity(_hard, _hard_backward),
}
