"""The folder of a run: its settings, its metrics, its checkpoints, its result."""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch

import urnn
from urnn.experiments import checkpoint, lock
from urnn.experiments.config import CHANGEABLE, Config, resolve
from urnn.experiments.files import explained, read_json, read_lines, write_json

_BEFORE = ("environment.json", "output.txt", lock.NAME)
"""What may lie in a folder before its config.json: a run that was killed as it began leaves it."""


class RunFolder:
    """``config.json``, ``environment.json``, ``metrics.jsonl``, ``checkpoint/``, ``events*`` and ``result.json``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: Any = None
        self._events: Any = None

    @classmethod
    def create(cls, path: Path, config: Config) -> "RunFolder":
        """A new folder, or the one that holds this very run already.

        Raises:
            ValueError: the folder holds another run.
            OSError: it cannot be written.
        """
        folder = cls(path)
        if not (path / "config.json").exists():
            if path.exists() and (not path.is_dir() or any(not _is_before(p.name) for p in path.iterdir())):
                raise ValueError(f"--out: expected a new or empty folder, got {path}, which holds something else")
            path.mkdir(parents=True, exist_ok=True)
            with folder.locked():
                if not (path / "config.json").exists():
                    write_json(path / "environment.json", environment())
                    write_json(path / "config.json", config.flat())
        if differing := folder.differs_in(config):
            name, theirs, ours = differing[0]
            cure = f"`--resume {path} --set {name}=VALUE --allow {name}` changes it. " if name in CHANGEABLE else ""
            raise ValueError(
                f"--out: expected a new folder or this run's, got {path}, which holds another run "
                f"({name} is {theirs!r} there and {ours!r} here). {cure}Choose another --out, or remove the folder."
            )
        folder._move(config)
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The folder of a run that exists."""
        if not (path / "config.json").exists():
            raise ValueError(f"--resume: expected the folder of a run, got {path}, which has no config.json")
        return cls(path)

    def config(self) -> Config:
        """Its settings."""
        try:
            return resolve(read_json(self.path / "config.json"))
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{self.path / 'config.json'}: expected the settings of a run, got {error}") from error

    def environment(self) -> dict[str, Any]:
        """Where it was made."""
        found: dict[str, Any] = read_json(self.path / "environment.json")
        return found

    def differs_in(self, config: Config) -> list[tuple[str, Any, Any]]:
        """Settings whose value is not that of ``config``: name, value here, value there.

        ``threads`` may differ, and so may where data lie.
        """
        mine, other = self.config().flat(), config.flat()
        names = [name for name in other if name not in {"threads", *config.places()}]
        return [(name, mine.get(name), other[name]) for name in names if mine.get(name) != other[name]]

    def _move(self, config: Config) -> None:
        """Take over where data lie now."""
        mine, other = self.config().flat(), config.flat()
        if any(mine[name] != other[name] for name in config.places()):
            with self.locked():
                write_json(self.path / "config.json", {**mine, **{name: other[name] for name in config.places()}})

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes out of the folder."""
        return lock.held(self.path)

    def change(self, settings: Mapping[str, Any], allowed: Collection[str]) -> None:
        """Go on with other settings from here on; ``changes.jsonl`` remembers the former ones.

        Raises:
            ValueError: one differs that is not among ``allowed``, or that cannot change within a run.
        """
        for name in allowed:
            if name not in CHANGEABLE:
                raise ValueError(f"--allow: expected one of {sorted(CHANGEABLE)}, got {name!r}")
        before = self.config()
        config = resolve({**before.flat(), **settings})
        differing = self.differs_in(config)
        for name, here, there in differing:
            if name not in allowed:
                cure = f" --allow {name} changes it from here on." if name in CHANGEABLE else ""
                raise ValueError(f"{name}: expected {here!r}, as {self.path} was begun with, got {there!r}.{cure}")
        if config == before:
            return
        with self.locked():
            (self.path / "result.json").unlink(missing_ok=True)
            last = self.last_checkpoint()
            row = {"after": int(last.stem) if last else 0, "changes": {name: values for name, *values in differing}}
            try:
                with (self.path / "changes.jsonl").open("a") as file:
                    file.write(json.dumps(row) + "\n")
            except OSError as error:
                raise explained(error, self.path / "changes.jsonl") from error
            write_json(self.path / "config.json", config.flat())

    def result(self) -> dict[str, Any] | None:
        """The result, if the run is done."""
        path = self.path / "result.json"
        return read_json(path) if path.exists() else None

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result: the run is done."""
        self._flush()
        write_json(self.path / "result.json", result)

    def load(self, say: Callable[[str], None]) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is whole, if there is one; what was logged after it is forgotten.

        Args:
            say: is told of damaged ones.
        """
        for part in (*self.path.glob(".*.part"), *(self.path / "checkpoint").glob(".*.part")):
            part.unlink(missing_ok=True)  # of a process that was killed as it wrote
        loaded = checkpoint.newest(self.path / "checkpoint", say)
        size = loaded[1].get("metrics_size") if loaded else 0
        if not isinstance(size, int) or size < 0:
            raise ValueError(f"{self.last_checkpoint()}: expected the size of the metrics in it, got {size!r}")
        there = self._metrics.stat().st_size if self._metrics.exists() else 0
        if there < size:
            raise ValueError(
                f"{self._metrics}: expected at least {size} bytes, as at the last checkpoint, got {there}. "
                f"Lines were lost; without {self.path / 'checkpoint'} the run begins again."
            )
        if self._metrics.exists():
            os.truncate(self._metrics, size)
        return loaded

    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint."""
        found = checkpoint.found(self.path / "checkpoint")
        return found[-1] if found else None

    def save(self, iteration: int, tensors: dict[str, torch.Tensor], meta: dict[str, Any], keep: int) -> None:
        """Write a checkpoint, and the metrics before it."""
        self._flush()
        size = self._metrics.stat().st_size
        checkpoint.save(self.path / "checkpoint", iteration, tensors, {**meta, "metrics_size": size}, keep)

    def start_log(self, iteration: int, tensorboard: bool) -> None:
        """Open the metrics, and TensorBoard events from this iteration on where tensorboard is installed."""
        try:
            self._file = self._metrics.open("a")
        except OSError as error:
            raise explained(error, self._metrics) from error
        if tensorboard and importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(str(self.path), purge_step=iteration)

    def log(self, row: dict[str, Any]) -> None:
        """Append a line to the metrics; events show the best member of an ensemble."""
        try:
            self._file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise explained(error, self._metrics) from error
        if self._events is not None:
            for name in row.keys() - {"iteration", "seconds"}:
                value = min(row[name]) if isinstance(row[name], list) else row[name]
                self._events.add_scalar(name, value, row["iteration"])

    def end_log(self) -> None:
        """Close what ``start_log`` opened. No error is raised: what a checkpoint needs was flushed before it."""
        file, events = self._file, self._events
        self._file = self._events = None
        for opened in (file, events):
            with contextlib.suppress(OSError):
                if opened is not None:
                    opened.close()

    def metrics(self) -> list[dict[str, Any]]:
        """All lines so far."""
        if self._file is not None:
            self._flush()
        return read_lines(self._metrics) if self._metrics.exists() else []

    @property
    def _metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def _flush(self) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise explained(error, self._metrics) from error


def _is_before(name: str) -> bool:
    return name in _BEFORE or (name.startswith(".") and name.endswith(".part"))


def environment() -> dict[str, Any]:
    """What a result may depend on beside the settings."""
    versions = {name: _version(name) for name in ("torch", "numpy", "numba", "safetensors")}
    return {
        "urnn": urnn.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **versions,
        "cuda": torch.version.cuda,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source tree, with a + where files were changed since; None outside one."""
    root = Path(urnn.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        words = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=12"]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
