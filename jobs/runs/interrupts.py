"""Notices interrupts where an exception would be lost, or come at the wrong place.

`held_interrupt` holds an interrupt back until it may come. `InterruptWatch` is for interrupts that Dagster turns into a failed run: Dagster
replaces the handlers of SIGINT and SIGTERM again and again while it runs, and ends an interrupted run as a failure without raising. Python
writes the number of every signal that has a handler to one file descriptor, so the watch reads that.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


@contextmanager
def held_interrupt() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C sets; KeyboardInterrupt comes at the end of the block, and not at any place inside it.

    Outside the main thread, and if SIGINT is ignored or has a handler of its own, nothing is held.
    """
    seen = threading.Event()
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield seen
        return
    signal.signal(signal.SIGINT, lambda *_: seen.set())
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if seen.is_set():
        raise KeyboardInterrupt


class InterruptWatch:
    """Remembers whether SIGINT or SIGTERM came while it is open; outside the main thread it never notices any."""

    def __enter__(self) -> InterruptWatch:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._previous = None
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._previous is not None:
            signal.set_wakeup_fd(self._previous)
        os.close(self._read)
        os.close(self._write)

    def noticed(self) -> bool:
        """Tells whether a signal came since the last call."""
        try:
            numbers = os.read(self._read, 4096)
        except BlockingIOError:
            return False
        return bool({signal.SIGINT, signal.SIGTERM} & set(numbers))
