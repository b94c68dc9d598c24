"""Readouts of complex states."""

import math

import torch
from torch import Tensor, nn

from urnn._checks import PRECISIONS, check_int, check_precision, check_same_device, check_tensor, format_shape
from urnn._module import ComplexModule


class _Readout(ComplexModule):
    """Complex weight U (out, in), and a bias."""

    weight: nn.Parameter
    bias: nn.Parameter | None
    _bias_is_complex: bool

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = check_int("in_features", in_features, 1)
        self.out_features = check_int("out_features", out_features, 1)
        real, cplx = check_precision("dtype", dtype)
        self.weight = nn.Parameter(torch.empty(out_features, in_features, dtype=cplx, device=device))
        bias_type = cplx if self._bias_is_complex else real
        values = nn.Parameter(torch.empty(out_features, dtype=bias_type, device=device)) if bias else None
        self.register_parameter("bias", values)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """U uniform on +-sqrt(6 / (n_in + n_out)) counting real columns, as the released code; bias 0."""
        columns = self.out_features * (2 if self._bias_is_complex else 1)
        bound = math.sqrt(6 / (2 * self.in_features + columns))
        with torch.no_grad():
            torch.view_as_real(self.weight).uniform_(-bound, bound)
            if self.bias is not None:
                self.bias.zero_()

    def _check(self, h: object) -> Tensor:
        h = check_tensor("h", h)
        real = PRECISIONS[self.weight.dtype][0]
        if h.dtype in (torch.float16, torch.bfloat16) and torch.is_autocast_enabled(h.device.type):
            h = h.to(real)
        if h.dtype not in PRECISIONS:
            raise TypeError(f"h: expected {self.weight.dtype} or its real type, got {h.dtype}")
        if h.dim() == 0 or h.shape[-1] != self.in_features:
            raise ValueError(f"h: expected shape (..., {self.in_features}), got {format_shape(h.shape)}")
        if PRECISIONS[h.dtype] != PRECISIONS[self.weight.dtype]:
            raise TypeError(
                f"h: expected {self.weight.dtype}, as the weight, got {h.dtype}. .to(h.dtype) moves the module."
            )
        check_same_device("h", h, "the weight", self.weight)
        return h.to(self.weight.dtype)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}" + ("" if self.bias is not None else ", bias=False")


class ComplexToReal(_Readout):
    r"""Real outputs from complex states, :math:`y = \mathrm{Re}\{U h + c\}` (under Eq. 1); c is real.

    The product is one real matrix product over Re and Im of the state side by side.

    Args:
        in_features: N, size of the complex states.
        out_features: L, number of real outputs.
        bias: whether c is there.
        device, dtype: as in ``UnitaryRNN``.

    >>> ComplexToReal(128, 10)(torch.ones(20, 128, dtype=torch.complex64)).shape
    torch.Size([20, 10])
    """

    _bias_is_complex = False

    def forward(self, h: Tensor) -> Tensor:
        """h (..., N), complex (a real one counts as complex), to y (..., L), real."""
        h = self._check(h)
        with torch.autocast(h.device.type, enabled=False):
            planes = torch.view_as_real(h.resolve_conj()).flatten(-2)  # (..., 2 N)
            U = torch.stack((self.weight.real, -self.weight.imag), -1).flatten(-2)  # Re{U h} = Re U Re h - Im U Im h
            return nn.functional.linear(planes, U, self.bias)


class ComplexLinear(_Readout):
    """Complex outputs, y = U h + c (Eq. 1).

    Args: as ``ComplexToReal``.

    >>> ComplexLinear(128, 10)(torch.ones(20, 128, dtype=torch.complex64)).dtype
    torch.complex64
    """

    _bias_is_complex = True

    def forward(self, h: Tensor) -> Tensor:
        """h (..., N), complex or real, to y (..., L), complex."""
        return nn.functional.linear(self._check(h), self.weight, self.bias)
