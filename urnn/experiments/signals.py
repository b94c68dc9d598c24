"""SIGTERM and SIGINT, remembered until a good place to end at."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Noted:
    """The last signal that came, if one did."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Remember it; a second SIGINT ends the process at once."""
        if number == signal.SIGINT and self.signal is signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)

    @property
    def status(self) -> int:
        """The usual exit status of a process that this signal ends: 130 for SIGINT, 143 for SIGTERM."""
        assert self.signal is not None
        return 128 + self.signal


@contextlib.contextmanager
def noted() -> Iterator[Noted]:
    """Remember signals that come meanwhile. Outside of the main thread, to which signals go, nothing changes."""
    found = Noted()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = {number: signal.signal(number, found.note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
