"""How stages are carried out: the half of a configuration that is recorded and never hashed, for no byte depends on it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kernels.errors import InputError

MOST_THREADS = 4096
"""Threads or processes that a stage may be asked for; more would exhaust the system before they help."""


@dataclass(frozen=True, kw_only=True)
class Threads:
    """A stage that runs on threads of one process; some say in a subclass what else.

    Raises:
        InputError: a value is outside its range.
    """

    # Threads that work side by side.
    threads: int = field(default_factory=lambda: min(8, len(os.sched_getaffinity(0))))

    def __post_init__(self) -> None:
        """Checks the range."""
        if self.threads < 1:
            raise InputError(f"threads = {self.threads} is less than 1", "give at least one thread")
        if self.threads > MOST_THREADS:
            raise InputError(f"threads = {self.threads} is more than {MOST_THREADS:,}", "give about one per core")


@dataclass(frozen=True, kw_only=True)
class Workers(Threads):
    """A stage whose parts are built by several processes; `threads` counts those of all processes together."""

    # Largest number of processes that build parts side by side.
    workers: int = 1

    def __post_init__(self) -> None:
        """Checks the ranges."""
        super().__post_init__()
        if self.workers < 1:
            raise InputError(f"workers = {self.workers} is less than 1", "give at least one process")
        if self.workers > MOST_THREADS:
            raise InputError(f"workers = {self.workers} is more than {MOST_THREADS:,}", "give about one per core")

    @property
    def threads_each(self) -> int:
        """Threads of one process."""
        return max(1, self.threads // self.workers)
