"""How much memory a pass takes, in units of the states it computes: T B N complex numbers.

On the CPU every allocation of PyTorch's own allocator counts, those inside operators too; what the compiled kernels
set aside for themselves does not: under 2 MB in each thread, whatever T. On a CUDA device the caching allocator's own
figures are taken, in which those count too.
"""

import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from urnn import UnitaryRNN
from urnn.bench.device import SHORT, Cpu, Gpu
from urnn.bench.registry import Shape
from urnn.bench.run import environment
from urnn.bench.tables import Row

Result = TypeVar("Result")
LARGE = Shape("copy, T = 2000, large batch", 2020, 128, 128, 10)
TIMED = (
    Shape("copy, T = 2000", 2020, 20, 128, 10),
    Shape("copy, T = 1000", 1020, 20, 128, 10),
    Shape("pixel by pixel, small", 784, 128, 16, 1),
    Shape("system identification", 150, 50, 16, 16),
)
MODES: dict[str, dict[str, Any]] = {
    "states of all steps": {},
    "last state": {"return_sequence": False},
    "last state, checkpoint": {"return_sequence": False, "checkpoint": "sqrt"},
}


def watch(work: Callable[[], Result], device: str = "cpu") -> tuple[Result, int, int]:
    """Result of ``work``, the bytes by which memory has grown after it, and by how many it had at most."""
    gc.collect()
    if device != "cpu":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        result = work()
        torch.cuda.synchronize(device)
        return (
            result,
            torch.cuda.memory_allocated(device) - before,
            torch.cuda.max_memory_allocated(device) - before,
        )
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        result = work()
    grown = peak = 0
    assert profile.profiler is not None
    events = profile.profiler.kineto_results.events()
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        grown += event.nbytes()
        peak = max(peak, grown)
    return result, grown, peak


def measure(shape: Shape, device: str = "cpu", input_gradient: bool = True, **options: Any) -> Row:
    """Memory of a forward and a backward pass of ``UnitaryRNN(M, N, **options)``, in states.

    ``kept`` stands between the two passes, the result counted; ``forward`` and ``backward`` are the peaks, what is kept
    and the incoming gradient counted. The input and the parameters are there before and count as nothing.

    >>> row = measure(Shape("small", 256, 16, 16, 1))
    >>> row["kept"] < 1.1, row["backward"] < 3.2
    (True, True)
    """
    layer, x = _problem(shape, device, input_gradient, **options)
    _backward(_forward(layer, x))  # compiles, and fills caches that stay
    layer.zero_grad()
    x.grad = None
    out, kept, forward = watch(lambda: _forward(layer, x), device)
    _, _, backward = watch(lambda: _backward(out), device)
    state = shape.T * shape.B * shape.N * 8
    return {
        **{name: getattr(shape, name) for name in ("T", "B", "N", "M")},
        **options,
        "input_gradient": input_gradient,
        "state_bytes": state,
        "kept": round(kept / state, 4),
        "forward": round(forward / state, 4),
        "backward": round((kept + backward) / state, 4),
    }


def time_ratio(shape: Shape, repetitions: int, device: str = "cpu") -> Row:
    """Forward and backward of all modes in turn, medians; the ratio is with a checkpoint to without."""
    modes = {name: _problem(shape, device, **options) for name, options in MODES.items()}
    times: dict[str, list[float]] = {name: [] for name in modes}
    for _ in range(repetitions):
        for name, problem in modes.items():
            if not times[name] or times[name][-1] < SHORT:
                _once(*problem, device)  # compiles, or warms the caches that the mode before it has left to itself
            times[name].append(_once(*problem, device))
    median = {name: statistics.median(values) for name, values in times.items()}
    return {
        "shape": shape.name,
        **{name: getattr(shape, name) for name in ("T", "B", "N", "M")},
        "repetitions": repetitions,
        **{f"ms, {name}": round(1e3 * value, 3) for name, value in median.items()},
        "ratio": round(median["last state, checkpoint"] / median["last state"], 4),
    }


def record(path: Path, device: str = "cpu", repetitions: int = 25, source: str | None = None) -> None:
    """Measure memory and time of all modes and write them to ``path``; about a minute on a CPU."""
    rows = [
        {"mode": name, **measure(LARGE, device, input_gradient, **options)}
        for name, options in MODES.items()
        for input_gradient in (True, False)
    ]
    result = {**environment(Cpu() if device == "cpu" else Gpu(), source), "memory": rows}
    result["time"] = [time_ratio(shape, repetitions, device) for shape in TIMED]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def _problem(shape: Shape, device: str, input_gradient: bool = True, **options: Any) -> tuple[UnitaryRNN, Tensor]:
    x = torch.randn(shape.T, shape.B, shape.M, device=device, requires_grad=input_gradient)
    return UnitaryRNN(shape.M, shape.N, device=device, **options), x


def _once(layer: UnitaryRNN, x: Tensor, device: str) -> float:
    """Seconds of one forward and backward pass."""
    layer.zero_grad()
    x.grad = None
    start = time.perf_counter()
    _backward(_forward(layer, x))
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _forward(layer: UnitaryRNN, x: Tensor) -> Tensor:
    """The states of all steps, or the last where they are not returned."""
    h, h_n = layer(x)
    return h_n if h is None else h


def _backward(out: Tensor) -> None:
    out.backward(torch.ones_like(out))
