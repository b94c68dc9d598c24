"""One process for each run folder: a lock that the kernel gives back when its holder ends, however that ends."""

import contextlib
import errno
import json
import os
import platform
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from urnn.experiments.files import explained

NAME = ".lock"
"""The file that is locked; it stays, and whether it is locked is what counts."""
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``.

    Raises:
        OSError: another process holds it, which is named; or the folder cannot be written.
    """
    if sys.platform == "win32":  # it has no flock
        yield
        return
    import fcntl

    path = folder / NAME
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise explained(error, path) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise OSError(
                    f"{folder}: expected a run that no other process works on, got one of {_holder(handle)}. "
                    "Wait for it, or end it; its lock ends with it."
                ) from error
            warnings.warn(f"{folder}: this file system has no locks; see that one process works here", stacklevel=3)
        holder = {"pid": os.getpid(), "host": platform.node(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(holder).encode(), 0)
        yield
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    """Who wrote into the file, in words."""
    try:
        found = json.loads(os.pread(handle, 1000, 0))
        return f"process {found['pid']} on {found['host']}, since {found['since']}"
    except (OSError, ValueError, TypeError, KeyError):
        return "a process that has not said which"
