"""How stages run: the half of a configuration that is recorded and never hashed, since no byte of the result depends on it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kernels.errors import InputError

MOST_THREADS = 4096
"""Most threads or processes of a stage; more would exhaust the system before they help."""


@dataclass(frozen=True, kw_only=True)
class Threads:
    """Execution config of a stage that runs on threads of one process; subclasses add fields.

    Raises:
        InputError: a value is outside its range.
    """

    # Number of threads that work side by side.
    threads: int = field(default_factory=lambda: min(8, len(os.sched_getaffinity(0))))

    def __post_init__(self) -> None:
        """Checks the range."""
        if self.threads < 1:
            raise InputError(f"threads = {self.threads} is less than 1", "give at least one thread")
        if self.threads > MOST_THREADS:
            raise InputError(f"threads = {self.threads} is more than {MOST_THREADS:,}", "give about one per core")


@dataclass(frozen=True, kw_only=True)
class Workers(Threads):
    """Execution config of a stage whose parts several processes build; `threads` counts those of all processes together."""

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
        """Number of threads of one process."""
        return max(1, self.threads // self.workers)
