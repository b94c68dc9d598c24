"""Files that are whole or not there: written beside their place, flushed to the disk, then renamed."""

import errno
import json
import os
from pathlib import Path
from typing import Any


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``. Whatever stops it, ``path`` holds either what it held before or all of this.

    Raises:
        OSError: with the path and the cure in its message; the half-written file is gone then.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise explained(error, path) from error


def explained(error: OSError, path: Path) -> OSError:
    """``error`` with what it means for the run."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        cure = f"Make room, then `urnn train --resume {run_folder(path)}` goes on from the last checkpoint"
    else:
        cure = "Nothing that was there before has changed"
    return OSError(error.errno, f"{path}: expected to write here, got: {error.strerror or error}. {cure}.")


def run_folder(path: Path) -> Path:
    """The folder of the run that ``path`` belongs to."""
    return path.parent.parent if path.parent.name == "checkpoint" else path.parent


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as JSON a person can read."""
    write_atomic(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON, or say which file is not JSON."""
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from error


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
