"""Builds parts in several processes at once.

Each process is a plain child that runs assets/building/part_worker.py. `multiprocessing` would import the caller's main module again
in each, or fork a process with running threads; only its connection is used. A child ends when its connection does, so none outlives a
parent that was killed. It has a session of its own, so a terminal's Ctrl-C reaches the parent only, which ends its children by SIGKILL: the
store is safe against that, and finished parts stay.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any

from assets.building.build import Build
from assets.building.child import how_it_ended, start_child
from assets.building.stage import ChecksFailedError, Progress
from kernels.errors import InputError


class PartError(RuntimeError):
    """A part failed by a defect; the text names the part and holds the traceback of its process."""


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
        kind, *values = message
        if kind == "advance":
            self.progress.advance(*values)
            return []
        if kind == "done":
            part, child.part = child.part, None
            return [part] if part is not None else []
        if kind == "input error":
            problem, remedy, checks = values
            raise InputError(problem, remedy) if checks is None else ChecksFailedError(problem, remedy, checks)
        if kind == "error":
            raise PartError(f"{name} failed:\n{values[0]}")
        status = child.end()
        remedy = "if the memory ran out, give fewer `workers`; finished parts stay, so run the same command again"
        raise InputError(f"the process that built {name} ended with {how_it_ended(status)}", remedy)


class _Child:
    """One process, and the thread that listens to it."""

    def __init__(self, build: Build, events: queue.Queue[tuple[_Child, Any]]):
        self.part: str | None = None
        self._pipe, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", "assets.building.part_worker", str(theirs.fileno())]
            self._process = start_child(command, pass_fds=[theirs.fileno()])
        self._listener = threading.Thread(target=self._listen, args=(events,), daemon=True)
        self._listener.start()
        # The stage may come from anywhere that this process can import from.
        self._send(sys.path)
        self._send(build)

    def give(self, part: str) -> None:
        """Sends the process the name of a part to build."""
        self.part = part
        self._send(part)

    def end(self) -> int:
        """Kills the process if it still runs, and returns its exit status."""
        self._process.kill()
        status = self._process.wait()
        self._listener.join()
        self._pipe.close()
        return status

    def _send(self, value: Any) -> None:
        with suppress(ConnectionError):  # it is dead; the listener reports that
            self._pipe.send(value)

    def _listen(self, events: queue.Queue[tuple[_Child, Any]]) -> None:
        with suppress(EOFError, ConnectionError):
            while True:
                events.put((self, self._pipe.recv()))
        self._process.wait()
        events.put((self, ("ended",)))
