"""Fan-out stages: an artifact whose bulk is built as parts, each published as an artifact of its own.

A stage fans out when it is a `FanOut` and its method `parts` returns names. The version of a part is a function of the parent's
recipe and of the part's name, so finished parts are found again after a kill, by every process and machine that shares
the store: resuming is plain reuse. When all parts are there, the stage is called once more, without a part, and builds the
parent; its manifest lists the parts. Parts lie in `<stage>.parts/` beside the parents.

Processes share the work: a process claims a part by an exclusive lock on `.claims/<stage>.parts@<version>` before it builds it, so
several processes that build one parent take different parts. The kernel drops a claim when its process dies. (On a network
file system this needs working `flock`; without it two machines may build a part twice, and the second discards its own.) A process may
also have its parts built on other machines (`Elsewhere`); the claims are then still its own.

A lease on a parent covers its parts, even those that are not listed anywhere yet; see assets/storage/local/collect.py.

Parts are built in processes that send events, those of a pool on this machine or of other machines. A process that builds a part sends an
answer: ("done",), ("input error", problem, remedy, checks), or ("error", traceback). Checks are those of a failed blocking check, else
None.
"""

import os
import queue
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol

from graphmill.assets.building.build import Build
from graphmill.assets.building.child import ENDED, FunctionChild, how_it_ended, received
from graphmill.assets.building.stage import ChecksFailedError, FanOut, Progress
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.leases import Leases
from graphmill.assets.storage.names.manifest import Address
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


CLAIMS = ".claims"
POLL_SECONDS = 0.2
SEEN_SECONDS = 90.0
"""Seconds until this machine sees a part that another one has published: a mounted file system may remember that it was absent."""


class PartBuilder(Protocol):
    """Builds parts that it is given; `Here`, `PartPool`, and what an `Elsewhere` opens."""

    @property
    def num_free(self) -> int:
        """Number of parts that may be started now."""
        ...

    def start(self, part: str) -> None:
        """Begins a part; `num_free` is at least 1."""

    def finished(self, wait_seconds: float) -> Sequence[str]:
        """Passes progress on, and returns the parts that were published since the last call.

        Raises:
            InputError: a part failed by its input, or its process was killed.
            PartError: a part failed by a defect.
        """
        ...

    def close(self) -> None:
        """Ends builds that still run, and waits for their ends."""


class Elsewhere(Protocol):
    """Other machines that build parts."""

    def open(self, build: Build, num_missing: int, progress: Progress) -> PartBuilder:
        """Returns their builder; raises InputError if the machines cannot be reached, or cannot do the work."""
        ...


class Here:
    """Builds parts in this process when they are asked for, up to `together` by one pass; 0 builds each by itself."""

    def __init__(self, build: Build, together: int, progress: Progress):
        self.build, self.together, self.progress = build, together, progress
        self._begun: list[str] = []

    @property
    def num_free(self) -> int:
        """Number of parts that may be started now."""
        return max(1, self.together) - len(self._begun)

    def start(self, part: str) -> None:
        """Notes the part for the next pass; `num_free` is at least 1."""
        self._begun.append(part)

    def finished(self, wait_seconds: float) -> Sequence[str]:
        """Builds and publishes the parts that were started since the last call, and returns them."""
        begun, self._begun = self._begun, []
        if begun and self.together:
            self.build.publish_parts(self.progress, begun)
        else:
            for part in begun:
                self.build.publish(self.progress, part=part)
        return begun

    def close(self) -> None:
        """Does nothing: no build runs between two calls."""


def build_parts(
    build: Build, names: Sequence[str], progress: Progress, elsewhere: Elsewhere | None = None
) -> dict[str, Artifact]:
    """Returns name -> artifact of all parts; builds the missing ones.

    Args:
        build: the parent artifact, whose stage is a `FanOut`.
        progress: listener, which sees all parts as one phase.
        elsewhere: other machines that build them; None for this one.

    A stage that builds parts together does so here. Otherwise they are built elsewhere, or in `execution.workers` processes if the
    Execution config has that field, or here.

    Raises:
        InputError: a part failed, or the disk is full; finished parts stay.
    """
    assert len(set(names)) == len(names), f"{build.stage.name} names a part twice"
    missing = [name for name, part in build.find_parts(names).items() if part is None]
    stage = build.stage
    assert isinstance(stage, FanOut)
    work = {name: stage.work(build.inputs, build.semantic, name) for name in names}
    progress.start(f"{stage.name}, {len(names)} parts", sum(work.values()), stage.work_unit)
    progress.advance(sum(work[name] for name in set(names) - set(missing)))
    if missing:
        _build_all(build, _open_builder(build, len(missing), progress, elsewhere), missing, work, progress)
    Leases(build.store.root, CLAIMS).held()  # removes the files of claims whose process died after it had published
    progress.done()
    found = build.find_parts(names)
    end = time.monotonic() + (SEEN_SECONDS if missing and elsewhere is not None else 0)
    while None in found.values() and time.monotonic() < end:
        progress.advance(0)  # a cancelled run is noticed here
        time.sleep(POLL_SECONDS)
        found = build.find_parts(names)
    lost = [name for name, artifact in found.items() if artifact is None]
    if lost:
        problem = f"part {lost[0]} of {build.stage.name} was removed or damaged while others were built"
        raise InputError(problem, "run the same command again: what is missing will be rebuilt")
    return {name: artifact for name, artifact in found.items() if artifact}


def _open_builder(build: Build, num_missing: int, progress: Progress, elsewhere: Elsewhere | None) -> PartBuilder:
    assert isinstance(build.stage, FanOut)
    if together := build.stage.together(build.inputs, build.semantic):
        return Here(build, min(together, num_missing), progress)
    if elsewhere is not None:
        return elsewhere.open(build, num_missing, progress)
    asked = getattr(build.execution, "workers", 1)
    workers = max(1, min(asked, num_missing))
    if workers < asked:  # so that a single process knows that it has the machine for itself
        build = replace(build, execution=replace(build.execution, workers=workers))
    return Here(build, 0, progress) if workers == 1 else PartPool(build, workers, progress)


def _build_all(
    build: Build, builder: PartBuilder, missing: Sequence[str], work: Mapping[str, int], progress: Progress
) -> None:
    """Builds the missing parts, except those that other processes build meanwhile, and closes the builder."""
    claims, waiting = Leases(build.store.root, CLAIMS), list(missing)
    held: dict[str, ExitStack] = {}
    try:
        while waiting or held:
            for part in list(waiting):
                if builder.num_free and (claim := _claimed(claims, build.address(part))):
                    waiting.remove(part)
                    if build.find(part) is not None:  # another process was faster
                        claim.close()
                        progress.advance(work[part])
                    else:
                        held[part] = claim
                        builder.start(part)
            finished = builder.finished(POLL_SECONDS)
            for part in finished:
                held.pop(part).close()
            if waiting and not held and not finished:  # all that is left is built by other processes
                progress.advance(0)  # a cancelled run is noticed here
                time.sleep(POLL_SECONDS)
    finally:
        builder.close()  # before the claims go: no other process may begin a part that still runs here
        for claim in held.values():
            claim.close()


def _claimed(claims: Leases, address: Address) -> ExitStack | None:
    """Returns the claim of a part, which ends when it is closed; None if another process builds the part."""
    with ExitStack() as stack:
        return stack.pop_all() if stack.enter_context(claims.alone(address)) else None
