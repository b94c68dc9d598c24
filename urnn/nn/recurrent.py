"""What the cell and the sequence layer share: their parameters, how those start, and how W is reached."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from urnn._checks import (
    PRECISIONS,
    check_choice,
    check_int,
    check_precision,
    check_same_device,
    check_shape,
    check_tensor,
)
from urnn._module import ComplexModule
from urnn.linalg import check_unitary_matrix
from urnn.nn.modrelu import BIAS_BOUND, check_bias_constraint, constrained
from urnn.ops import NONLINEARITIES, check_backend, recurrence
from urnn.parametrizations import Parametrization, build

INITIAL_STATES = ("learned", "zero")


class Recurrent(ComplexModule):
    """Holds for each direction, told apart by a suffix of the names: V, W or the family that makes it, b, and h_0."""

    half_gradient: bool = False
    """Give W only the half of its gradient that the released code uses: for a comparison with it, and nothing else."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        *,
        parametrization: str | Callable[..., Parametrization],
        nonlinearity: str,
        initial_state: str,
        bias_constraint: str | None,
        backend: str,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.input_size = check_int("input_size", input_size, 1)
        self.hidden_size = check_int("hidden_size", hidden_size, 1)
        if not isinstance(bias, bool):
            raise TypeError(f"bias: expected a bool, got {type(bias).__name__}")
        self.bias_is_learned = bias
        self.parametrization = parametrization
        self.nonlinearity = check_choice("nonlinearity", nonlinearity, NONLINEARITIES)
        self.initial_state_kind = check_choice("initial_state", initial_state, INITIAL_STATES)
        self.bias_constraint = check_bias_constraint(bias_constraint)
        self.backend = check_backend("backend", backend)
        self._suffixes: tuple[str, ...] = ()
        check_precision("dtype", dtype)
        self._device, self._dtype = device, dtype

    def _add_direction(self, suffix: str, input_size: int) -> None:
        n, device = self.hidden_size, self._device
        real, cplx = check_precision("dtype", self._dtype)
        self.register_parameter(
            f"weight_ih{suffix}", nn.Parameter(torch.empty(n, input_size, dtype=cplx, device=device))
        )
        family = build(self.parametrization, n, device=device, dtype=self._dtype)
        if family.direct:
            (W,) = family.parameters()
            self.register_unitary(f"weight_hh{suffix}", W)
        else:
            self.add_module(f"parametrization_hh{suffix}", family)
        b = nn.Parameter(torch.empty(n, dtype=real, device=device)) if self.bias_is_learned else None
        self.register_parameter(f"bias{suffix}", b)
        learned = self.initial_state_kind == "learned"
        h_0 = nn.Parameter(torch.empty(n, dtype=cplx, device=device)) if learned else None
        self.register_parameter(f"initial_state{suffix}", h_0)
        self._suffixes = (*self._suffixes, suffix)

    def reset_parameters(self) -> None:
        """Draw new values as the released code does, except that a full-capacity W comes from the Haar measure.

        V uniform on +-sqrt(6 / (n_in + n_out)) counting real columns, b uniform on +-0.01, h_0 uniform on
        +-sqrt(3 / (2 N)) in each of Re and Im.
        """
        for suffix in self._suffixes:
            self._reset_direction(suffix)

    def _reset_direction(self, suffix: str) -> None:
        n = self.hidden_size
        V, b, h_0 = (self._parameters[f"{name}{suffix}"] for name in ("weight_ih", "bias", "initial_state"))
        assert V is not None
        columns = V.shape[1] * (1 if suffix in ("", "_l0", "_l0_reverse") else 2)  # further layers read complex states
        bound = math.sqrt(6 / (columns + 2 * n))
        with torch.no_grad():
            torch.view_as_real(V).uniform_(-bound, bound)
            if b is not None:
                b.uniform_(-BIAS_BOUND, BIAS_BOUND)
            if h_0 is not None:
                torch.view_as_real(h_0).uniform_(-math.sqrt(3 / (2 * n)), math.sqrt(3 / (2 * n)))
            if (family := self._family(suffix)) is not None:
                family.reset_parameters()
            else:
                W = self._parameters[f"weight_hh{suffix}"]
                assert W is not None
                (fresh,) = build(self.parametrization, n, device=W.device, dtype=W.dtype).parameters()
                W.copy_(fresh)

    def _family(self, suffix: str) -> Parametrization | None:
        family = self._modules.get(f"parametrization_hh{suffix}")
        assert family is None or isinstance(family, Parametrization)
        return family

    def _weight_hh(self, suffix: str) -> Tensor:
        family = self._family(suffix)
        W: Tensor = getattr(self, f"weight_hh{suffix}") if family is None else family()
        return W

    def __getattr__(self, name: str) -> Any:
        """``weight_hh...`` is W itself, for families that make it from other parameters too."""
        if name.startswith("weight_hh") and f"parametrization_hh{name[9:]}" in self.__dict__.get("_modules", {}):
            return self._weight_hh(name[9:])
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """As nn.Module's; a W that a family makes cannot be set."""
        if name.startswith("weight_hh") and f"parametrization_hh{name[9:]}" in self.__dict__.get("_modules", {}):
            raise AttributeError(
                f"{name}: expected no assignment, as {self.parametrization!r} makes it from its own parameters. "
                "load_unitary(W) sets those."
            )
        super().__setattr__(name, value)

    def _load_unitary(self, suffix: str, W: Tensor) -> None:
        family = self._family(suffix)
        if family is not None:
            family.load_unitary(W)
            return
        target = self._parameters[f"weight_hh{suffix}"]
        assert target is not None
        W = check_unitary_matrix("W", W, target.dtype)
        check_shape("W", W, target.shape)
        with torch.no_grad():
            target.copy_(W)

    def _check_input(self, x: object, name: str = "x") -> Tensor:
        """``x`` in a type that the layer computes in; half precision is taken where autocast made it."""
        x = check_tensor(name, x)
        V: Tensor = getattr(self, f"weight_ih{self._suffixes[0]}")
        real, cplx = PRECISIONS[V.dtype]
        if x.dtype in (torch.float16, torch.bfloat16) and torch.is_autocast_enabled(x.device.type):
            x = x.to(real)
        if x.dtype not in (real, cplx):
            raise TypeError(
                f"{name}: expected {real} or {cplx}, as the parameters are, got {x.dtype}. "
                f"{name}.to({real}) converts the input, .to(...) the layer."
            )
        check_same_device(name, x, "the parameters", V)
        return x

    def _check_state(self, name: str, h: object, shape: tuple[int, ...], V: Tensor) -> Tensor:
        h = check_tensor(name, h)
        if h.dtype != V.dtype:
            raise TypeError(f"{name}: expected {V.dtype}, as the state is complex, got {h.dtype}")
        check_shape(name, h, shape)
        check_same_device(name, h, "the parameters", V)
        return h

    def _start(self, suffix: str, rows: int) -> Tensor:
        """The state before the first step where none is given: (rows, N)."""
        h_0: Tensor | None = getattr(self, f"initial_state{suffix}")
        if h_0 is not None:
            return h_0.expand(rows, self.hidden_size)
        V: Tensor = getattr(self, f"weight_ih{suffix}")
        return V.new_zeros(rows, self.hidden_size)

    def _run(
        self, suffix: str, x: Tensor, h_0: Tensor | None, lengths: Tensor | None = None, **options: Any
    ) -> tuple[Tensor | None, Tensor]:
        """One direction over x (T, B, m): states (T, B, N), or None, and the last one (B, N)."""
        V: Tensor = getattr(
            self, f"weight_ih{suffix}"
        )  # not by _parameters: pruning and torch's parametrize move weights
        b: Tensor | None = getattr(self, f"bias{suffix}")
        bias = (
            V.new_zeros(self.hidden_size, dtype=PRECISIONS[V.dtype][0])
            if b is None
            else constrained(b, self.bias_constraint)
        )
        return recurrence(
            x,
            V,
            self._weight_hh(suffix),
            bias,
            self._start(suffix, x.shape[1]) if h_0 is None else h_0,
            lengths,
            nonlinearity=self.nonlinearity,
            half_gradient=self.half_gradient,
            backend=self.backend,
            **options,
        )

    def extra_repr(self) -> str:
        defaults = {
            "bias_is_learned": ("bias", True),
            "parametrization": ("parametrization", "full"),
            "nonlinearity": ("nonlinearity", "modrelu"),
            "initial_state_kind": ("initial_state", "learned"),
            "bias_constraint": ("bias_constraint", None),
            "backend": ("backend", "auto"),
            "half_gradient": ("half_gradient", False),
        }
        values = ((name, getattr(self, field), default) for field, (name, default) in defaults.items())
        others = [f"{name}={value!r}" for name, value, default in values if value != default]
        return ", ".join([str(self.input_size), str(self.hidden_size), *self._extra(), *others])

    def _extra(self) -> list[str]:
        return []
