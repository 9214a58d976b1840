"""Builds parts in several processes at once.

Each process is a `PipedChild` that runs assets/building/part_worker.py. The parent ends it by SIGKILL: the store is safe against that, and
finished parts stay.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

from graphmill.assets.building.answers import raise_failure
from graphmill.assets.building.build import Build
from graphmill.assets.building.child import how_it_ended
from graphmill.assets.building.piped_child import ENDED, PipedChild
from graphmill.assets.building.stage import Progress
from graphmill.kernels.errors import InputError


class PartPool:
    """Builds parts like `Here` (assets/building/parts.py), in several processes; `close` ends them, idle or not.

    Args:
        build: the parent artifact.
        workers: number of processes; the Execution config sets the threads of each.
        progress: listener, which gets the reports of all processes on the caller's thread.
    """

    def __init__(self, build: Build, workers: int, progress: Progress):
        self.build, self.progress = build, progress
        self._events: queue.Queue[tuple[_Child, Any]] = queue.Queue()
        self._children: list[_Child] = []
        try:
            for _ in range(workers):
                self._children.append(_Child(build, self._events))
        except BaseException:
            self.close()
            raise

    @property
    def num_free(self) -> int:
        """Number of idle processes."""
        return sum(child.part is None for child in self._children)

    def start(self, part: str) -> None:
        """Gives a part to a free process."""
        next(child for child in self._children if child.part is None).give(part)

    def finished(self, wait_seconds: float) -> Sequence[str]:
        """Passes progress on, and returns the parts that were published since the last call.

        Raises:
            InputError: a part failed by its input, or its process was killed.
            PartError: a part failed by a defect.
        """
        done: list[str] = []
        try:
            event = self._events.get(timeout=wait_seconds)
            while True:
                done += self._heard(*event)
                event = self._events.get_nowait()
        except queue.Empty:
            if not done:
                self.progress.advance(0)  # a cancelled run is noticed here
            return done

    def close(self) -> None:
        """Kills the processes, waits for their ends and removes their unfinished parts."""
        busy = any(child.part is not None for child in self._children)
        for child in self._children:
            child.end()
        self._children = []
        if busy:
            self.build.store.sweep()

    def _heard(self, child: _Child, message: Any) -> list[str]:
        name = f"part {child.part} of {self.build.stage.name}" if child.part else f"parts of {self.build.stage.name}"
        if message == ENDED:
            status = child.end()
            remedy = "if the memory ran out, give fewer `workers`; finished parts stay, so run the same command again"
            raise InputError(f"the process that built {name} ended with {how_it_ended(status)}", remedy)
        if message[0] == "advance":
            self.progress.advance(message[1])
            return []
        raise_failure(name, message)
        part, child.part = child.part, None
        return [part] if part is not None else []


class _Child(PipedChild):
    """A process, and the part that it builds."""

    def __init__(self, build: Build, events: queue.Queue[tuple[_Child, Any]]):
        self.part: str | None = None
        super().__init__("graphmill.assets.building.part_worker", events)
        self.send(build)

    def give(self, part: str) -> None:
        """Sends the process the name of a part to build."""
        self.part = part
        self.send(part)
