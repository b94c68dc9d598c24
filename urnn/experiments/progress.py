"""What a run says while it goes on: a bar on a terminal, a line of JSON now and then elsewhere."""

import json
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

QUIET = 10.0
"""Seconds between two lines where there is no terminal."""


class Reporter:
    """Iteration, loss, baseline, iterations per second, time left."""

    def __init__(self, console: Console, name: str, iteration: int, iterations: int, baseline: float | None) -> None:
        self.console, self.name, self.iterations, self.baseline = console, name, iterations, baseline
        self._first, self._start, self._said = iteration, time.perf_counter(), time.perf_counter()
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
            self._bar = Progress(*columns, console=console)
            self._task = self._bar.add_task(name, total=iterations, completed=iteration)

    def __enter__(self) -> "Reporter":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, iteration: int, loss: float) -> None:
        """Say where the run is."""
        now = time.perf_counter()
        speed = (iteration - self._first) / max(now - self._start, 1e-9)
        if self._bar is not None:
            under = "" if self.baseline is None else f" (baseline {self.baseline:.4f})"
            self._bar.update(
                self._task,
                completed=iteration,
                description=f"{self.name}  loss {loss:.4g}{under}  {speed:.1f} it/s",
            )
        elif now - self._said >= QUIET:
            self._said = now
            left = (self.iterations - iteration) / speed if speed else None
            row = {"iteration": iteration, "of": self.iterations, "loss": loss, "baseline": self.baseline}
            self.say({**row, "per_second": round(speed, 2), "seconds_left": left and round(left)})

    def say(self, row: dict[str, Any]) -> None:
        """One line of JSON."""
        self.console.print(json.dumps(row), markup=False, highlight=False, soft_wrap=True)
