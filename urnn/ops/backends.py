"""The table of backends, and the choice of one.

A backend is a module with ``forward`` and ``backward`` of the signatures in ``explicit.py``. To add one: one file (or
folder) here and one line in ``BACKENDS``; the contract tests then run it.
"""

import importlib
import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from urnn._checks import check_choice


class Problem(NamedTuple):
    """What a backend may look at when it says whether it can serve."""

    device: torch.device
    dtype: torch.dtype
    n: int
    nonlinearity: str


@runtime_checkable
class Kernels(Protocol):
    """The two functions of a backend."""

    @property
    def forward(self) -> Callable[..., Tensor]: ...
    @property
    def backward(self) -> Callable[..., tuple[Tensor | None, Tensor | None, Tensor, Tensor, Tensor]]: ...


@dataclass(frozen=True)
class Backend:
    """``why_not(problem)`` is None or the reason why the backend cannot serve; ``module`` is imported on first use.

    ``device`` names the devices for which users count on it: where it cannot serve these, ``auto`` says so once.
    """

    module: str
    why_not: Callable[[Problem], str | None]
    device: str | None = None

    def load(self) -> Kernels:
        """Import the kernels. An error in there is never swallowed."""
        return cast(Kernels, importlib.import_module(self.module))


@cache
def _is_installed(module: str) -> bool:
    parent, _, child = module.rpartition(".")
    return (not parent or _is_installed(parent)) and importlib.util.find_spec(module) is not None


def _cpu_limits(problem: Problem) -> str | None:
    if problem.device.type != "cpu":
        return f"it computes on the CPU, and the tensors are on {problem.device}"
    if problem.nonlinearity == "modrelu_epsilon":
        return "nonlinearity='modrelu_epsilon' has no compiled form; modrelu and hard have"
    if not _is_installed("numba"):
        return "numba is not installed. pip install numba adds it"
    return None


def _gpu_limits(problem: Problem) -> str | None:
    if problem.device.type != "cuda":
        return f"it computes on an NVIDIA GPU, and the tensors are on {problem.device}"
    if torch.version.hip is not None:
        return "it needs an NVIDIA GPU, and this is a ROCm build of PyTorch"
    if problem.dtype != torch.complex64:
        return f"it computes in single precision, and W is {problem.dtype}"
    if problem.nonlinearity == "modrelu_epsilon":
        return "nonlinearity='modrelu_epsilon' has no compiled form; modrelu and hard have"
    if problem.n > 1024:
        return f"it serves hidden sizes up to 1024, not {problem.n}"
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA device here"
    if torch.cuda.get_device_capability(problem.device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 (Ampere) or later"
    if not _is_installed("cuda.bindings"):
        return "cuda-bindings is not installed. pip install cuda-bindings adds it"
    from urnn.ops.gpu.launch import limits  # only now is it sure that this can be imported

    return limits(problem.n, problem.device)


BACKENDS: dict[str, Backend] = {  # tried in this order by backend="auto"
    "gpu": Backend("urnn.ops.gpu", _gpu_limits, "cuda"),
    "cpu": Backend("urnn.ops.cpu", _cpu_limits),
    "explicit": Backend("urnn.ops.explicit", lambda _: None),
}
BACKEND_NAMES = ("auto", *BACKENDS, "reference")
"""``reference`` is plain autograd and no kernel; it is taken by name only."""


def check_backend(name: str, backend: object) -> str:
    """``backend`` must be ``auto``, ``reference`` or in the table."""
    return check_choice(name, backend, BACKEND_NAMES)


def choose(backend: str, problem: Problem) -> Kernels:
    """The kernels of ``backend``, or of the first that can serve; raises the reason where the named one cannot."""
    if backend != "auto":
        if reason := BACKENDS[backend].why_not(problem):
            raise ValueError(f"backend: {backend!r} cannot serve here: {reason}. backend='auto' takes one that can.")
        return BACKENDS[backend].load()
    for name, row in BACKENDS.items():
        if (reason := row.why_not(problem)) is None:
            return row.load()
        if row.device == problem.device.type:
            _warn_once(f"backend: 'auto' passes over {name!r}, which is fast: {reason}")
    raise AssertionError("unreachable: 'explicit' can always serve")


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, stacklevel=2)
