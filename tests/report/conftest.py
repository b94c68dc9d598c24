"""A few runs of seconds, among them one with a hostile name and one with recordings."""

import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from urnn.experiments.folder import RunFolder
from urnn.experiments.presets import configure
from urnn.experiments.train import prepare, train

HOSTILE = 'a<", "script><script>window.hacked=1<", "script><img src=x onerror=window.hacked=1>&quot;\'"'
"""Three nested folders: the path between them closes a script element and opens another."""
SMALL = {
    "batch_size": 3,
    "max_iterations": 12,
    "log_every": 2,
    "checkpoint_every": 4,
    "threads": 1,
    "tensorboard": False,
}
TASKS: dict[str, dict[str, Any]] = {
    "copy": {"time_steps": 4, "symbols": 2, "hidden": 6, "test_sequences": 5},
    "sysid": {"time_steps": 6, "hidden": 3, "starts": 2, "train_sequences": 20, "validation_sequences": 5}
    | {"test_sequences": 5, "eval_every": 4},
}


def _train(path: Path, task: str, **own: Any) -> RunFolder:
    folder = RunFolder.create(path, prepare(configure(task=task, own={**TASKS[task], **SMALL, **own})))
    train(folder, Console(quiet=True))
    return folder


@pytest.fixture
def small_run() -> Callable[..., RunFolder]:
    """Train a tiny run in a folder."""
    return _train


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs."""
    root = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        _train(root / f"copy-{seed}", "copy", seed=seed)
    _train(root / "lstm", "copy", model="lstm")
    _train(root / "sysid", "sysid")
    folder = _train(root.joinpath(*HOSTILE.split('", "')), "copy", seed=2)
    with wave.open(str(folder.path / "truth.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(16000))
    Image.new("RGB", (40, 20), "purple").save(folder.path / "truth.png")
    return root


@pytest.fixture(scope="session")
def hostile() -> str:
    """The name of the hostile run."""
    return "/".join(HOSTILE.split('", "'))
