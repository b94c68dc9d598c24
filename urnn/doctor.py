"""``urnn doctor``: what is here, what can serve, and does it compute what it should."""

import importlib.metadata
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import urnn
from urnn.linalg import haar_unitary
from urnn.ops import BACKENDS, recurrence
from urnn.ops.backends import Problem
from urnn.optim import Adam

PACKAGES = ("torch", "numpy", "numba", "safetensors", "cuda-bindings", "tensorboard")
TOLERANCE = 1e-4
"""Of float32 results against float64, as a share of the largest entry; the recurrence is 20 steps long."""
STEPS = 20


class Row(NamedTuple):
    """One finding; ``ok`` is None where there is nothing to pass or fail."""

    section: str
    name: str
    text: str
    ok: bool | None = None


def examine() -> Iterator[Row]:
    """Versions, devices, backends, threads, and then a self-test of about five seconds.

    Code that is not compiled yet is compiled on the way, which can take longer.
    """
    yield from _versions()
    devices = [torch.device("cpu"), *(torch.device("cuda", i) for i in range(torch.cuda.device_count()))]
    yield from (_device(device) for device in devices)
    yield Row("threads", "PyTorch and the cpu backend", f"{torch.get_num_threads()} of {os.cpu_count()} cores")
    for device in devices:
        serving = []
        for name, backend in BACKENDS.items():
            reason = backend.why_not(Problem(device, torch.complex64, 128, "modrelu"))
            serving += [name] if reason is None else []
            yield Row(
                "backends", f"{name} on {device}", reason or "can serve" + ", and auto takes it" * (serving == [name])
            )
        for name in serving:
            yield _tested(f"{name} on {device}", partial(_recurrence, name, device))
        yield _tested(f"training on {device}", partial(_training, device))
        if "cpu" in serving:
            yield _tested("compiled code on disk", _cache)


def _versions() -> Iterator[Row]:
    yield Row("versions", "urnn", urnn.__version__)
    yield Row("versions", "python", f"{platform.python_version()} ({sys.executable})")
    yield Row("versions", "system", platform.platform())
    for name in PACKAGES:
        try:
            yield Row("versions", name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Row("versions", name, "not installed")


def _device(device: torch.device) -> Row:
    if device.type == "cpu":
        return Row("devices", "cpu", f"{platform.machine()}, {os.cpu_count()} cores")
    known = torch.cuda.get_device_properties(device)
    return Row(
        "devices", str(device), f"{known.name}, capability {known.major}.{known.minor}, CUDA {torch.version.cuda}"
    )


def _tested(name: str, test: Callable[[], str]) -> Row:
    """A row of the self-test. Whatever goes wrong is what the row is there to say."""
    start = time.perf_counter()
    try:
        text, ok = test(), True
    except Exception as error:
        text, ok = f"{type(error).__name__}: {error}", False
    return Row("self-test", name, f"{text} ({time.perf_counter() - start:.1f} s)", ok)


def _recurrence(backend: str, device: torch.device) -> str:
    """States and gradients in single precision against those of plain autograd in double precision."""
    source = torch.Generator().manual_seed(0)
    drawn = {
        "x": torch.randn(STEPS, 3, 5, dtype=torch.float64, generator=source),
        "weight_ih": torch.randn(8, 5, dtype=torch.complex128, generator=source),
        "weight_hh": haar_unitary(8, dtype=torch.complex128, generator=source),
        "bias": -0.1 * torch.rand(8, dtype=torch.float64, generator=source),
        "h_0": torch.randn(3, 8, dtype=torch.complex128, generator=source),
    }
    exact = _results({name: t.to(device) for name, t in drawn.items()}, "reference")
    single = {name: t.to(torch.complex64 if t.is_complex() else torch.float32).to(device) for name, t in drawn.items()}
    found = _results(single, backend)
    errors = {name: float((found[name] - exact[name]).abs().max() / exact[name].abs().max()) for name in exact}
    name, worst = max(errors.items(), key=lambda item: item[1] if item[1] == item[1] else float("inf"))
    if not worst <= TOLERANCE:
        raise ArithmeticError(
            f"{name}: expected an error of at most {TOLERANCE:.0e} in single precision, got {worst:.1e}"
        )
    return f"states and gradients are right to {worst:.0e}"


def _results(inputs: dict[str, Tensor], backend: str) -> dict[str, Tensor]:
    inputs = {name: t.clone().requires_grad_() for name, t in inputs.items()}
    x, V, W, b, h_0 = inputs.values()
    h, _ = recurrence(x, V, W, b, h_0, backend=backend)
    assert h is not None
    h.abs().square().sum().backward()
    return {"h": h.detach(), **{name: t.grad for name, t in inputs.items() if t.grad is not None}}


def _training(device: torch.device) -> str:
    """W after some steps of training is still unitary."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rnn = urnn.UnitaryRNN(5, 16).to(device)
        x = torch.randn(STEPS, 3, 5).to(device)
    optimizer = Adam(rnn.parameters(), lr=1e-2)
    before = rnn.weight_hh_l0.detach().clone()
    for _ in range(10):
        optimizer.zero_grad()
        rnn(x)[1].real.sum().backward()
        optimizer.step()
    defect = urnn.check_unitary(rnn)
    if torch.equal(before, rnn.weight_hh_l0):
        raise ArithmeticError("weight_hh_l0: expected another matrix after 10 steps, got the same")
    return f"max|W^H W - I| = {defect:.0e} after 10 steps"


def _cache() -> str:
    """The folder in which Numba keeps what it compiled can be written."""
    from urnn.ops.cpu import kernels

    folder = Path(kernels.forward.stats.cache_path)
    with tempfile.TemporaryFile(dir=folder):
        pass
    return f"{folder} can be written"
