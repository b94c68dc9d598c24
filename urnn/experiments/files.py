"""Files that are whole or not there: written beside their place, flushed to the disk, then renamed."""

import errno
import json
from pathlib import Path
from typing import Any

from urnn import _storage

LIMIT = 2**28
"""No file of JSON is larger, in bytes."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``. Whatever stops it, ``path`` holds either what it held before or all of this.

    Raises:
        OSError: with the path and the cure in its message; the half-written file is gone then.
    """
    try:
        _storage.write_atomic(path, content)
    except OSError as error:
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
        return _storage.parse_json(_storage.read_text(path, LIMIT))
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON objects, one in each line."""
    try:
        lines = _storage.read_text(path, LIMIT).splitlines()
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = _storage.parse_json(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: expected JSON, got {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected a JSON object, got {line[:40]!r}")
        rows.append(row)
    return rows
