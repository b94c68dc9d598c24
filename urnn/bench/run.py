"""Timing: forward and backward of whole layers, all gradients, models in turn so that noise hits all alike."""

import csv
import platform
import subprocess
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor, nn

from urnn.bench.registry import BASE, MODELS, Shape

Row = dict[str, Any]
SLOW = 20.0
"""Seconds after which a model gets no further repetition."""
SHORT = 0.05
"""Seconds below which a pass follows another of the same model, as it does in training, and is timed then."""


def measure(shapes: Iterable[Shape], repetitions: int) -> Iterator[Row]:
    """A row for each shape and model: 20, 50 and 80 % quantiles in ms, and the ratio of the median to ``BASE``'s."""
    for shape in shapes:
        x = torch.randn(shape.T, shape.B, shape.M, requires_grad=True)
        models = {name: make(shape) for name, make in MODELS.items()}
        for model in models.values():
            _once(model, x)
        times: dict[str, list[float]] = {name: [] for name in models}
        for _ in range(repetitions):
            for name, model in models.items():
                if sum(times[name]) < SLOW:
                    if not times[name] or times[name][-1] < SHORT:
                        _once(model, x)  # the model before it has left the caches to itself
                    times[name].append(_once(model, x))
        medians = {name: _quantile(values, 0.5) for name, values in times.items()}
        for name, values in times.items():
            yield {
                **_environment(),
                "shape": shape.name,
                **{key: getattr(shape, key) for key in ("T", "B", "N", "M")},
                "model": name,
                "dtype": "float32",
                "repetitions": len(values),
                **{f"ms_{q}": round(1e3 * _quantile(values, q / 100), 4) for q in (20, 50, 80)},
                "ratio": round(medians[name] / medians[BASE], 4),
            }


def table(rows: Iterable[Row]) -> Table:
    """Shape, model, median and ratio."""
    view = Table(title="Forward and backward, all gradients", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("shape", "model", "ms", f"/ {BASE}"):
        view.add_column(name, justify="left" if name in ("shape", "model") else "right")
    for row in rows:
        size = f"{row['shape']} ({row['T']}, {row['B']}, {row['N']})"
        view.add_row(size, row["model"], f"{row['ms_50']:.2f}", f"{row['ratio']:.2f}")
    return view


def write_csv(path: Path, rows: list[Row]) -> None:
    """One line for each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def _once(model: nn.Module, x: Tensor) -> float:
    """Seconds of one forward and backward pass."""
    model.zero_grad()
    x.grad = None
    start = time.perf_counter()
    h = model(x)[0]
    h.backward(torch.ones_like(h))
    return time.perf_counter() - start


def _quantile(values: list[float], q: float) -> float:
    return float(torch.tensor(values, dtype=torch.float64).quantile(q))


def _environment() -> Row:
    return {
        "device": "cpu",
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "numba": _version("numba"),
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def _commit() -> str:
    """The commit of a source tree, or ``-``."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "-"
