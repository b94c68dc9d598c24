"""Whole training steps as one CUDA graph: ``graphed_step``.

Note [Capture without a rehearsal]
A CUDA graph wants its operations to have run before it is captured: libraries set themselves up, and the optimizer
makes its state. Here the first calls for a kind of batch are plain steps of the training itself, on the stream of the
capture, and a capture records without computing. So there is nothing to undo: parameters, state and random numbers are
at every call those of a plain loop.

Note [What a graph has fixed]
Python runs while a graph is captured and not when it is replayed. What Python decides is therefore part of the key
under which a graph is kept: shapes and types of the batch, values in it that are not tensors, options of the optimizer,
which modules train. Learning rates reach the graph through tensors on the device, refreshed before each replay; the
groups keep their numbers, so that schedulers and checkpoints see nothing of it. A graph also holds on to the memory
that it was captured with; where a parameter or a state lies elsewhere now, it is captured anew.
"""

import gc
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from urnn._checks import check_int, check_number, format_shape
from urnn.optim.capture import FailureWatch, Rates, make_capturable

Outputs = Tensor | tuple[Tensor, ...]
WARM_UP = 2
"""Plain steps before a capture."""
CHECK_EVERY = 100
"""Calls between two looks at ``optimizer.failed_steps()``."""


def graphed_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[..., Outputs],
    *,
    clip_grad_norm: float | None = None,
    generators: Iterable[Generator] = (),
    max_graphs: int = 8,
    capture: bool = True,
) -> "GraphedStep":
    """Make a function that takes one training step: gradients to None, loss, backward, clipping, optimizer.

    On a CUDA device the step is captured in a CUDA graph, after two plain steps, and replayed from then on; elsewhere
    every step is plain. The results are the same. Each call is a whole step: gradients are not accumulated over calls.

    Args:
        model: handed to ``loss_fn``. All parameters of the optimizer lie on one device.
        optimizer: one of ``urnn.optim``, or of ``torch.optim`` with the option ``capturable``, which is switched on.
        loss_fn: ``loss_fn(model, *batch)`` returns the loss, or a tuple of tensors that begins with it. For a graph it
            must stay on the device: no ``.item()``, no shapes that depend on values. It may draw its own batch.
        clip_grad_norm: largest norm of all gradients together; None means any.
        generators: CUDA generators that ``loss_fn`` draws from, besides the default one.
        max_graphs: batches of so many kinds get a graph. Further ones are stepped plainly, with a warning.
        capture: False takes plain steps on CUDA devices too, to debug.

    Returns:
        ``step(*batch)``. Tensors of the batch are copied to the device; numbers, strings and None are handed on, and
        each value of theirs is a kind of its own. It returns what ``loss_fn`` returned, detached.

    Raises:
        RuntimeError: by ``step``, where the step cannot be captured.

    >>> import urnn
    >>> rnn = urnn.UnitaryRNN(3, 8)
    >>> optimizer = urnn.optim.Adam(rnn.parameters())
    >>> step = graphed_step(rnn, optimizer, lambda rnn, x, y: (rnn(x)[0].real - y).square().mean())
    >>> losses = [step(torch.randn(5, 2, 3), torch.zeros(5, 2, 8)) for _ in range(3)]
    """
    for name, value, kind in (("model", model, nn.Module), ("optimizer", optimizer, torch.optim.Optimizer)):
        if not isinstance(value, kind):
            raise TypeError(f"{name}: expected a {kind.__name__} of PyTorch, got {type(value).__name__}")
    if not callable(loss_fn):
        raise TypeError(f"loss_fn: expected a callable, got {type(loss_fn).__name__}")
    if clip_grad_norm is not None:
        check_number("clip_grad_norm", clip_grad_norm, 0.0)
    check_int("max_graphs", max_graphs, 1)
    if any(group.get("line_search") for group in optimizer.param_groups):
        raise ValueError("optimizer: expected one without line_search, which evaluates the model several times a step")
    return GraphedStep(model, optimizer, loss_fn, clip_grad_norm, tuple(generators), max_graphs, capture)


@dataclass
class _Graph:
    """A captured step, and the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Any, ...]
    outputs: Outputs
    gradients: list[tuple[Tensor, Tensor | None]]
    addresses: tuple[int, ...]


@dataclass
class _Kind:
    """What is known of one kind of batch."""

    calls: int = 0
    graph: _Graph | None = None


class GraphedStep:
    """What ``graphed_step`` makes."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_fn: Callable[..., Outputs],
        clip_grad_norm: float | None,
        generators: tuple[Generator, ...],
        max_graphs: int,
        capture: bool,
    ) -> None:
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        self.clip_grad_norm, self.generators, self.max_graphs = clip_grad_norm, generators, max_graphs
        devices = {p.device for p in self._parameters()}
        if len(devices) != 1:
            raise ValueError(f"optimizer: expected all parameters on one device, got {sorted(map(str, devices))}")
        (self._device,) = devices
        self.captures = capture and _can_capture(self._device)
        """Whether steps are captured."""
        if not self.captures:
            return
        make_capturable(self.optimizer)
        self._kinds: dict[tuple[Any, ...], _Kind] = {}
        self._rates = Rates(optimizer, self._device)
        self._warned = False
        with torch.cuda.device(self._device):
            self._stream = torch.cuda.Stream()
            self._pool = torch.cuda.graph_pool_handle()
            self._failures = FailureWatch(optimizer, CHECK_EVERY)

    def __call__(self, *batch: Any) -> Outputs:
        """Take one step; see ``graphed_step``."""
        for value in batch:
            if not (value is None or isinstance(value, Tensor | bool | int | float | str)):
                raise TypeError(f"batch: expected tensors, numbers, strings or None, got {type(value).__name__}")
        if not self.captures:
            return self._step(self._on_the_device(batch))
        with torch.cuda.device(self._device):
            kind = self._kind(batch)
            if kind is None or kind.calls < WARM_UP:
                outputs = self._plain(batch)
            else:
                if kind.graph is None or kind.graph.addresses != self._addresses():
                    kind.graph = self._captured(batch)
                outputs = self._replayed(kind.graph, batch)
            if kind is not None:
                kind.calls += 1
            self._failures.look(stacklevel=2)
        return outputs

    # One step

    def _step(self, batch: tuple[Any, ...]) -> Outputs:
        self.optimizer.zero_grad()
        return self._without_gradients(batch)

    def _without_gradients(self, batch: tuple[Any, ...]) -> Outputs:
        """A step that finds no gradients."""
        outputs = self.loss_fn(self.model, *batch)
        tensors = outputs if isinstance(outputs, tuple) else (outputs,)
        if not tensors or not all(isinstance(t, Tensor) for t in tensors):
            got = f"a tuple of {[type(t).__name__ for t in tensors]}" if outputs is tensors else type(outputs).__name__
            raise TypeError(f"loss_fn: expected to return a tensor or a tuple of tensors, got {got}")
        loss = tensors[0]
        if loss.numel() != 1 or not loss.requires_grad:
            raise ValueError(
                "loss_fn: expected to return a loss of one element with a gradient, "
                f"got shape {format_shape(loss.shape)} with requires_grad={loss.requires_grad}"
            )
        loss.backward()
        if self.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters(), self.clip_grad_norm)
        self.optimizer.step()
        return _map(Tensor.detach, outputs)

    def _plain(self, batch: tuple[Any, ...]) -> Outputs:
        """A step on the stream of the captures, on which autograd's bookkeeping then lies."""
        make_capturable(self.optimizer)
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            outputs = self._step(self._on_the_device(batch))
        current.wait_stream(self._stream)
        return outputs

    def _captured(self, batch: tuple[Any, ...]) -> _Graph:
        make_capturable(self.optimizer)
        self.optimizer.zero_grad()
        inputs = tuple(v.clone() if isinstance(v, Tensor) else v for v in self._on_the_device(batch))
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        gc.collect()  # what dies during a capture can break it
        current = torch.cuda.current_stream()
        try:
            with (
                self._rates.as_tensors(),
                torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"),
            ):
                outputs = self._without_gradients(inputs)
        except (AssertionError, RuntimeError) as error:
            torch.cuda.set_stream(current)
            raise RuntimeError(
                f"graphed_step: this step cannot be captured in a CUDA graph: {error.__context__ or error}\n"
                "A captured step may not wait for the device (.item(), a printed tensor, a shape that depends on "
                "values) nor touch tensors on the CPU, and no graph of an earlier loss may be alive (keep "
                "loss.detach()). capture=False takes plain steps."
            ) from error
        gradients = [(p, p.grad) for p in self._parameters()]
        return _Graph(graph, inputs, outputs, gradients, self._addresses())

    def _replayed(self, graph: _Graph, batch: tuple[Any, ...]) -> Outputs:
        for buffer, value in zip(graph.inputs, batch, strict=True):
            if isinstance(buffer, Tensor):
                buffer.copy_(value, non_blocking=True)
        self._rates.refresh()
        graph.graph.replay()
        for p, gradient in graph.gradients:
            p.grad = gradient
        return _map(Tensor.clone, graph.outputs)  # the next replay writes over the original

    def _on_the_device(self, batch: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(v.to(self._device, non_blocking=True) if isinstance(v, Tensor) else v for v in batch)

    # What a graph has fixed

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _kind(self, batch: tuple[Any, ...]) -> _Kind | None:
        """The kind of ``batch``; None where there are too many already."""
        key = (
            *((v.shape, v.dtype) if isinstance(v, Tensor) else repr(v) for v in batch),
            *(self._option(group, name) for group in self.optimizer.param_groups for name in sorted(group)),
            *(module.training for module in self.model.modules()),
            *(p.requires_grad for p in self._parameters()),
        )
        if key in self._kinds:
            return self._kinds[key]
        if len(self._kinds) < self.max_graphs:
            return self._kinds.setdefault(key, _Kind())
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"graphed_step: got more than max_graphs={self.max_graphs} kinds of batches (shapes, types, values "
                "that are not tensors, options of the optimizer). This one and further ones are stepped plainly.",
                stacklevel=3,
            )
        return None

    def _option(self, group: dict[str, Any], name: str) -> object:
        """A value of ``group`` as part of a key."""
        if name in ("params", "param_names") or (name == "lr" and self._rates.handed_over(group)):
            return None
        return id(group[name]) if isinstance(group[name], Tensor) else repr(group[name])

    def _addresses(self) -> tuple[int, ...]:
        """Where all lies that outlives a step."""
        parameters = self._parameters()
        states = [v for p in parameters for v in self.optimizer.state.get(p, {}).values() if isinstance(v, Tensor)]
        return tuple(t.data_ptr() for t in (*parameters, *self.model.parameters(), *self.model.buffers(), *states))


def _can_capture(device: torch.device) -> bool:
    return device.type == "cuda"


def _map(function: Callable[[Tensor], Tensor], outputs: Outputs) -> Outputs:
    return tuple(map(function, outputs)) if isinstance(outputs, tuple) else function(outputs)
