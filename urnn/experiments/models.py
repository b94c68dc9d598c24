"""Sequence models of the experiments, all (T, B, inputs) -> (T, B, outputs), their first values and their sizes."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from urnn import ComplexToReal, UnitaryRNN
from urnn._module import is_unitary
from urnn.linalg import haar_unitary
from urnn.parametrizations import PARAMETRIZATIONS, Parametrization, Restricted

if TYPE_CHECKING:
    from urnn.experiments.config import Config


class Unitary(nn.Module):
    """A ``UnitaryRNN`` and its readout."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        parametrization: str | Callable[..., Parametrization] = "full",
        **options: Any,
    ) -> None:
        super().__init__()
        self.rnn = UnitaryRNN(inputs, hidden, parametrization=parametrization, **options)
        self.readout = ComplexToReal(hidden, outputs)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        y: Tensor = self.readout(self.rnn(x, lengths=lengths)[0])
        return y


class Peer(nn.Module):
    """A recurrent network of PyTorch's and its readout."""

    kind: ClassVar[Callable[..., nn.RNNBase]]

    def __init__(self, inputs: int, hidden: int, outputs: int, num_layers: int = 1) -> None:
        super().__init__()
        self.rnn = self.kind(inputs, hidden, num_layers)
        self.readout = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Padding lies behind the end of a row, where a network that runs forward reads it too late to matter."""
        y: Tensor = self.readout(self.rnn(x)[0])
        return y


class LSTM(Peer):
    """An ``nn.LSTM`` and its readout."""

    kind = nn.LSTM


class GRU(Peer):
    """An ``nn.GRU`` and its readout."""

    kind = nn.GRU


class RNN(Peer):
    """A tanh ``nn.RNN`` and its readout."""

    kind = nn.RNN


PEERS: dict[str, type[Peer]] = {"lstm": LSTM, "gru": GRU, "rnn": RNN}


def family(config: "Config", name: str) -> Callable[..., Parametrization]:
    """A family of unitary matrices with its options of this run."""
    options = {"householder": {"reflections": config.reflections}, "givens": {"layers": config.rotations}}
    make: Callable[..., Parametrization] = PARAMETRIZATIONS[name]
    return partial(make, **options.get(name, {}))


def build(config: "Config", inputs: int, outputs: int) -> nn.Module:
    """The model of a run, on the CPU, with its first values."""
    model = _model(config, inputs, outputs, config.hidden)
    if isinstance(model, Unitary):
        _set_first_values(config, model.rnn)
    return model.double() if config.dtype == "float64" else model


def sized(config: "Config", inputs: int, outputs: int) -> "Config":
    """``config`` with ``hidden`` chosen so that the model has about ``config.parameters`` parameters."""
    smallest = config.reflections if config.model == "householder" else 1
    hidden = matching_size(partial(_model, config, inputs, outputs), config.parameters, smallest)
    return replace(config, hidden=hidden)


def _model(config: "Config", inputs: int, outputs: int, hidden: int) -> nn.Module:
    if config.model in PEERS:
        return PEERS[config.model](inputs, hidden, outputs, config.num_layers)
    model = Unitary(
        inputs,
        hidden,
        outputs,
        family(config, config.model),
        num_layers=config.num_layers,
        nonlinearity=config.nonlinearity,
        initial_state=config.initial_state,
        bias_constraint=config.bias_constraint,
        backend=config.backend,
    )
    model.rnn.half_gradient = config.half_gradient
    return model


def _set_first_values(config: "Config", rnn: UnitaryRNN) -> None:
    for layer in range(config.num_layers):
        nn.init.uniform_(
            rnn.get_parameter(f"bias_l{layer}"),
            config.bias_init - config.bias_width,
            config.bias_init + config.bias_width,
        )
        if config.initial_w != "family":
            rnn.load_unitary(first_unitary(config.initial_w, config.hidden, config.initial_spread), layer)


def first_unitary(kind: str, n: int, spread: float = 1.0) -> Tensor:
    """A random W to start from; ``uniform`` and ``even`` eigenphases lie within +- ``spread`` pi.

    >>> W = first_unitary("even", 4, spread=0.5)
    >>> (torch.linalg.eigvals(W).angle().sort().values / torch.pi).round(decimals=3).tolist()
    [-0.375, -0.125, 0.125, 0.375]
    """
    if kind == "haar":
        return haar_unitary(n)
    if kind == "restricted":
        return Restricted(n)().detach()
    shares = torch.rand(n) if kind == "uniform" else (torch.arange(n) + 0.5) / n
    phases = (2 * shares - 1) * math.pi * spread
    Q = haar_unitary(n, dtype=torch.complex128)
    return ((Q * torch.polar(torch.ones_like(phases), phases)) @ Q.mH).to(torch.complex64)


def count_parameters(model: nn.Module, part: str = "") -> int:
    """Real parameters, of those with ``part`` in their names: a complex one counts two, a unitary W its n^2."""
    return sum(_count(p) for name, p in model.named_parameters() if part in name)


def _count(p: Tensor) -> int:
    return p.numel() * (2 if p.is_complex() and not is_unitary(p) else 1)


def matching_size(make: Callable[[int], nn.Module], parameters: int, smallest: int = 1) -> int:
    """The hidden size at which ``make(size)`` comes nearest to so many parameters; counts must grow with the size."""
    low, high = smallest, 2 * smallest
    while count_parameters(make(high)) < parameters:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count_parameters(make(middle)) < parameters else (low, middle)
    return min((low, high), key=lambda size: abs(count_parameters(make(size)) - parameters))
