"""How stages are carried out: the half of a configuration that is recorded and never hashed, for no byte depends on it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kernels.errors import InputError


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
