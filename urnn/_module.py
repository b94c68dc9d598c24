"""Two things that every module with complex or unitary parameters needs and ``nn.Module`` does not give.

Note [Precision of complex parameters]
``nn.Module.double()`` passes over complex parameters and ``.to(torch.float64)`` drops their imaginary part.
``ComplexModule`` hands both a real view of each complex tensor instead, so that every conversion of a module moves
its complex tensors to the complex type of the same precision. A matrix that is unitary to single precision is not
unitary to double, so on the way to a finer type unitary tensors are polished.

Note [The mark]
An optimizer sees parameters, not modules, so a unitary parameter carries a mark. PyTorch makes a new ``Parameter`` on
deepcopy, on ``.to("meta")`` and on ``load_state_dict(assign=True)``, and the mark would be lost with the old one;
therefore the owner remembers the names and sets the mark again at the three places where its parameters can change.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from urnn._checks import PRECISIONS
from urnn.linalg import check_unitary_matrix, newton_schulz

_MARK = "_urnn_unitary"


def mark_unitary(parameter: Tensor) -> None:
    """Tell the optimizers of ``urnn.optim`` to keep ``parameter`` (..., n, n) on U(n).

    The layers and ``urnn.unitary`` mark their parameters themselves. What makes new parameters out of them loses the
    mark: an ensemble stacked for ``vmap``, or a copied list of parameters. Mark those again.

    >>> import urnn
    >>> parameters, _ = torch.func.stack_module_state([urnn.UnitaryRNN(2, 3) for _ in range(4)])
    >>> mark_unitary(parameters["weight_hh_l0"])
    >>> optimizer = urnn.optim.Adam(parameters.values())
    """
    setattr(parameter, _MARK, True)


def is_unitary(parameter: Tensor) -> bool:
    """Whether ``parameter`` carries the mark of a unitary parameter (this says nothing about its value)."""
    return getattr(parameter, _MARK, False) is True


class ComplexModule(nn.Module):
    """A module whose complex parameters follow ``.float()``, ``.double()`` and ``.to``, and keep their marks."""

    _unitary_names: tuple[str, ...] = ()

    def register_unitary(self, name: str, tensor: Tensor) -> None:
        """Register a unitary tensor: a parameter, which the optimizers of ``urnn.optim`` keep on U(n), or a buffer."""
        self._unitary_names = (*self._unitary_names, name)
        if isinstance(tensor, nn.Parameter):
            self.register_parameter(name, tensor)
        else:
            self.register_buffer(name, tensor)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As ``nn.Module.register_parameter``; also reached by assignment and ``load_state_dict(assign=True)``."""
        super().register_parameter(name, param)
        self._set_marks()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        fn = _of_real_views(fn)
        for tensor in (*self.parameters(recurse), *self.buffers(recurse)):
            if tensor.is_complex() or tensor.is_floating_point():
                fn(torch.empty(0, dtype=tensor.dtype, device=tensor.device))  # a refusal must come before any change
                break
        before = {name: tensor.dtype for name, tensor in self._unitary_tensors()}
        module = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._set_marks()
        self._polish(before)
        return module

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Refuse a W that is not unitary: the load then raises, and this module keeps its values."""
        error_messages: list[str] = args[-1]
        incoming = [(name, W, state_dict.get(prefix + name)) for name, W in self._unitary_tensors()]
        for name, W, new in incoming:
            if isinstance(new, Tensor) and not new.is_meta and new.shape == W.shape:
                try:
                    check_unitary_matrix(prefix + name, new.detach())
                except (TypeError, ValueError) as error:
                    cure = (
                        " urnn.load_state_dict(model, state, project=True) does that."
                        if "projects" in str(error)
                        else ""
                    )
                    error_messages.append(f"{error}{cure}")
                    return
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._polish({name: new.dtype for name, _, new in incoming if isinstance(new, Tensor)})

    def _polish(self, before: Mapping[str, torch.dtype]) -> None:
        """Make those tensors unitary to their own precision that came from a coarser one."""
        for name, tensor in self._unitary_tensors():
            coarse = before.get(name, tensor.dtype)
            if torch.finfo(tensor.dtype).eps < torch.finfo(coarse).eps and not tensor.is_meta:
                with torch.no_grad():
                    tensor.copy_(newton_schulz(newton_schulz(tensor)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._set_marks()

    def _unitary_tensors(self) -> Iterator[tuple[str, Tensor]]:
        for name in self._unitary_names:
            tensor: Tensor | None = self._parameters.get(name)
            tensor = self._buffers.get(name) if tensor is None else tensor
            if tensor is not None:
                yield name, tensor

    def _set_marks(self) -> None:
        for _, tensor in self._unitary_tensors():
            if isinstance(tensor, nn.Parameter):
                mark_unitary(tensor)


def unitary_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Name and value of every tensor of ``model`` that has to be unitary: marked parameters, and bases in buffers."""
    for prefix, module in model.named_modules():
        if isinstance(module, ComplexModule):
            for name, tensor in module._unitary_tensors():
                yield f"{prefix}.{name}" if prefix else name, tensor


def _of_real_views(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Wrap ``fn`` (a conversion of ``nn.Module``) so that complex tensors pass through it as real ones."""

    def convert(tensor: Tensor) -> Tensor:
        if not (tensor.is_complex() or tensor.is_floating_point()):
            return fn(tensor)
        real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        out = fn(real)
        if out.is_complex():  # .to(torch.complex128) asks for that precision
            out = out.real.clone(memory_format=torch.contiguous_format)
        if out.dtype not in PRECISIONS:
            raise TypeError(
                f"dtype: expected float32 or float64 (or their complex types), got {out.dtype}. "
                "PyTorch has no complex arithmetic in half precision: keep the module in float32; "
                "under torch.autocast it computes in float32 by itself."
            )
        return torch.view_as_complex(out.contiguous()) if tensor.is_complex() else out

    return convert
