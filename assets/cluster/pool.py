"""Builds the parts of a fan-out stage on the nodes of a Ray cluster, for the process that builds the stage.

A child process (assets/cluster/driver.py) connects to the cluster. Ray ends a process that does not reach the cluster's head any more, and
an interrupt must end the work on all nodes: both are plain for a process that has nothing else to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphmill.assets.building.build import Build
from graphmill.assets.building.child import ENDED, FunctionChild, how_it_ended
from graphmill.assets.building.parts import EventBuilder, raise_failure
from graphmill.assets.building.stage import Progress
from graphmill.assets.cluster.connect import LATE
from graphmill.assets.cluster.driver import drive
from graphmill.kernels.errors import InputError

GRACE_SECONDS = 8.0
"""Seconds for which the child may take its work off the nodes before it is killed; Ray then does it."""


@dataclass(frozen=True)
class OnCluster:
    """The nodes of a cluster as builders of parts; an `Elsewhere` of assets/building/parts.py."""

    address: str

    def open(self, build: Build, num_missing: int, progress: Progress) -> ClusterPool:
        """Returns the builder of the nodes; it connects while the first parts are started."""
        return ClusterPool(self.address, build, num_missing, progress)


class ClusterPool(EventBuilder):
    """Builds parts like `PartPool` (assets/building/parts.py), on the nodes of a cluster."""

    def __init__(self, address: str, build: Build, num_missing: int, progress: Progress):
        super().__init__(build, progress)
        self.address, self._capacity, self._running = address, 0, set[str]()
        self._child = FunctionChild(drive, self.events)
        self._child.send((address, build, num_missing))

    @property
    def num_free(self) -> int:
        """Number of parts that may be started now; 0 until the cluster has answered."""
        return self._capacity - len(self._running)

    def start(self, part: str) -> None:
        """Hands a part to the cluster."""
        self._running.add(part)
        self._child.send(part)

    def close(self) -> None:
        """Ends what runs on the nodes, and the child."""
        busy, self._running = bool(self._running), set()
        self._child.end(GRACE_SECONDS)
        if busy:
            self.build.store.sweep()

    def hear(self, child: FunctionChild, message: Any) -> list[str]:
        """Answers an event of the child."""
        if message == ENDED:
            raise self._lost()
        kind, *values = message
        if kind == "advance":
            self.progress.advance(values[0])
        elif kind == "tell":
            self.progress.tell(values[0])
        elif kind == "capacity":
            self._capacity = values[0]
        elif kind == "failed":  # the cluster, not a part
            raise_failure(f"the parts of {self.build.stage.name}", values[0])
        else:
            part, answer = values
            raise_failure(f"part {part} of {self.build.stage.name}", answer)
            self._running.discard(part)
            return [part]
        return []

    def _lost(self) -> InputError:
        """Returns the error of a child that ended by itself: Ray ends a process that does not reach the head of its cluster."""
        status = self._child.end()
        why = "" if status in (LATE, 1) else f" (the process that was connected ended with {how_it_ended(status)})"
        problem = f"the Ray cluster at {self.address} does not answer{why}"
        return InputError(problem, "see `ray status`; finished parts stay, so run the same command again")
