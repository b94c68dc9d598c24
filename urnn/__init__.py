"""Recurrent networks with a unitary recurrence matrix: layers, parametrizations, and optimizers that stay on U(N)."""

from importlib.metadata import PackageNotFoundError, version

from urnn import capacity, linalg, ops, optim, parametrizations
from urnn._module import mark_unitary
from urnn.graphs import graphed_step
from urnn.nn import ComplexLinear, ComplexToReal, ModReLU, UnitaryRNN, UnitaryRNNCell
from urnn.parametrizations import PARAMETRIZATIONS, unitary
from urnn.pretrained import from_pretrained, save_pretrained
from urnn.state import check_unitary, load_state_dict

try:
    __version__ = version("urnn")
except PackageNotFoundError:  # a source tree that nobody installed
    __version__ = "0+source"

__all__ = [
    "PARAMETRIZATIONS",
    "ComplexLinear",
    "ComplexToReal",
    "ModReLU",
    "UnitaryRNN",
    "UnitaryRNNCell",
    "__version__",
    "capacity",
    "check_unitary",
    "from_pretrained",
    "graphed_step",
    "linalg",
    "load_state_dict",
    "mark_unitary",
    "ops",
    "optim",
    "parametrizations",
    "save_pretrained",
    "unitary",
]
