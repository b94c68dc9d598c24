"""Sequence models of the experiments, all (T, B, inputs) -> (T, B, outputs), and their sizes."""

from collections.abc import Callable

from torch import Tensor, nn

from urnn import ComplexToReal, UnitaryRNN
from urnn._module import is_unitary


class Unitary(nn.Module):
    """A ``UnitaryRNN`` and its readout."""

    def __init__(self, inputs: int, hidden: int, outputs: int, parametrization: str = "full") -> None:
        super().__init__()
        self.rnn = UnitaryRNN(inputs, hidden, parametrization=parametrization)
        self.readout = ComplexToReal(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.readout(self.rnn(x)[0])
        return y


class LSTM(nn.Module):
    """An ``nn.LSTM`` and its readout."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(inputs, hidden)
        self.readout = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.readout(self.rnn(x)[0])
        return y


def count_parameters(model: nn.Module) -> int:
    """Real parameters: a complex one counts two, a unitary W its n^2 degrees of freedom."""
    return sum(p.numel() * (2 if p.is_complex() and not is_unitary(p) else 1) for p in model.parameters())


def matching_size(make: Callable[[int], nn.Module], parameters: int) -> int:
    """The hidden size at which ``make(size)`` comes nearest to so many parameters; counts must grow with the size."""
    low, high = 1, 2
    while count_parameters(make(high)) < parameters:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count_parameters(make(middle)) < parameters else (low, middle)
    return min((low, high), key=lambda size: abs(count_parameters(make(size)) - parameters))
