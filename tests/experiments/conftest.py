"""Runs of seconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from urnn.experiments.config import Config
from urnn.experiments.folder import RunFolder
from urnn.experiments.presets import configure
from urnn.experiments.train import prepare, train

TINY: dict[str, dict[str, Any]] = {
    "copy": {"time_steps": 4, "symbols": 2, "hidden": 6, "batch_size": 3, "test_sequences": 5, "max_iterations": 12},
    "sysid": {
        "time_steps": 6,
        "hidden": 3,
        "starts": 2,
        "batch_size": 4,
        "max_iterations": 12,
        "eval_every": 4,
        "train_sequences": 20,
        "validation_sequences": 5,
        "test_sequences": 5,
    },
}
"""Settings that make a task tiny."""
SMALL = {"log_every": 2, "checkpoint_every": 4, "threads": 1, "tensorboard": False}


def _tiny(task: str, recipe: str = "best", **own: Any) -> Config:
    return prepare(configure(recipe, task=task, own={**TINY[task], **SMALL, **own}))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in ("seconds", "seconds_per_iteration")}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


@pytest.fixture
def tiny() -> Callable[..., Config]:
    """Settings of a tiny run."""
    return _tiny


@pytest.fixture
def timeless() -> Callable[[Any], Any]:
    """A result or metrics without what the clock says."""
    return _timeless


@pytest.fixture
def quiet() -> Console:
    return Console(quiet=True)


@pytest.fixture
def run(tmp_path: Path, quiet: Console) -> Callable[..., tuple[RunFolder, dict[str, Any]]]:
    """Train a tiny run; returns its folder and its result."""

    def train_tiny(task: str, name: str = "run", **own: Any) -> tuple[RunFolder, dict[str, Any]]:
        folder = RunFolder.create(tmp_path / name, _tiny(task, **own))
        return folder, train(folder, quiet)

    return train_tiny
