"""Timing: forward and backward of whole layers, all gradients, models in turn so that noise hits all alike."""

import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from urnn.bench.device import Device, Pass, installed
from urnn.bench.registry import BASE, Model, Shape, models
from urnn.bench.tables import ALL, Row

VERSIONS = ("torch", "numba", "triton", "complextorch")
FAILED = "failed: "
"""How the note of a model that raised an error begins."""
PART = 8
"""A pass over one step in so many tells how long a whole one will take."""


@dataclass(frozen=True)
class Effort:
    """At most so many ``repetitions`` and ``seconds`` for a model at a shape; a pass beyond ``limit`` is left out."""

    repetitions: int
    seconds: float
    limit: float
    compiles: bool = True


EFFORTS = {"cpu": Effort(15, 8.0, 10.0), "gpu": Effort(15, 1.5, 5.0)}
QUICK = Effort(3, 0.5, 1.0, compiles=False)


@dataclass
class Candidate:
    """A model that is ready, and its times in seconds."""

    name: str
    step: Pass
    expected: float
    row: Row
    times: list[float] = field(default_factory=list)


def measure(
    shapes: Iterable[Shape],
    device: Device,
    effort: Effort,
    source: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[list[Row]]:
    """The rows of each shape as soon as they are there.

    A row holds 20, 50 and 80 % quantiles in ms and the ratio of the median to that of ``BASE``, or a note that says why
    it holds none.

    Args:
        shapes: what to measure, one after the other.
        device: where.
        effort: how often.
        source: the commit for the rows; None asks git.
        say: is told what is going on.
    """
    here = environment(device, source)
    for shape in shapes:
        sizes = {key: getattr(shape, key) for key in ("series", "T", "B", "N", "M")}
        common = here | sizes | {"shape": shape.name, "dtype": "float32"}
        if device.name not in shape.devices:
            yield [common | {"model": ALL, "note": f"left out on the {device.name.upper()}: it takes too long there"}]
            continue
        rows = []
        for precision in device.precisions[:1] if shape.series else device.precisions:
            with device.precision(precision):
                rows += _measure(shape, device, effort, common | {"precision": precision}, say)
        yield rows


def _measure(shape: Shape, device: Device, effort: Effort, common: Row, say: Callable[[str], None]) -> list[Row]:
    """The rows of a shape in one precision."""
    x = torch.randn(shape.T, shape.B, shape.M, generator=torch.Generator().manual_seed(0)).to(device.device)
    cotangents: dict[Any, Tensor] = {}
    first = common["precision"] == device.precisions[0]
    candidates, rows = [], []
    for name, model in models(shape, device.name).items():
        if model.loop and not first:
            continue
        row = common | {"model": name, "note": model.note}
        rows.append(row)
        reason = model.why_not(shape, device.name)
        if reason is None and model.compiles and not effort.compiles:
            reason = "left out of a quick run"
        if reason is not None:
            row["note"] = reason
            continue
        say(f"{shape.name}: preparing {name}")
        try:
            candidate = _prepare(model, shape, x, cotangents, device, effort, row)
        except Exception as error:  # a row of its own: the others are worth their time
            row["note"] = FAILED + f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        if candidate is not None:
            candidates.append(candidate)
    for repetition in range(effort.repetitions):
        say(f"{shape.name}: {len(candidates)} models, repetition {repetition + 1} of {effort.repetitions}")
        for candidate in candidates:
            if sum(candidate.times) < effort.seconds:
                candidate.times.append(device.time(candidate.step, candidate.expected))
    medians = {c.name: _quantile(c.times, 0.5) for c in candidates}
    for c in candidates:
        c.row |= {f"ms_{q}": round(1e3 * _quantile(c.times, q / 100), 4) for q in (20, 50, 80)}
        c.row["repetitions"] = len(c.times)
        if base := medians.get(BASE[device.name]):
            c.row["ratio"] = round(medians[c.name] / base, 4)
    return [row for row in rows if first or "ms_50" in row or row["note"].startswith(FAILED)]  # reasons: once


def _prepare(
    model: Model, shape: Shape, x: Tensor, cotangents: dict[Any, Tensor], device: Device, effort: Effort, row: Row
) -> Candidate | None:
    """A model that has run twice, or None where a pass would take too long."""
    layer = model.make(shape).to(device.device)
    expected = _foretell(layer, x, cotangents, device)
    if expected > effort.limit:
        row["note"] = f"left out: a pass would take about {expected:.0f} s"
        return None
    step = TrainingPass(layer, x, cotangents)
    step()
    if model.graph:
        return Candidate(row["model"], device.capture(step), expected, row)
    step.clear()
    if (peak := device.peak(step)) is not None:
        row["peak_mib"] = round(peak, 1)
    return Candidate(row["model"], step, expected, row)


def _foretell(layer: nn.Module, x: Tensor, cotangents: dict[Any, Tensor], device: Device) -> float:
    """Seconds that a pass will take: on a line through those of one step and of a part of the steps."""
    part = min(len(x), max(2, len(x) // PART))
    seconds = []
    for steps in (part, 1):
        probe = TrainingPass(layer, x[:steps], cotangents)
        probe()  # what is compiled is compiled now
        seconds.append(device.time(probe, 1.0))
    whole, one = seconds
    return one + max(whole - one, 0.0) * (len(x) - 1) / max(part - 1, 1)


class TrainingPass:
    """Forward and backward with the gradients of x and of all parameters, as one call."""

    def __init__(self, layer: nn.Module, x: Tensor, cotangents: dict[Any, Tensor]) -> None:
        self.layer, self.x, self.cotangents = layer, x.detach().requires_grad_(), cotangents

    def clear(self) -> None:
        """Drop all gradients."""
        self.x.grad = None
        self.layer.zero_grad()

    def __call__(self) -> None:
        self.clear()
        h = self.layer(self.x)[0]
        key = h.shape, h.dtype
        if key not in self.cotangents:
            self.cotangents[key] = torch.randn_like(h)
        h.backward(self.cotangents[key])


def _quantile(values: list[float], q: float) -> float:
    return float(torch.tensor(values, dtype=torch.float64).quantile(q))


def environment(device: Device, source: str | None = None) -> Row:
    """What a figure depends on beside the code; ``source`` is the commit, where git is not to be asked."""
    versions = {name: installed(name) for name in VERSIONS} | {"torch": torch.__version__}
    return device.environment() | versions | {"commit": source or commit(), "date": time.strftime("%Y-%m-%d")}


def commit() -> str:
    """The commit of the source tree, with ``-dirty`` where the package differs from it; ``-`` where there is none."""
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return "-"
    changed = _git("diff", "--quiet", "HEAD", "--", "..") is None
    return f"{_git('rev-parse', '--short', 'HEAD')}{'-dirty' * changed}"


def _git(*words: str) -> str | None:
    """What git answers in this folder, None for a failure."""
    done = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout.strip()
