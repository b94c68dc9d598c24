"""The recurrence as an operator of PyTorch: opaque to torch.compile, known to export, vmap and autograd.

Note [Why two operators under an autograd.Function]
Inductor cannot generate code for complex tensors, so it must not look inside. ``torch.library.custom_op`` would do
that too, but breaks ``vmap(grad(...))`` (torch 2.13). Here forward and backward are operators with a fake and a vmap
rule each (vmap goes into the ensemble dimension), and the Functions join them. A second backward raises.

Note [Lazy conjugates and complex views]
Under a dispatch mode (torch.compile runs a compiled graph under one, a FLOP counter is one) PyTorch resolves no lazy
conjugate: tensors arrive with the bit set, and element-wise operations inside ignore it. So both operators resolve
what they are given, and their kernels use ``torch.conj_physical``. And a complex tensor that is a view of real numbers
cannot enter torch.compile as an input (torch 2.13), so what they return is no view.

Note [What is kept]
The first result is what the backward pass needs: the states of all steps, or with a checkpoint the state that enters
each segment. The loop over segments is inside the operators: torch.compile would see in it the same states computed
twice, and keep the first.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from urnn.ops import segments
from urnn.ops.backends import Problem, choose
from urnn.ops.layout import exact_types, final_state

_SETTINGS = "str nonlinearity, bool reverse, bool half_gradient, str backend, str? checkpoint=None"
_library = torch.library.Library("urnn", "DEF")
_library.define(
    f"recurrence(Tensor x, Tensor? V, Tensor W, Tensor b, Tensor h_0, Tensor? lengths, {_SETTINGS}) -> (Tensor, Tensor)"
)
_library.define(
    "recurrence_backward(Tensor? grad_h, Tensor? grad_h_n, Tensor kept, Tensor x, Tensor? V, Tensor W, Tensor b, "
    f"Tensor h_0, Tensor? lengths, bool need_dx, {_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _operator(kernel: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
    """``kernel`` with the care of Note [Lazy conjugates and complex views]."""

    @wraps(kernel)
    def run(*args: Any) -> tuple[Tensor, ...]:
        outputs = kernel(*(a.resolve_conj().resolve_neg() if isinstance(a, Tensor) else a for a in args))
        return tuple(out.new_empty(0).set_(out) for out in outputs)  # type: ignore[call-overload]

    return run


@_operator
def _forward(
    x: Tensor,
    V: Tensor | None,
    W: Tensor,
    b: Tensor,
    h_0: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
    half_gradient: bool,
    backend: str,
    checkpoint: str | None = None,
) -> tuple[Tensor, Tensor]:
    kernels = choose(backend, Problem(W.device, W.dtype, W.shape[-1], nonlinearity))
    with exact_types(x):
        if checkpoint is not None:
            return segments.forward(kernels, x, V, W, b, h_0, lengths, nonlinearity, reverse)
        h = kernels.forward(x, V, W, b, h_0, lengths, nonlinearity, reverse)
        return h, final_state(h, h_0, lengths, reverse)


@_operator
def _backward(
    grad_h: Tensor | None,
    grad_h_n: Tensor | None,
    kept: Tensor,
    x: Tensor,
    V: Tensor | None,
    W: Tensor,
    b: Tensor,
    h_0: Tensor,
    lengths: Tensor | None,
    need_dx: bool,
    nonlinearity: str,
    reverse: bool,
    half_gradient: bool,
    backend: str,
    checkpoint: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    kernels = choose(backend, Problem(W.device, W.dtype, W.shape[-1], nonlinearity))
    settings = nonlinearity, reverse, half_gradient, need_dx
    with exact_types(x):
        if checkpoint is not None:
            gradients = segments.backward(kernels, grad_h_n, kept, x, V, W, b, lengths, *settings)
        else:
            gradients = kernels.backward(grad_h, grad_h_n, kept, x, V, W, b, h_0, lengths, *settings)
    dx, dV, dW, db, dh_0 = gradients
    dx = x.new_empty(0) if dx is None else dx
    dV = x.new_empty(0) if dV is None else dV.contiguous()
    return dx, dV, dW.contiguous(), db, dh_0


def _forward_fake(
    x: Tensor,
    V: Tensor | None,
    W: Tensor,
    b: Tensor,
    h_0: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
    half_gradient: bool,
    backend: str,
    checkpoint: str | None = None,
) -> tuple[Tensor, Tensor]:
    T = x.shape[0]
    kept = T if checkpoint is None else segments.segment_count(T)
    return W.new_empty((kept, *h_0.shape)), W.new_empty(h_0.shape)


def _backward_fake(
    grad_h: Tensor | None,
    grad_h_n: Tensor | None,
    kept: Tensor,
    x: Tensor,
    V: Tensor | None,
    W: Tensor,
    b: Tensor,
    h_0: Tensor,
    lengths: Tensor | None,
    need_dx: bool,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dx = x.new_empty(x.shape if need_dx else (0,))
    dV = x.new_empty(0) if V is None else V.new_empty(V.shape)
    return dx, dV, W.new_empty(W.shape), b.new_empty(b.shape), h_0.new_empty(h_0.shape)


def _into_ensemble(size: int, tensor: Tensor | None, in_dim: int | None, ensemble_dim: int) -> Tensor | None:
    """Merge the dimension that vmap runs over into the ensemble dimension."""
    if tensor is None:
        return None
    if in_dim is None:
        shape = list(tensor.shape)
        tensor = tensor.unsqueeze(ensemble_dim).expand(*shape[:ensemble_dim], size, *shape[ensemble_dim:])
    else:
        tensor = tensor.movedim(in_dim, ensemble_dim)
    return tensor.flatten(ensemble_dim, ensemble_dim + 1)


def _vmap(ensemble_dims: Sequence[int], out_dims: Sequence[int], op: Any) -> Any:
    """The vmap rule of ``op``, whose leading arguments and results have their ensemble dimension at these places."""

    def rule(info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
        size, count = info.batch_size, len(ensemble_dims)
        tensors = [
            _into_ensemble(size, *pair) for pair in zip(args[:count], in_dims[:count], ensemble_dims, strict=True)
        ]
        outputs = op(*tensors, *args[count:])
        apart = tuple(
            out.unflatten(dim, (size, -1)) if out.dim() > 1 else out for out, dim in zip(outputs, out_dims, strict=True)
        )
        return apart, tuple(dim if out.dim() > 1 else None for out, dim in zip(outputs, out_dims, strict=True))

    return rule


_library.impl("recurrence", _forward, "CompositeExplicitAutograd")
_library.impl("recurrence_backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake("urnn::recurrence", _forward_fake, lib=_library)
torch.library.register_fake("urnn::recurrence_backward", _backward_fake, lib=_library)
torch.library.register_vmap(
    "urnn::recurrence", _vmap((1, 0, 0, 0, 0, 0), (1, 0), torch.ops.urnn.recurrence), lib=_library
)
torch.library.register_vmap(
    "urnn::recurrence_backward",
    _vmap((1, 0, 1, 1, 0, 0, 0, 0, 0), (1, 0, 0, 0, 0), torch.ops.urnn.recurrence_backward),
    lib=_library,
)


class _Backward(torch.autograd.Function):
    """The first backward; differentiating it again raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad_h: Tensor | None,
        grad_h_n: Tensor | None,
        kept: Tensor,
        x: Tensor,
        V: Tensor | None,
        W: Tensor,
        b: Tensor,
        h_0: Tensor,
        lengths: Tensor | None,
        need_dx: bool,
        nonlinearity: str,
        reverse: bool,
        half_gradient: bool,
        backend: str,
        checkpoint: str | None,
    ) -> Any:
        settings = nonlinearity, reverse, half_gradient, backend, checkpoint
        return torch.ops.urnn.recurrence_backward(grad_h, grad_h_n, kept, x, V, W, b, h_0, lengths, need_dx, *settings)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            "The fused recurrences have no second derivative. Build the layer with backend='reference', "
            "which autograd differentiates as often as one likes."
        )


class Recurrence(torch.autograd.Function):
    """Joins the two operators. Arguments as in the schema of ``urnn::recurrence``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        V: Tensor | None,
        W: Tensor,
        b: Tensor,
        h_0: Tensor,
        lengths: Tensor | None,
        nonlinearity: str,
        reverse: bool,
        half_gradient: bool,
        backend: str,
        checkpoint: str | None,
    ) -> Any:
        settings = nonlinearity, reverse, half_gradient, backend, checkpoint
        return torch.ops.urnn.recurrence(x, V, W, b, h_0, lengths, *settings)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:6], output[0])
        ctx.settings = inputs[6:]

    @staticmethod
    def backward(ctx: Any, grad_h: Tensor | None, grad_h_n: Tensor | None) -> Any:
        x, V, W, b, h_0, lengths, kept = ctx.saved_tensors
        need_dx = ctx.needs_input_grad[0]
        inputs = (grad_h, grad_h_n, kept, x, V, W, b, h_0, lengths, need_dx, *ctx.settings)
        dx, dV, dW, db, dh_0 = _Backward.apply(*inputs)  # type: ignore[no-untyped-call]
        return dx if need_dx else None, dV if V is not None else None, dW, db, dh_0, *[None] * (1 + len(ctx.settings))


# PyTorch asks for the signature in each call, which takes longer than a small pass; so it is made once.
vars(_Backward.forward)["__signature__"] = signature(_Backward.forward)
vars(Recurrence.forward)["__signature__"] = signature(Recurrence.forward)
