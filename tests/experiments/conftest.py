"""Runs of seconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from urnn.experiments.config import Config
from urnn.experiments.folder import RunFolder
from urnn.experiments.presets import configure
from urnn.experiments.speech import features
from urnn.experiments.speech.features import Features
from urnn.experiments.speech.stft import Frames
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
    "speech": {"hidden": 5, "batch_size": 3, "max_iterations": 12, "eval_every": 4},
    "mnist": {
        "checksums": False,
        "train_images": 40,
        "validation_images": 10,
        "test_images": 12,
        "epochs": 0,
        "hidden": 6,
        "batch_size": 5,
        "max_iterations": 12,
        "eval_every": 4,
    },
}
"""Settings that make a task tiny."""
SMALL = {"log_every": 2, "checkpoint_every": 4, "threads": 1, "tensorboard": False}


@pytest.fixture(autouse=True)
def _toy_files(toy_mnist: Path, speech_features: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TINY["mnist"], "data", str(toy_mnist))
    monkeypatch.setitem(TINY["speech"], "data", str(speech_features))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in ("seconds", "seconds_per_iteration")}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


@pytest.fixture(scope="session")
def speech_features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of features: twelve utterances to train on, three of each other split, of 5 to 22 frames."""
    source = torch.Generator().manual_seed(0)
    lengths = torch.randint(5, 23, (18,), generator=source)
    values = -30 + 8 * torch.randn(int(lengths.sum()), Frames().bins, generator=source)
    splits = ("train",) * 12 + ("valid",) * 3 + ("eval",) * 3
    names = tuple(f"{number:02d}" for number in range(18))
    path = tmp_path_factory.mktemp("speech") / "tiny.safetensors"
    features.write(path, Features(Frames(), values, lengths, names, names, splits, (), ()))
    return path


@pytest.fixture
def tiny(speech_features: Path) -> Callable[..., Config]:
    """Settings of a tiny run."""

    def of(task: str, recipe: str = "best", **own: Any) -> Config:
        return prepare(configure(recipe, task=task, own={**TINY[task], **SMALL, **own}))

    return of


@pytest.fixture
def timeless() -> Callable[[Any], Any]:
    """A result or metrics without what the clock says."""
    return _timeless


@pytest.fixture
def quiet() -> Console:
    return Console(quiet=True)


@pytest.fixture
def run(tmp_path: Path, quiet: Console, tiny: Callable[..., Config]) -> Callable[..., tuple[RunFolder, dict[str, Any]]]:
    """Train a tiny run; returns its folder and its result."""

    def train_tiny(task: str, name: str = "run", **own: Any) -> tuple[RunFolder, dict[str, Any]]:
        folder = RunFolder.create(tmp_path / name, tiny(task, **own))
        return folder, train(folder, quiet)

    return train_tiny
