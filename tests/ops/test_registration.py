"""The recurrence as an operator: what torch.library asks for, vmap, what is saved, and the second derivative."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from urnn.linalg import haar_unitary
from urnn.ops import BACKENDS, NONLINEARITIES, recurrence
from urnn.ops.segments import segment_count

FUSED = tuple(BACKENDS)
ALL = (*FUSED, "reference")
T, B, n, m = 4, 3, 2, 5


def arguments(*ensemble: int, dtype: torch.dtype = torch.complex128) -> tuple[Tensor, ...]:
    """x, V, W, b, h_0 with real input."""
    real = torch.zeros((), dtype=dtype).real.dtype
    return (
        torch.randn(T, *ensemble, B, m, dtype=real),
        torch.randn(*ensemble, n, m, dtype=dtype),
        haar_unitary(n, ensemble, dtype=dtype),
        0.3 * torch.randn(*ensemble, n, dtype=real),
        torch.randn(*ensemble, B, n, dtype=dtype),
    )


# opcheck


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("lengths", [None, torch.tensor([[0, 4, 2], [1, 2, 3]])], ids=["all", "lengths"])
@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_opcheck(dtype: torch.dtype, projected: bool, lengths: Tensor | None, backend: str) -> None:
    x, V, W, b, h_0 = arguments(2, dtype=dtype)
    x, V = (x, V) if projected else (torch.randn(T, 2, B, n, dtype=dtype), None)
    settings = ("modrelu", lengths is not None, False, backend)
    inputs = (x, V, W, b, h_0, lengths)
    torch.library.opcheck(torch.ops.urnn.recurrence.default, (*inputs, *settings))
    h, h_n = torch.ops.urnn.recurrence(*inputs, *settings)
    for grad_h, grad_h_n, need_dx in ((h, h_n, True), (None, h_n, False), (h, None, False)):
        torch.library.opcheck(
            torch.ops.urnn.recurrence_backward.default, (grad_h, grad_h_n, h, *inputs, need_dx, *settings)
        )


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("lengths", [None, torch.tensor([[0, 4, 2], [1, 2, 3]])], ids=["all", "lengths"])
@pytest.mark.parametrize("projected", [True, False])
def test_opcheck_of_segments(projected: bool, lengths: Tensor | None, backend: str) -> None:
    x, V, W, b, h_0 = arguments(2)
    x, V = (x, V) if projected else (torch.randn(T, 2, B, n, dtype=W.dtype), None)
    settings = ("modrelu", lengths is not None, False, backend, "sqrt")
    inputs = (x, V, W, b, h_0, lengths)
    torch.library.opcheck(torch.ops.urnn.recurrence.default, (*inputs, *settings))
    kept, h_n = torch.ops.urnn.recurrence(*inputs, *settings)
    assert kept.shape == (segment_count(T), 2, B, n)
    for grad_h_n, need_dx in ((h_n, True), (h_n, False), (None, True)):
        torch.library.opcheck(
            torch.ops.urnn.recurrence_backward.default, (None, grad_h_n, kept, *inputs, need_dx, *settings)
        )


# vmap

E = 3
LENGTHS = torch.tensor([[0, 4, 2], [1, 2, 3], [4, 4, 4]])
MAPPED = {  # which arguments vmap runs over
    "all": (1, 0, 0, 0, 0),
    "weights": (None, 0, 0, 0, None),
    "data": (1, None, None, None, 0),
    "bias": (None, None, None, 0, None),
}
Dims = tuple[int | None, ...]


def mapped_arguments(dims: Dims) -> tuple[Tensor, ...]:
    return tuple(
        a if d is not None else a.select(at, 0) for a, d, at in zip(arguments(E), dims, MAPPED["all"], strict=True)
    )


def member(args: tuple[Tensor, ...], dims: Dims, e: int) -> tuple[Tensor, ...]:
    return tuple(a if d is None else a.select(d, e) for a, d in zip(args, dims, strict=True))


def assert_maps_as_loop(f: Callable[..., Any], args: tuple[Tensor, ...], dims: Dims) -> None:
    mapped = torch.vmap(f, in_dims=dims)(*args)
    for e in range(E):
        for got, expected in zip(mapped, f(*member(args, dims, e)), strict=True):
            torch.testing.assert_close(got[e], expected)


@pytest.mark.parametrize("dims", MAPPED.values(), ids=MAPPED)
@pytest.mark.parametrize("backend", ALL)
def test_vmap_equals_the_loop(backend: str, dims: Dims) -> None:
    assert_maps_as_loop(lambda *a: recurrence(*a, reverse=True, backend=backend), mapped_arguments(dims), dims)


LAST = {"return_sequence": False}
SEGMENTS = {"return_sequence": False, "checkpoint": "sqrt"}


def last_loss(backend: str, **settings: Any) -> Callable[..., Tensor]:
    """A function of the last state alone."""

    def of(*args: Tensor) -> Tensor:
        _, h_n = recurrence(*args, backend=backend, **settings)
        return (h_n.real + 2 * h_n.imag).square().sum()

    return of


def loss(backend: str) -> Callable[..., Tensor]:
    def of(x: Tensor, V: Tensor, W: Tensor, b: Tensor, h_0: Tensor, lengths: Tensor | None = None) -> Tensor:
        h, h_n = recurrence(x, V, W, b, h_0, lengths, backend=backend)
        return h.abs().square().sum() + (h.real * x.mean()).sum() + h_n.imag.sum()

    return of


@pytest.mark.parametrize("dims", MAPPED.values(), ids=MAPPED)
@pytest.mark.parametrize("backend", ALL)
def test_vmap_of_grad_equals_the_loop(backend: str, dims: Dims) -> None:
    assert_maps_as_loop(torch.func.grad(loss(backend), argnums=(0, 1, 2, 3, 4)), mapped_arguments(dims), dims)


@pytest.mark.parametrize("dims", MAPPED.values(), ids=MAPPED)
@pytest.mark.parametrize("settings", [LAST, SEGMENTS], ids=["all states", "segments"])
@pytest.mark.parametrize("backend", FUSED)
def test_vmap_of_grad_of_the_last_state(backend: str, settings: dict[str, Any], dims: Dims) -> None:
    args = mapped_arguments(dims)
    gradient = torch.func.grad(last_loss(backend, **settings), argnums=(0, 1, 2, 3, 4))
    assert_maps_as_loop(gradient, args, dims)
    with_lengths, dims = (*args, LENGTHS), (*dims, 0)
    assert_maps_as_loop(gradient, with_lengths, dims)
    reference = torch.func.grad(last_loss("reference"), argnums=(0, 1, 2, 3, 4))
    for got, expected in zip(
        torch.vmap(gradient, dims)(*with_lengths), torch.vmap(reference, dims)(*with_lengths), strict=True
    ):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("backend", ALL)
def test_vmap_over_lengths(backend: str) -> None:
    dims = (*MAPPED["all"], 0)
    args = (*arguments(E), LENGTHS)
    assert_maps_as_loop(lambda *a: recurrence(*a, backend=backend), args, dims)
    assert_maps_as_loop(torch.func.grad(loss(backend), argnums=(0, 1, 2, 3, 4)), args, dims)


@pytest.mark.parametrize("backend", ALL)
def test_vmap_twice_and_over_an_ensemble(backend: str) -> None:
    def run(*args: Tensor) -> tuple[Tensor, Tensor]:
        return recurrence(*args, backend=backend)

    x, V, W, b, h_0 = arguments(E, 2)
    inner, outer = (1, 0, 0, 0, 0), (2, 1, 1, 1, 1)
    h, h_n = torch.vmap(torch.vmap(run, inner), outer)(x, V, W, b, h_0)
    over = torch.vmap(run, outer)(x, V, W, b, h_0)  # E stays the ensemble dimension of the operator
    for e in range(E):
        for i in range(2):
            alone = run(x[:, e, i], V[e, i], W[e, i], b[e, i], h_0[e, i])
            torch.testing.assert_close((h[i, e], h_n[i, e]), alone)
            torch.testing.assert_close((over[0][i][:, e], over[1][i, e]), alone)


@pytest.mark.parametrize("backend", ALL)
def test_gradient_of_a_shared_weight_is_the_sum_over_the_map(backend: str) -> None:
    dims = MAPPED["data"]
    args = mapped_arguments(dims)

    def total(W: Tensor) -> Tensor:
        return torch.vmap(loss(backend), dims)(*args[:2], W, *args[3:]).sum()

    separate = torch.vmap(torch.func.grad(loss(backend), argnums=2), dims)(*args)
    torch.testing.assert_close(torch.func.grad(total)(args[2]), separate.sum(0))


# Derivatives of derivatives


@pytest.mark.parametrize("backend", FUSED)
def test_second_backward_names_the_reference(backend: str) -> None:
    args = [a.requires_grad_() for a in arguments()]
    h, _ = recurrence(*args, backend=backend)
    (gradient,) = torch.autograd.grad(h.abs().square().sum(), args[2], create_graph=True)
    with pytest.raises(RuntimeError, match=r"fused recurrences have no second derivative.*backend='reference'"):
        gradient.abs().sum().backward()


@pytest.mark.parametrize("backend", FUSED)
def test_second_backward_through_segments_names_the_reference(backend: str) -> None:
    args = [a.requires_grad_() for a in arguments()]
    (gradient,) = torch.autograd.grad(last_loss(backend, **SEGMENTS)(*args), args[2], create_graph=True)
    with pytest.raises(RuntimeError, match=r"fused recurrences have no second derivative.*backend='reference'"):
        gradient.abs().sum().backward()


def test_second_backward_through_the_reference() -> None:
    args = [a.requires_grad_() for a in arguments()]
    h, _ = recurrence(*args, backend="reference")
    (gradient,) = torch.autograd.grad(h.abs().square().sum(), args[2], create_graph=True)
    gradient.abs().sum().backward()
    assert all(a.grad is not None and bool(a.grad.abs().sum() > 0) for a in args)


# Modes


def outputs_and_grads(
    args: tuple[Tensor, ...], mode: AbstractContextManager[Any], **settings: Any
) -> tuple[Tensor, ...]:
    leaves = [a.clone().requires_grad_() for a in args]
    with mode:
        h, h_n = recurrence(*leaves, **settings)
    loss = (h.real + 2 * h.imag).sum() + h_n.abs().square().sum()
    return h, h_n, *torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)


def bfloat16() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def assert_identical(got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)  # types too


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@pytest.mark.parametrize("backend", ALL)
def test_autocast_changes_nothing(backend: str, nonlinearity: str) -> None:
    args = arguments(dtype=torch.complex64)
    plain, cast = (
        outputs_and_grads(args, mode, nonlinearity=nonlinearity, backend=backend)
        for mode in (nullcontext(), bfloat16())
    )
    assert_identical(cast, plain)


@pytest.mark.parametrize("backend", FUSED)
def test_autocast_around_the_backward_pass_changes_nothing(backend: str) -> None:
    args = arguments(dtype=torch.complex64)
    plain = outputs_and_grads(args, nullcontext(), backend=backend)
    with bfloat16():
        cast = outputs_and_grads(args, nullcontext(), backend=backend)
    assert_identical(cast, plain)


class PassThrough(TorchDispatchMode):
    """Does nothing; but below it PyTorch resolves no lazy conjugates."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("ensemble", [(), (2,)])
@pytest.mark.parametrize("backend", ALL)
def test_a_dispatch_mode_changes_nothing(
    backend: str, ensemble: tuple[int, ...], real: bool, nonlinearity: str
) -> None:
    x, *rest = arguments(*ensemble)
    args = (x if real else torch.complex(x, x.flip(0)), *rest)
    plain = outputs_and_grads(args, nullcontext(), nonlinearity=nonlinearity, backend=backend)
    with PassThrough():
        inside = outputs_and_grads(args, nullcontext(), nonlinearity=nonlinearity, backend=backend)
    assert_identical(inside, plain)


@pytest.mark.parametrize("backend", ALL)
def test_lazily_conjugated_arguments(backend: str) -> None:
    x, V, W, b, h_0 = arguments()
    lazy = (x, V.conj(), W.mH, W.conj()[0].imag, h_0.conj())
    assert all(t.is_conj() or t.is_neg() for t in lazy[1:])
    plain = tuple(t.resolve_conj().resolve_neg() for t in lazy)
    expected = recurrence(*plain, backend=backend)
    assert_identical(recurrence(*lazy, backend=backend), expected)
    with PassThrough():
        assert_identical(recurrence(*lazy, backend=backend), expected)


@pytest.mark.parametrize("ensemble", [(), (2,)])
@pytest.mark.parametrize("backend", FUSED)
def test_results_enter_a_compiled_function(backend: str, ensemble: tuple[int, ...]) -> None:
    """A complex view of real numbers could not (torch 2.13); input size 1 makes views of the gradients likely."""
    x, V, *rest = arguments(*ensemble, dtype=torch.complex64)
    results = [r.detach() for r in outputs_and_grads((x[..., :1], V[..., :1], *rest), nullcontext(), backend=backend)]
    size = torch.compile(lambda *tensors: sum(t.abs().sum() for t in tensors), backend="aot_eager")
    torch.testing.assert_close(size(*results), sum(t.abs().sum() for t in results))


@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'> should not be inst:DeprecationWarning")
@pytest.mark.parametrize("backend", FUSED)
def test_compiled_equals_eager(backend: str) -> None:
    args = arguments()
    compiled = torch.compile(recurrence, backend="aot_eager", fullgraph=True)
    leaves = [a.clone().requires_grad_() for a in args]
    h, h_n = compiled(*leaves, backend=backend)
    loss = (h.real + 2 * h.imag).sum() + h_n.abs().square().sum()
    gradients = torch.autograd.grad(loss, leaves)
    expected = outputs_and_grads(args, nullcontext(), backend=backend)
    assert_identical((h, h_n, *gradients), expected)


@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'> should not be inst:DeprecationWarning")
@pytest.mark.parametrize("steps", [1, 2, 4, 30])
@pytest.mark.parametrize("settings", [LAST, SEGMENTS], ids=["all states", "segments"])
@pytest.mark.parametrize("backend", FUSED)
def test_compiled_last_state_equals_eager(backend: str, settings: dict[str, Any], steps: int) -> None:
    x, *rest = arguments()
    args = (torch.randn(steps, B, m, dtype=x.dtype), *rest)
    lengths = torch.tensor([steps, 0, 1])
    compiled = torch.compile(last_loss(backend, **settings), backend="aot_eager", fullgraph=True, dynamic=True)
    results = []
    for function in (compiled, last_loss(backend, **settings)):
        leaves = [a.clone().requires_grad_() for a in args]
        results.append(torch.autograd.grad(function(*leaves, lengths), leaves))
    assert_identical(*results)


# Memory


@contextmanager
def saved_storages() -> Iterator[dict[int, Tensor]]:
    """What autograd keeps for the backward pass, each piece of memory once."""
    saved: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        yield saved


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("backend", FUSED)
def test_the_states_are_all_that_is_saved(backend: str, dtype: torch.dtype, reverse: bool) -> None:
    args = [a.requires_grad_() for a in arguments(dtype=dtype)]
    lengths = torch.tensor([4, 0, 2])
    with saved_storages() as saved:
        h, _ = recurrence(*args, lengths, reverse=reverse, backend=backend)
    given = {a.untyped_storage().data_ptr() for a in (*args, lengths)}
    kept = [t for pointer, t in saved.items() if pointer not in given]
    assert [t.untyped_storage().data_ptr() for t in kept] == [h.untyped_storage().data_ptr()]
    assert kept[0].untyped_storage().nbytes() == T * B * n * dtype.itemsize


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("backend", FUSED)
def test_with_a_checkpoint_the_entering_states_are_all_that_is_saved(backend: str, reverse: bool) -> None:
    steps = 30
    x, *rest = arguments()
    args = [a.requires_grad_() for a in (torch.randn(steps, B, m, dtype=x.dtype), *rest)]
    lengths = torch.tensor([steps, 0, 2])
    with saved_storages() as saved:
        h, _ = recurrence(*args, lengths, reverse=reverse, backend=backend, **SEGMENTS)
    assert h is None
    given = {a.untyped_storage().data_ptr() for a in (*args, lengths)}
    (kept,) = (t for pointer, t in saved.items() if pointer not in given)
    assert kept.untyped_storage().nbytes() == segment_count(steps) * B * n * 16


@pytest.mark.parametrize("return_sequence", [False, True])
@pytest.mark.parametrize("backend", FUSED)
def test_no_gradient_is_made_up_where_none_arrives(
    backend: str, return_sequence: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the last state alone goes into the loss, no zeros of the size of all states reach the backend."""
    kernels, arrived = BACKENDS[backend].load(), []

    def backward(grad_h: Tensor | None, *args: Any) -> tuple[Tensor | None, ...]:
        arrived.append(grad_h)
        return original(grad_h, *args)

    original = kernels.backward
    monkeypatch.setattr(kernels, "backward", backward)
    args = [a.requires_grad_() for a in arguments()]
    last_loss(backend, return_sequence=return_sequence)(*args).backward()
    assert arrived == [None]


def test_the_reference_saves_more() -> None:
    args = [a.requires_grad_() for a in arguments()]
    with saved_storages() as saved:
        recurrence(*args, backend="reference")
    assert sum(t.untyped_storage().nbytes() for t in saved.values()) > 3 * T * B * n * 16
