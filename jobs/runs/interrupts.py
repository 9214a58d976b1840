"""Notices interrupts where an exception would be lost, or come at the wrong place.

`held_interrupt` holds an interrupt back until it may come. `watched_interrupts` is for interrupts that Dagster turns into a failed run:
Dagster replaces the handlers of SIGINT and SIGTERM again and again while it runs, and ends an interrupted run as a failure without raising.
Python writes the number of every signal that has a handler to one file descriptor, so the watch reads that.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


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


@contextmanager
def watched_interrupts() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether SIGINT or SIGTERM came in the block; outside the main thread it never notices any."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    main = threading.current_thread() is threading.main_thread()
    previous = signal.set_wakeup_fd(writing, warn_on_full_buffer=False) if main else None

    seen: set[int] = set()

    def noticed() -> bool:
        with suppress(BlockingIOError):
            seen.update(os.read(reading, 4096))
        return bool({signal.SIGINT, signal.SIGTERM} & seen)

    try:
        yield noticed
    finally:
        if previous is not None:
            signal.set_wakeup_fd(previous)
        os.close(reading)
        os.close(writing)
