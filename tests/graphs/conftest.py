"""CUDA graphs on a CPU, so that the logic around them is tested where there is no GPU.

A capture notes every operation that reaches PyTorch's dispatcher and takes back what it computed; a replay executes the
same operations on the same memory. Rates, batches and states that Python holds are fixed in it as in a real graph.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from urnn import graphs
from urnn.optim import base, capture


class _Notes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.operations.append((function, args, kwargs or {}, result))
        return result


class _Graph:
    def __init__(self) -> None:
        self.notes = _Notes()
        self.generators = [torch.default_generator]

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.generators.append(generator)

    @torch.no_grad()
    def replay(self) -> None:
        for function, args, kwargs, result in self.notes.operations:
            returns = function._schema.returns
            if function.is_view:
                continue
            again = function(*args, **kwargs)
            if len(returns) == 1:
                result, again = (result,), (again,)
            for kind, before, now in zip(returns, result or (), again or (), strict=True):
                if kind.alias_info is None:
                    for old, new in zip(tree_leaves(before), tree_leaves(now), strict=True):
                        if isinstance(old, torch.Tensor):
                            old.copy_(new)


class _Stream:
    def wait_stream(self, other: "_Stream") -> None:
        pass


class _Event:
    def record(self) -> None:
        pass

    def query(self) -> bool:
        return True


class _Cuda:
    """What ``urnn.graphs`` uses of ``torch.cuda``."""

    Stream, Event, CUDAGraph = _Stream, _Event, _Graph
    capturing = False
    kept: Callable[[], list[torch.Tensor]]
    """All memory that a capture must leave alone."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cuda, name)

    def device(self, device: torch.device) -> Any:
        return nullcontext()

    def stream(self, stream: _Stream) -> Any:
        return nullcontext()

    def current_stream(self) -> _Stream:
        return _Stream()

    def graph_pool_handle(self) -> None:
        return None

    @contextmanager
    def graph(self, graph: _Graph, pool: None, stream: _Stream, capture_error_mode: str) -> Iterator[None]:
        tensors = self.kept()
        values = [t.detach().clone() for t in tensors]
        random = [generator.get_state() for generator in graph.generators]
        self.capturing = True
        try:
            with graph.notes:
                yield
        finally:
            self.capturing = False
            for generator, state in zip(graph.generators, random, strict=True):
                generator.set_state(state)
            with torch.no_grad():
                for t, value in zip(tensors, values, strict=True):
                    t.copy_(value)


class _Torch:
    def __init__(self, cuda: _Cuda) -> None:
        self.cuda = cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


DEVICES = [
    "emulated",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
    ),
]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Where steps are captured."""
    if request.param == "emulated":
        _emulate(monkeypatch)
        return torch.device("cpu")
    torch.use_deterministic_algorithms(False)
    return torch.device("cuda", torch.cuda.current_device())


def _emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``urnn.graphed_step`` capture on the CPU."""
    cuda = _Cuda()
    for module in (graphs, capture):
        monkeypatch.setattr(module, "torch", _Torch(cuda))
    monkeypatch.setattr(graphs, "_can_capture", lambda device: True)
    monkeypatch.setattr(base, "_capturing", lambda W: cuda.capturing)
    for name in ("torch.optim.adam", "torch.optim.rmsprop"):
        monkeypatch.setattr(import_module(name), "_get_capturable_supported_devices", lambda **_: ["cpu"])
    captured = graphs.GraphedStep._captured

    def remember(step: graphs.GraphedStep, batch: tuple[Any, ...]) -> Any:
        def kept() -> list[torch.Tensor]:
            states = [v for state in step.optimizer.state.values() for v in state.values()]
            return [*step._parameters(), *step.model.buffers(), *(v for v in states if isinstance(v, torch.Tensor))]

        cuda.kept = kept
        return captured(step, batch)

    monkeypatch.setattr(graphs.GraphedStep, "_captured", remember)
