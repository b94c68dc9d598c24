"""What differs between a CPU and a GPU: clock, memory, precision, graphs, and the names for a row."""

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import torch

Pass = Callable[[], None]
SHORT = 0.05
"""Seconds below which a pass follows another of the same model, as it does in training, and is timed then."""


class Device(Protocol):
    """A device under test; ``precisions`` are the ways in which it can multiply float32."""

    name: str
    device: torch.device
    precisions: tuple[str, ...]

    def environment(self) -> dict[str, Any]: ...
    def time(self, step: Pass, expected: float) -> float: ...
    def peak(self, step: Pass) -> float | None: ...
    def precision(self, name: str) -> Any: ...
    def capture(self, step: Pass) -> Pass: ...


class Cpu:
    """The clock on the wall."""

    name, device = "cpu", torch.device("cpu")
    precisions: tuple[str, ...] = ("float32",)

    def environment(self) -> dict[str, Any]:
        return {"device": "cpu", "machine": _processor(), "threads": torch.get_num_threads()}

    def time(self, step: Pass, expected: float) -> float:
        """Seconds of a pass that is expected to take so many."""
        if expected < SHORT:
            step()
        start = perf_counter()
        step()
        return perf_counter() - start

    def peak(self, step: Pass) -> float | None:
        """Nothing counts PyTorch's memory here."""
        return None

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        yield

    def capture(self, step: Pass) -> Pass:
        raise NotImplementedError("a CPU has no CUDA graphs")


class Gpu:
    """Events around queued passes: the host runs ahead, as it does in training."""

    name, device = "gpu", torch.device("cuda", 0)
    precisions: tuple[str, ...] = ("float32", "tf32")

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise ValueError("device: expected a CUDA device for the benchmark on a GPU, got none")

    def environment(self) -> dict[str, Any]:
        return {
            "device": "gpu",
            "machine": torch.cuda.get_device_name(),
            "threads": torch.get_num_threads(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }

    def time(self, step: Pass, expected: float) -> float:
        """Seconds of a pass: the mean of as many as fill 20 ms, at most 10, behind one that keeps the device busy."""
        passes = min(10, ceil(0.02 / max(expected, 1e-6)))
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if expected < SHORT:
            step()
        start.record()
        for _ in range(passes):
            step()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / passes

    def peak(self, step: Pass) -> float | None:
        """MiB that a pass takes at most beside what lies there before it."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """Products of cuBLAS and of cuDNN's recurrences in float32 or TF32."""
        settings: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn.rnn)
        before = [setting.fp32_precision for setting in settings]
        for setting in settings:
            setting.fp32_precision = "tf32" if name == "tf32" else "ieee"
        try:
            yield
        finally:
            for setting, value in zip(settings, before, strict=True):
                setting.fp32_precision = value

    def capture(self, step: Pass) -> Pass:
        """A pass as one CUDA graph."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay


def installed(package: str) -> str:
    """The version of a package, or ``-``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


def _processor() -> str:
    """The processor's name where Linux tells it, else its architecture."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
