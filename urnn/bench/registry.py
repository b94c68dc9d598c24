"""What is measured: one line for each shape and for each model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from urnn import PARAMETRIZATIONS, UnitaryRNN
from urnn.bench import peers
from urnn.ops import BACKENDS, Problem

DEVICES = {"cpu": torch.device("cpu"), "gpu": torch.device("cuda", 0)}


@dataclass(frozen=True)
class Shape:
    """T steps, B rows, N hidden units, M inputs; ``series`` is the letter that varies in a scaling series."""

    name: str
    T: int
    B: int
    N: int
    M: int
    devices: tuple[str, ...] = ("cpu", "gpu")
    series: str = ""


SHAPES = (
    Shape("copy, T = 1000", 1020, 20, 128, 10),
    Shape("copy, T = 2000", 2020, 20, 128, 10),
    Shape("MNIST, N = 116", 784, 128, 116, 1),
    Shape("MNIST, N = 128", 784, 128, 128, 1),
    Shape("MNIST, N = 256", 784, 128, 256, 1, devices=("gpu",)),  # on a CPU most models take seconds for a pass
    Shape("MNIST, N = 512", 784, 128, 512, 1, devices=("gpu",)),
    Shape("speech", 300, 32, 256, 129),
    Shape("system identification", 150, 50, 16, 16),
    Shape("wide", 100, 128, 512, 512),
)
SERIES = (
    *(Shape(f"T = {T}", T, 32, 128, 16, series="T") for T in (64, 128, 256, 512, 1024, 2048)),
    *(Shape(f"B = {B}", 256, B, 128, 16, series="B") for B in (1, 4, 16, 64, 256)),
    *(Shape(f"N = {N}", 256, 32, N, 16, series="N") for N in (16, 32, 64, 128, 256, 512)),
)


@dataclass(frozen=True)
class Model:
    """A layer to be timed.

    Args:
        make: the layer for a shape, on the CPU; it returns the states first, as nn.RNN does.
        why_not: None, or the reason why it cannot be timed at a shape on a device.
        note: what a reader must know to compare it.
        loop: a loop in Python over time, whose pace no choice of precision changes: timed in float32 alone.
        graph: replayed as a CUDA graph.
        compiles: spends a while in torch.compile first.
        series: takes part in the scaling series.
    """

    make: Callable[[Shape], nn.Module]
    why_not: Callable[[Shape, str], str | None] = lambda shape, device: None
    note: str = ""
    loop: bool = False
    graph: bool = False
    compiles: bool = False
    series: bool = False


def equal_parameters(shape: Shape, gates: int) -> int:
    """The hidden size of a layer with so many gates and as many real parameters as ours: N^2 + 2 N M + 3 N."""
    target = shape.N**2 + 2 * shape.N * shape.M + 3 * shape.N
    return min(range(1, 2 * shape.N + 2), key=lambda n: abs(gates * n * (n + shape.M + 2) - target))


def refusal(backend: str, shape: Shape, device: str) -> str | None:
    """None, or why a backend of the recurrence cannot serve at a shape on a device."""
    problem = Problem(device=DEVICES[device], dtype=torch.complex64, n=shape.N, nonlinearity="modrelu")
    return BACKENDS[backend].why_not(problem)


def best(shape: Shape, device: str) -> str:
    """The backend that ``backend="auto"`` takes."""
    return next(name for name in BACKENDS if refusal(name, shape, device) is None)


def models(shape: Shape, device: str) -> dict[str, Model]:
    """All models for a shape on a device; of a scaling series those that take part in it."""
    first = best(shape, device)
    table = {
        f"UnitaryRNN, {name}": Model(
            partial(_ours, backend=name), partial(refusal, name), loop=name == "explicit", series=name == first
        )
        for name in BACKENDS
    }
    table["UnitaryRNN, time loop"] = Model(partial(_ours, backend="reference"), loop=True, note="plain autograd")
    for family in PARAMETRIZATIONS:
        if family != "full":  # that is the first row
            name = f"UnitaryRNN, {family}"
            table[name] = Model(partial(_ours, parametrization=family), note="W made from its parameters in each pass")
    table |= PEERS
    if device == "gpu":
        table[f"UnitaryRNN, {first}, CUDA graph"] = Model(partial(_ours, backend=first), graph=True)
        table["nn.RNN, CUDA graph"] = Model(PEERS["nn.RNN"].make, graph=True)
    return {name: model for name, model in table.items() if model.series or not shape.series}


def _ours(shape: Shape, backend: str = "auto", parametrization: str = "full") -> nn.Module:
    return UnitaryRNN(shape.M, shape.N, backend=backend, parametrization=parametrization)


def _complextorch(shape: Shape, device: str) -> str | None:
    return "a loop in Python, timed on the CPU" if device != "cpu" else peers.missing("complextorch")


def _compiled(shape: Shape, device: str) -> str | None:
    return None if shape.name in COMPILED else "compiled for a few shapes only, as that takes long"


COMPILED = ("copy, T = 1000", "system identification", "wide")
PEERS = {
    "real time loop": Model(lambda s: peers.RealLoop(s.M, s.N), note="Re and Im apart, W unconstrained", loop=True),
    "real time loop, torch.compile": Model(
        lambda s: peers.RealLoop(s.M, s.N, peers.chunk(s.T)), _compiled, peers.CHUNK_NOTE, loop=True, compiles=True
    ),
    "complextorch.UnitaryRNN": Model(
        lambda s: peers.ComplexTorch(s.M, s.N),
        _complextorch,
        "a loop; W by a Cayley map in each pass, V with a bias, h_0 = 0",
        loop=True,
    ),
    "nn.RNN": Model(lambda s: nn.RNN(s.M, s.N), series=True),
    "nn.RNN, equal parameters": Model(lambda s: nn.RNN(s.M, equal_parameters(s, 1))),
    "nn.RNN, orthogonal": Model(
        lambda s: peers.OrthogonalRNN(s.M, s.N), note="parametrizations.orthogonal on weight_hh_l0"
    ),
    "nn.GRU": Model(lambda s: nn.GRU(s.M, s.N)),
    "nn.GRU, equal parameters": Model(lambda s: nn.GRU(s.M, equal_parameters(s, 3))),
    "nn.LSTM": Model(lambda s: nn.LSTM(s.M, s.N), series=True),
    "nn.LSTM, equal parameters": Model(lambda s: nn.LSTM(s.M, equal_parameters(s, 4))),
}
BASE = {"cpu": "nn.LSTM", "gpu": "nn.RNN"}
"""Ratios are to this model, at the same shape and precision."""


def select(names: Sequence[str] = (), quick: bool = False) -> list[Shape]:
    """The shapes whose names contain one of ``names``; without, all of them, or a few for a ``quick`` run."""
    if not names:
        return [shape for shape in SHAPES if shape.name in COMPILED] if quick else [*SHAPES, *SERIES]
    for name in names:
        if not any(name in shape.name for shape in (*SHAPES, *SERIES)):
            known = sorted(shape.name for shape in (*SHAPES, *SERIES))
            raise ValueError(f"--shape: expected a part of one of {known}, got {name!r}")
    return [shape for shape in (*SHAPES, *SERIES) if any(name in shape.name for name in names)]
