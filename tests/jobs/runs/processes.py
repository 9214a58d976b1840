"""Waiting for processes and conditions in tests: long limits, so that a busy machine fails nothing."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, seconds: float = 120.0) -> T:
    """Returns the first true value of the condition."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds} s for: {what}")


def unused_port() -> int:
    """Returns a port that the system gives out: another test that looks for one at the same time gets another."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def heed_interrupts() -> None:
    """For a process that is about to start: in the background of a script SIGINT is ignored, and so it is in all that this starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def lives(pid: int) -> bool:
    """Tells whether a process is there and not a zombie that waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def family(pid: int) -> list[int]:
    """Returns the ids of a process and of all that it and its children have started, the oldest first."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def stubborn_pids(path: Path) -> list[int]:
    """Returns the process ids that stubborn.py wrote, once it has."""
    wait_for(path.exists, "the stubborn program to start")
    pids = [int(word) for word in path.read_text().split()]
    assert all(lives(pid) for pid in pids)
    return pids


def wait_until_gone(pids: list[int]) -> None:
    wait_for(lambda: not any(lives(pid) for pid in pids), f"processes {pids} to be gone")
