"""The layers: ``UnitaryRNN`` and what goes around it."""

from urnn.nn.cell import UnitaryRNNCell
from urnn.nn.linear import ComplexLinear, ComplexToReal
from urnn.nn.modrelu import ModReLU
from urnn.nn.rnn import UnitaryRNN

__all__ = ["ComplexLinear", "ComplexToReal", "ModReLU", "UnitaryRNN", "UnitaryRNNCell"]
