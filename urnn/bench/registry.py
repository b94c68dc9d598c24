"""What is measured: one line for each shape and for each model."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from urnn import UnitaryRNN


@dataclass(frozen=True)
class Shape:
    """T steps, B rows, N hidden units, M inputs."""

    name: str
    T: int
    B: int
    N: int
    M: int


SHAPES = (
    Shape("copy, T = 1000", 1020, 20, 128, 10),
    Shape("system identification", 150, 50, 16, 16),
    Shape("wide", 100, 128, 512, 512),
)


def equal_parameters(shape: Shape) -> int:
    """The hidden size of an LSTM with as many real parameters as a full-capacity layer: N^2 + 2 N M + 3 N."""
    target = shape.N**2 + 2 * shape.N * shape.M + 3 * shape.N
    return min(range(1, 2 * shape.N), key=lambda n: abs(4 * n * (n + shape.M + 2) - target))


MODELS: dict[str, Callable[[Shape], nn.Module]] = {
    "UnitaryRNN, cpu": lambda s: UnitaryRNN(s.M, s.N, backend="cpu"),
    "UnitaryRNN, explicit": lambda s: UnitaryRNN(s.M, s.N, backend="explicit"),
    "UnitaryRNN, time loop": lambda s: UnitaryRNN(s.M, s.N, backend="reference"),
    "nn.RNN": lambda s: nn.RNN(s.M, s.N),
    "nn.GRU": lambda s: nn.GRU(s.M, s.N),
    "nn.LSTM": lambda s: nn.LSTM(s.M, s.N),
    "nn.LSTM, equal parameters": lambda s: nn.LSTM(s.M, equal_parameters(s)),
}
BASE = "nn.LSTM"
"""Ratios are to this model."""
