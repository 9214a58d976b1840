"""Notices interrupts where an exception would be lost, or come at the wrong place.

`held_interrupt` holds an interrupt back until it may come. `watched_interrupts` is for interrupts that Dagster turns into a failed run:
Dagster replaces the handlers of SIGINT and SIGTERM again and again while it runs, and ends an interrupted run as a failure without raising.
Python writes the number of every signal that has a handler to one file descriptor. A command reads it from its beginning to its end
(assets/building/interrupts.py); in a notebook the watch reads it as long as a run goes on.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from graphmill.assets.building.interrupts import STOPS, came, has_begun, raise_interrupt


@contextmanager
def held_interrupt() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C sets; KeyboardInterrupt comes at the end of the block, and not at any place inside it.

    The same holds for the other signals that end a command. Nothing is held outside the main thread, nor a signal that is ignored or has
    a handler of its own.
    """
    seen = threading.Event()
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in STOPS if main}
    before = {
        number: handler
        for number, handler in before.items()
        if handler in (signal.default_int_handler, raise_interrupt)
    }
    for number in before:
        signal.signal(number, lambda *_: seen.set())
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if seen.is_set():
        raise KeyboardInterrupt


@contextmanager
def watched_interrupts() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether SIGINT or SIGTERM came in the block; outside the main thread it never notices any."""
    if has_begun():
        yield lambda: bool(came())
        return
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
