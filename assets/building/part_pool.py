"""Builds parts in processes that send events: what all builders of this kind share, and the pool of processes on this machine.

A process that builds a part sends an answer: ("done",), ("input error", problem, remedy, checks), or ("error", traceback). Checks are those
of a failed blocking check, else None.
"""

import os
import queue
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from graphmill.assets.building.build import Build
from graphmill.assets.building.child import ENDED, FunctionChild, how_it_ended, received
from graphmill.assets.building.stage import ChecksFailedError, Progress
from graphmill.assets.storage.system.refused import refusal
from graphmill.kernels.errors import InputError

Answer = tuple[Any, ...]


class PartError(RuntimeError):
    """A part failed by a defect; the text names the part and holds the traceback of its process."""


def answer_of(build: Callable[[], object]) -> Answer:
    """Returns the answer to a question for a part."""
    try:
        build()
        return ("done",)
    except ChecksFailedError as error:
        return ("input error", error.problem, error.remedy, error.checks)
    except Exception as error:
        said = refusal(error)
        if said is not None:
            return ("input error", said.problem, said.remedy, None)
        return ("error", traceback.format_exc())


def raise_failure(name: str, answer: Answer) -> None:
    """Raises the error of an answer; none for ("done",).

    Raises:
        InputError: the part failed by its input.
        PartError: it failed by a defect.
    """
    kind, *values = answer
    if kind == "input error":
        problem, remedy, checks = values
        raise InputError(problem, remedy) if checks is None else ChecksFailedError(problem, remedy, checks)
    if kind == "error":
        raise PartError(f"{name} failed:\n{values[0]}")


class EventBuilder(ABC):
    """A `PartBuilder` (assets/building/parts.py) whose child processes send events.

    Args:
        progress: listener, which gets the reports of all processes on the caller's thread.
    """

    def __init__(self, build: Build, progress: Progress):
        self.build, self.progress = build, progress
        self.events: queue.Queue[tuple[FunctionChild, Any]] = queue.Queue()

    def finished(self, wait_seconds: float) -> Sequence[str]:
        """Passes progress on, and returns the parts that were published since the last call."""
        done: list[str] = []
        try:
            event = self.events.get(timeout=wait_seconds)
            while True:
                done += self.hear(*event)
                event = self.events.get_nowait()
        except queue.Empty:
            if not done:
                self.progress.advance(0)  # a cancelled run is noticed here
            return done

    @abstractmethod
    def hear(self, child: FunctionChild, message: Any) -> list[str]:
        """Answers an event, and returns the parts that it says are published."""


class PartPool(EventBuilder):
    """Builds parts like `Here` (assets/building/parts.py), in several processes; `close` ends them, idle or not.

    It ends them by SIGKILL: the store is safe against that, and finished parts stay.

    Args:
        workers: number of processes; the Execution config sets the threads of each.
    """

    def __init__(self, build: Build, workers: int, progress: Progress):
        super().__init__(build, progress)
        # Process -> the part that it builds.
        self._parts: dict[FunctionChild, str | None] = {}
        try:
            for _ in range(workers):
                child = FunctionChild(build_parts_asked, self.events)
                self._parts[child] = None
                child.send(build)
        except BaseException:
            self.close()
            raise

    @property
    def num_free(self) -> int:
        """Number of idle processes."""
        return sum(part is None for part in self._parts.values())

    def start(self, part: str) -> None:
        """Gives a part to a free process."""
        child = next(child for child, built in self._parts.items() if built is None)
        self._parts[child] = part
        child.send(part)

    def close(self) -> None:
        """Kills the processes, waits for their ends and removes their unfinished parts."""
        busy = self.num_free < len(self._parts)
        for child in self._parts:
            child.end()
        self._parts = {}
        if busy:
            self.build.store.sweep()

    def hear(self, child: FunctionChild, message: Any) -> list[str]:
        """Answers an event of a process."""
        part = self._parts[child]
        name = f"part {part} of {self.build.stage.name}" if part else f"parts of {self.build.stage.name}"
        if message == ENDED:
            remedy = "if the memory ran out, give fewer `workers`; finished parts stay, so run the same command again"
            raise InputError(f"the process that built {name} ended with {how_it_ended(child.end())}", remedy)
        if message[0] == "advance":
            self.progress.advance(message[1])
            return []
        raise_failure(name, message)
        self._parts[child] = None
        return [part] if part is not None else []


def build_parts_asked(pipe: Connection) -> None:
    """Is a process of the pool: gets the `Build` and then names of parts, and answers each; it ends with the connection, in any part."""
    build = pipe.recv()
    asked = received(pipe, lambda: os._exit(1))
    while True:
        pipe.send(answer_of(partial(build.publish, _Sent(pipe), part=asked.get())))


class _Sent(Progress):
    """A `Progress` whose steps go to the parent, which has a phase of its own."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe

    def advance(self, n: int) -> None:
        self._pipe.send(("advance", n))
