"""What the machine did beside a measurement: cores that other processes used, from the system's own counters."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
TICKS = os.sysconf("SC_CLK_TCK")
IDLE = (3, 4)
"""Columns of /proc/stat that are no work: idle, and waiting for a disk."""


def quiet_rounds(run: Callable[[], T], wanted: int, most: int, limit: float = 0.15) -> tuple[list[T], float]:
    """Repeats a measurement until enough rounds had the machine to themselves; on a busy machine the quietest are kept.

    Args:
        run: one round.
        wanted: number of rounds to keep.
        most: number of rounds to run at most.
        limit: cores that others may use in a quiet round.

    Returns:
        The rounds, and the most cores that others used in one of them.
    """
    rounds: list[tuple[float, int, T]] = []
    while len(rounds) < most and sum(cores <= limit for cores, _, _ in rounds) < wanted:
        found, cores = beside(run)
        rounds.append((cores, len(rounds), found))
    kept = sorted(rounds, key=lambda each: each[:2])[:wanted]
    return [found for _, _, found in kept], max(cores for cores, _, _ in kept)


def beside(run: Callable[[], T]) -> tuple[T, float]:
    """Returns what a call returned, and how many cores other processes used on average meanwhile.

    Args:
        run: what is measured; processes that it starts have ended when it returns, and are not others.
    """
    before = counters()
    found = run()
    wall, busy, own = (after - was for after, was in zip(counters(), before, strict=True))
    return found, round(max(0.0, busy - own) / wall, 3)


def counters() -> tuple[float, float, float]:
    """Returns seconds of the clock, of work of all cores, and of work of this process and its children that have ended."""
    columns = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    busy = sum(each for place, each in enumerate(columns) if place not in IDLE)
    own = os.times()
    return time.perf_counter(), busy / TICKS, own.user + own.system + own.children_user + own.children_system
