"""How stages run: the half of a configuration that is recorded and never hashed, since no byte of the result depends on it."""

from dataclasses import dataclass, field

from graphmill.assets.building.keys import Checked, within
from graphmill.assets.storage.system.machine import usable_cores

MOST_THREADS = 4096
"""Most threads or processes of a stage; more would exhaust the system before they help."""


@dataclass(frozen=True, kw_only=True)
class Threads(Checked):
    """Execution config of a stage that runs on threads of one process; subclasses add fields."""

    # Number of threads that work side by side.
    threads: int = field(default_factory=lambda: min(8, usable_cores()), metadata=within(1, MOST_THREADS))


@dataclass(frozen=True, kw_only=True)
class Workers(Threads):
    """Execution config of a stage whose parts several processes build; `threads` counts those of all processes together."""

    # Largest number of processes that build parts side by side.
    workers: int = field(default=1, metadata=within(1, MOST_THREADS))

    @property
    def threads_each(self) -> int:
        """Number of threads of one process."""
        return max(1, self.threads // self.workers)
