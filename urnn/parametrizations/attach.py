"""``urnn.unitary``: put any family on the square weight of any module, as ``torch.nn.utils.parametrizations`` does."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from urnn._checks import check_shape, check_square
from urnn._module import ComplexModule
from urnn.linalg import check_unitary_matrix, is_unitary_matrix
from urnn.parametrizations.base import Parametrization


class OnWeight(nn.Module):
    """A family as ``torch.nn.utils.parametrize`` wants it: a map of tensors that the parametrized module owns."""

    like: Tensor
    """Empty; it goes where the module goes and so knows the present type and device, as the values are not here."""

    def __init__(self, family: Parametrization, weight: Tensor) -> None:
        super().__init__()
        self._first_values: tuple[Tensor, ...] | None = tuple(p.detach().clone() for p in family.parameters())
        for name in list(family._parameters):
            family._parameters[name] = None
        self.family = family
        self.register_buffer("like", weight.new_empty(0), persistent=False)

    def forward(self, *values: Tensor) -> Tensor:
        return self.family.matrix(*values)

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        if self._first_values is not None:  # registration asks for the values of the weight that is there
            values, self._first_values = self._first_values, None
            return values
        W = check_unitary_matrix("weight", W, self.like.dtype)
        check_shape("weight", W, (*self.family.batch_shape, self.family.n, self.family.n))
        return self.family.right_inverse(W.to(self.like.device))


def attach(family: Parametrization, module: nn.Module, name: str, weight: nn.Parameter) -> nn.Module:
    """Make ``module.<name>`` a member of ``family``; it starts where it is if it is one already, else at random."""
    if is_unitary_matrix(weight.detach()):
        try:
            family.load_unitary(weight.detach())
        except (ValueError, NotImplementedError):
            pass  # no member: the random start stands
    if not isinstance(module, ComplexModule):
        module.__class__ = _complex_version(type(module))
    assert isinstance(module, ComplexModule)
    if family.direct:
        with torch.no_grad():
            weight.copy_(family())
        module.register_unitary(name, weight)
    else:
        parametrize.register_parametrization(module, name, OnWeight(family, weight.detach()))
    return module


def find_weight(module: nn.Module, name: str) -> nn.Parameter:
    """``module.<name>``, which must be a complex square parameter that no parametrization holds yet."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    if parametrize.is_parametrized(module, name):
        raise ValueError(
            f"name: expected a plain parameter, got {name!r}, which is parametrized already. "
            "torch.nn.utils.parametrize.remove_parametrizations undoes that."
        )
    weight = module._parameters.get(name)
    if weight is None:
        raise ValueError(
            f"name: expected one of {sorted(module._parameters)}, the parameters of the module, got {name!r}"
        )
    if not weight.is_complex():
        raise TypeError(
            f"{name}: expected complex64 or complex128, got {weight.dtype}. "
            "Build the module with dtype=torch.complex64; "
            "for a real matrix there is torch.nn.utils.parametrizations.orthogonal."
        )
    check_square(name, weight)
    return weight


def _complex_version(cls: type[nn.Module]) -> type[nn.Module]:
    """``cls`` with the care that ``ComplexModule`` takes of complex and unitary parameters."""
    return type(
        f"Unitary{cls.__name__}", (ComplexModule, cls), {"__reduce_ex__": _reduce, "__module__": cls.__module__}
    )


def _reduce(
    module: nn.Module, protocol: Any
) -> tuple[Callable[..., nn.Module], tuple[type[nn.Module]], dict[str, Any]]:
    if parametrize.is_parametrized(module):
        return object.__reduce_ex__(module, protocol)  # type: ignore[return-value]  # PyTorch refuses: use state_dict
    return _empty, (type(module).__mro__[2],), module.__dict__.copy()


def _empty(cls: type[nn.Module]) -> nn.Module:
    made = _complex_version(cls)
    return made.__new__(made)
