"""Eq. 2 as a module, and what a bias may be."""

import torch
from torch import Tensor, nn

from urnn._checks import (
    check_choice,
    check_complex,
    check_int,
    check_precision,
    check_same_device,
    check_tensor,
    format_shape,
)
from urnn._module import ComplexModule
from urnn.ops import NONLINEARITIES

BIAS_CONSTRAINTS = ("nonpositive",)
BIAS_BOUND = 0.01
"""A new bias is uniform on (-0.01, 0.01), as in the released code."""


def check_bias_constraint(value: str | None) -> str | None:
    """``bias_constraint`` must be None or in the list."""
    return value if value is None else check_choice("bias_constraint", value, BIAS_CONSTRAINTS)


def constrained(bias: Tensor, constraint: str | None) -> Tensor:
    """The bias in effect. ``nonpositive`` folds positive values over, so no value is left without a gradient.

    With b <= 0 Eq. 2 is 1-Lipschitz and never lengthens a state; so is then each step, as W is unitary.
    """
    return bias if constraint is None else torch.where(bias > 0, -bias, bias)


class ModReLU(ComplexModule):
    r"""Eq. 2: the modulus of each entry is raised by b and cut at 0, its phase is kept.

    .. math:: \sigma_b(z) = (|z| + b)\, z / |z| \text{ where } |z| + b > 0, \text{ else } 0

    Exact: no epsilon, and value and gradient are finite for every finite z (0 at z = 0).

    Args:
        num_features: N.
        nonlinearity: ``modrelu`` (Eq. 2), ``modrelu_epsilon`` (the released code's form) or ``hard`` (thresholding).
        bias_constraint: None, or ``"nonpositive"`` for b <= 0, which makes Eq. 2 1-Lipschitz.
        device, dtype: as in ``UnitaryRNN``.

    >>> ModReLU(4)(torch.zeros(2, 4, dtype=torch.complex64)).abs().max().item()
    0.0
    """

    bias: nn.Parameter

    def __init__(
        self,
        num_features: int,
        *,
        nonlinearity: str = "modrelu",
        bias_constraint: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_features = check_int("num_features", num_features, 1)
        self.nonlinearity = check_choice("nonlinearity", nonlinearity, NONLINEARITIES)
        self.bias_constraint = check_bias_constraint(bias_constraint)
        self.bias = nn.Parameter(torch.empty(num_features, dtype=check_precision("dtype", dtype)[0], device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw a new bias."""
        nn.init.uniform_(self.bias, -BIAS_BOUND, BIAS_BOUND)

    def forward(self, z: Tensor) -> Tensor:
        """z (..., N), complex."""
        check_complex("z", check_tensor("z", z), check_precision("bias", self.bias.dtype)[1])
        if z.dim() == 0 or z.shape[-1] != self.num_features:
            raise ValueError(f"z: expected shape (..., {self.num_features}), got {format_shape(z.shape)}")
        check_same_device("z", z, "the bias", self.bias)
        return NONLINEARITIES[self.nonlinearity].forward(z, constrained(self.bias, self.bias_constraint))

    def extra_repr(self) -> str:
        other = f", nonlinearity={self.nonlinearity!r}" if self.nonlinearity != "modrelu" else ""
        return f"{self.num_features}{other}" + (
            f", bias_constraint={self.bias_constraint!r}" if self.bias_constraint else ""
        )
