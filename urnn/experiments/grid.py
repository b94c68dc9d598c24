"""Grids: many runs, several at once, each in a process of its own.

A cell is a run folder that was made beforehand, and its worker is ``urnn train --resume FOLDER``. So a cell that is
done is skipped, one that was interrupted goes on, and one that fails takes no other with it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from urnn._checks import check_int
from urnn.experiments import presets
from urnn.experiments.config import Config, from_text
from urnn.experiments.folder import RunFolder
from urnn.experiments.settings import unknown
from urnn.experiments.signals import Noted, noted
from urnn.experiments.speech import scoring
from urnn.experiments.train import prepare

OUTPUT = "output.txt"
"""What a worker prints goes here, in the folder of its run."""
POLL = 0.1


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    preset: str
    config: Config
    path: Path

    @property
    def name(self) -> str:
        """As it is called in messages."""
        return f"{self.preset}, seed {self.config.seed}"


def cells_of(
    grid: str, recipe: str, runs: Path, jobs: int = 1, device: str = "cpu", pairs: Sequence[str] = ()
) -> list[Cell]:
    """The runs of a grid; ``pairs`` are settings KEY=VALUE for all of them."""
    check_grid(grid)
    threads = max(1, (os.cpu_count() or 1) // check_int("--jobs", jobs, 1))
    cells = []
    for preset in presets.GRIDS[grid]["cells"]:
        own = {"device": device, "threads": threads, **from_text(presets.PRESETS[preset]["task"], list(pairs))}
        for seed in range(presets.seeds_of(grid, recipe, preset)):
            config = prepare(presets.configure(recipe, preset, own={"seed": seed, **own}))
            cells.append(Cell(preset, config, runs / recipe / preset.replace("/", "-") / f"seed-{config.seed}"))
    return list({cell.path: cell for cell in cells}.values())  # a seed that was set makes all seeds one


def check_grid(name: str) -> None:
    """``name`` must be a grid."""
    if name not in presets.GRIDS:
        raise unknown("target", name, presets.GRIDS)


def cells_in(grid: str, recipe: str, runs: Path) -> list[Cell]:
    """The runs of a grid that have a folder, with the settings that are in it, wherever they were made."""
    check_grid(grid)
    return [
        Cell(preset, RunFolder.open(path.parent).config(), path.parent)
        for preset in presets.GRIDS[grid]["cells"]
        for path in sorted((runs / recipe / preset.replace("/", "-")).glob("seed-*/config.json"))
    ]


def run_grid(cells: Sequence[Cell], jobs: int, console: Console) -> dict[str, str]:
    """Run what is not done yet, ``jobs`` at a time; returns the reasons of the cells that failed."""
    failed: dict[str, str] = {}
    waiting: list[Cell] = []
    for cell in cells:
        try:
            done = RunFolder.create(cell.path, cell.config).result() is not None
        except (ValueError, OSError) as error:
            failed[cell.name] = str(error)
            continue
        if done:
            _say(console, f"done before: {cell.name}")
        else:
            waiting.append(cell)
    with noted() as signals:
        failed |= _work_off(waiting, jobs, console, signals)
    for name, reason in failed.items():
        _say(console, f"failed: {name}: {reason}")
    if signals.signal:
        _say(console, f"{signals.signal.name}: the runs have saved; the same command goes on.")
        raise SystemExit(signals.status)
    return failed


def _work_off(waiting: list[Cell], jobs: int, console: Console, signals: Noted) -> dict[str, str]:
    """Run cells until all are done or a signal comes; then the workers are told to save and end, and waited for."""
    failed: dict[str, str] = {}
    running: dict[subprocess.Popen[bytes], tuple[Cell, float]] = {}
    total, finished = len(waiting), 0
    try:
        while (waiting or running) and not signals.signal:
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                running[_start(cell)] = cell, time.perf_counter()
                _say(console, f"started: {cell.name} in {cell.path}")
            time.sleep(POLL)
            for process in [p for p in running if p.poll() is not None]:
                cell, started = running.pop(process)
                finished += 1
                if process.returncode == 0 and (cell.path / "result.json").exists():
                    what = "done"
                else:
                    failed[cell.name] = _reason(cell.path, process.returncode)
                    what = "FAILED"
                _say(console, f"{what}: {cell.name}, {time.perf_counter() - started:.0f} s ({finished} of {total})")
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
    return failed


def gather(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Settings, result, decimated curve and environment of each cell that is done."""
    rows = []
    for cell in cells:
        if not (cell.path / "config.json").exists():
            continue
        folder = RunFolder.open(cell.path)
        if (result := folder.result()) is None or folder.differs_in(cell.config):
            continue
        losses = [row for row in folder.metrics() if "loss" in row]
        rows.append(
            {
                "preset": cell.preset,
                "seed": cell.config.seed,
                "config": _without_places(folder.config()),
                "result": _rounded(scoring.with_scores(cell.path, result) if cell.config.task == "speech" else result),
                "curve": decimated([row["iteration"] for row in losses], [row["loss"] for row in losses]),
                "environment": folder.environment(),
            }
        )
    return rows


def _without_places(config: Config) -> dict[str, Any]:
    """Settings for others to read, to whom a folder of this machine means nothing."""
    return {name: value for name, value in config.flat().items() if name not in config.places()}


def decimated(iterations: list[int], losses: list[float], points: int = 100) -> dict[str, list[Any]]:
    """At most so many points of a curve, each the mean of its part."""
    size = -(-len(losses) // points) if losses else 1
    starts = range(0, len(losses), size)
    return {
        "iteration": [iterations[min(i + size, len(losses)) - 1] for i in starts],
        "loss": [float(f"{sum(losses[i : i + size]) / len(losses[i : i + size]):.4g}") for i in starts],
    }


def _start(cell: Cell) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "urnn", "train", "--resume", str(cell.path)]
    threads = {name: str(cell.config.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    with (cell.path / OUTPUT).open("ab") as output:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **threads}
        )


def _reason(path: Path, code: int) -> str:
    """The last words that a worker printed, or the signal that ended it."""
    lines = [text for text in (path / OUTPUT).read_text(errors="replace").splitlines() if any(map(str.isalnum, text))]
    if code < 0:
        return f"ended by signal {-code}; the same command goes on from its last checkpoint"
    return f"{lines[-1] if lines else 'nothing printed'} (exit status {code}, all of it in {path / OUTPUT})"


def _rounded(value: Any) -> Any:
    """Numbers to four digits, as they are shown."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
