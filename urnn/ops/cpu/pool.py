"""Threads of our own for compiled code that holds no GIL, made anew after a fork; and patience with its first use."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_size = 0
_ready: set[tuple[str, torch.dtype]] = set()


def threads() -> int:
    """How many threads to use: what PyTorch uses."""
    return torch.get_num_threads()


def run(task: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> None:
    """``task(*a)`` for each of ``arguments``, on as many threads; the caller takes the first itself."""
    if len(arguments) < 2 or threads() == 1:
        for a in arguments:
            task(*a)
        return
    futures = [_executor().submit(task, *a) for a in arguments[1:]]
    task(*arguments[0])
    for future in futures:
        future.result()


@contextmanager
def patience(name: str, dtype: torch.dtype) -> Iterator[None]:
    """Around the first use of compiled code: where it takes over a second, say what it is doing."""
    if (name, dtype) in _ready:
        yield
        return
    message = f"urnn: compiling the CPU recurrence ({name}, {dtype}); this happens once, the code is kept on disk\n"
    timer = threading.Timer(1.0, sys.stderr.write, (message,))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    _ready.add((name, dtype))


def _executor() -> ThreadPoolExecutor:
    global _pool, _size
    with _lock:
        if _pool is None or _size < threads():
            _size = threads()
            _pool = ThreadPoolExecutor(_size, thread_name_prefix="urnn")
        return _pool


def _forget() -> None:
    """A forked child has inherited the pool but none of its threads."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget)
