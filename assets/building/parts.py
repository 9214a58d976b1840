"""Fan-out stages: an artifact whose bulk is built as parts, each published as an artifact of its own.

A stage fans out when it is a `FanOut` and its method `parts` returns names. The version of a part is a function of the parent's
recipe and of the part's name, so finished parts are found again after a kill, by every process and machine that shares
the store: resuming is plain reuse. When all parts are there, the stage is called once more, without a part, and builds the
parent; its manifest lists the parts. Parts lie in `<stage>.parts/` beside the parents.

Processes share the work: a process claims a part by an exclusive lock on `.claims/<stage>.parts@<version>` before it builds it, so
several processes that build one parent take different parts. The kernel drops a claim when its process dies. (On a network
file system this needs working `flock`; without it two machines may build a part twice, and the second discards its own.)

A lease on a parent covers its parts, even those that are not listed anywhere yet; see assets/storage/collect.py.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from assets.building.build import Build
from assets.building.stage import FanOut, Progress, TogetherFanOut
from assets.storage.artifact import Artifact
from assets.storage.filesystem import make_folder, release_lock, reporting_full_disk, take_lock
from kernels.errors import InputError

CLAIMS = ".claims"
POLL_SECONDS = 0.2


class Builder(Protocol):
    """Builds parts, several at once or one after the other."""

    @property
    def num_free(self) -> int:
        """Number of parts that may be started now."""
        ...

    def start(self, part: str) -> None:
        """Begins a part; `num_free` is at least 1."""
        ...

    def finished(self, wait_seconds: float) -> Sequence[str]:
        """Returns the parts that were published since the last call; waits for one, at most `wait_seconds`."""
        ...

    def close(self) -> None:
        """Ends all running builds."""
        ...


class Here:
    """Builds parts in this process, one after the other."""

    def __init__(self, build: Build, progress: Progress):
        self.build, self.progress = build, progress
        self._done: list[str] = []

    @property
    def num_free(self) -> int:
        """1 unless a finished part has not been collected."""
        return 0 if self._done else 1

    def start(self, part: str) -> None:
        """Builds the part."""
        self.build.publish(self.progress, part=part)
        self._done = [part]

    def finished(self, wait_seconds: float) -> Sequence[str]:
        """Returns the part that was built since the last call, if any."""
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        """Does nothing: no build runs between two calls."""


class Together:
    """Builds parts in this process, all started ones by one pass.

    Args:
        build: the parent artifact, whose stage is a `TogetherFanOut`.
        most: largest number of parts of one pass.
        progress: listener.
    """

    def __init__(self, build: Build, most: int, progress: Progress):
        self.build, self.most, self.progress = build, most, progress
        self._begun: list[str] = []

    @property
    def num_free(self) -> int:
        """Number of parts that the next pass still has space for."""
        return self.most - len(self._begun)

    def start(self, part: str) -> None:
        """Notes the part for the pass."""
        self._begun.append(part)

    def finished(self, wait_seconds: float) -> Sequence[str]:
        """Makes the pass and returns its parts."""
        begun, self._begun = self._begun, []
        if begun:
            self.build.publish_parts(self.progress, begun)
        return begun

    def close(self) -> None:
        """Does nothing: no build runs between two calls."""


def build_parts(build: Build, names: Sequence[str], progress: Progress) -> dict[str, Artifact]:
    """Returns name -> artifact of all parts; builds the missing ones.

    Args:
        build: the parent artifact, whose stage is a `FanOut`.
        names: names of the parts.
        progress: listener, which sees all parts as one phase.

    A `TogetherFanOut` builds all of them by one pass. Otherwise they are built in `execution.workers` processes if the Execution config has
    that field, else here.

    Raises:
        InputError: a part failed, or the disk is full; finished parts stay.
    """
    assert len(set(names)) == len(names), f"{build.stage.name} names a part twice"
    missing = [name for name in names if build.find(name) is None]
    stage = build.stage
    assert isinstance(stage, FanOut)
    work = {name: stage.work(build.inputs, build.semantic, name) for name in names}
    progress.start(f"{stage.name}, {len(names)} parts", sum(work.values()), stage.work_unit)
    progress.advance(sum(work[name] for name in set(names) - set(missing)))
    builder = _open_builder(build, len(missing), progress)
    _build_all(build, builder, missing, work, progress)
    _Claims(build).sweep()
    progress.done()
    found = {name: build.find(name) for name in names}
    lost = [name for name, artifact in found.items() if artifact is None]
    if lost:
        problem = f"part {lost[0]} of {build.stage.name} was removed or damaged while others were built"
        raise InputError(problem, "run the same command again: what is missing will be rebuilt")
    return {name: artifact for name, artifact in found.items() if artifact}


def _open_builder(build: Build, num_missing: int, progress: Progress) -> Builder:
    if isinstance(build.stage, TogetherFanOut):
        return Together(build, num_missing, progress)
    asked = getattr(build.execution, "workers", 1)
    workers = max(1, min(asked, num_missing))
    if workers < asked:  # so that a single process knows that it has the machine for itself
        build = replace(build, execution=replace(build.execution, workers=workers))
    if workers == 1:
        return Here(build, progress)
    from assets.building.part_pool import PartPool

    return PartPool(build, workers, progress)


def _build_all(
    build: Build, builder: Builder, missing: Sequence[str], work: Mapping[str, int], progress: Progress
) -> None:
    """Builds the missing parts, except those that other processes build meanwhile, and closes the builder."""
    claims, waiting, held = _Claims(build), deque(missing), {}
    try:
        while waiting or held:
            for part, lock in claims.take(waiting, builder.num_free):
                waiting.remove(part)
                if build.find(part) is not None:  # another process was faster
                    claims.drop(part, lock)
                    progress.advance(work[part])
                else:
                    held[part] = lock
                    builder.start(part)
            for part in builder.finished(POLL_SECONDS):
                claims.drop(part, held.pop(part))
            if waiting and not held:
                progress.advance(0)  # a cancelled run is noticed here
                time.sleep(POLL_SECONDS)
    finally:
        builder.close()  # before the claims go: no other process may begin a part that still runs here
        for part, lock in held.items():
            claims.drop(part, lock)


class _Claims:
    """Exclusive locks on parts."""

    def __init__(self, build: Build):
        self.build, self.folder = build, build.store.root / CLAIMS

    def take(self, waiting: Sequence[str], most: int) -> Iterator[tuple[str, int]]:
        """Yields up to `most` waiting parts that no process builds, each with its lock."""
        for part in list(waiting):
            if most <= 0:
                return
            with reporting_full_disk(self.folder):
                make_folder(self.folder)
                lock = take_lock(self._file(part), create=True)
            if lock is not None:
                most -= 1
                yield part, lock

    def sweep(self) -> None:
        """Removes the files of claims whose process died after it had published."""
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            lock = take_lock(path, create=False)
            if lock is not None:
                path.unlink(missing_ok=True)
                release_lock(lock)

    def drop(self, part: str, lock: int) -> None:
        """Gives a claim back."""
        self._file(part).unlink(missing_ok=True)
        release_lock(lock)

    def _file(self, part: str) -> Path:
        stage, version = self.build.address(part)
        return self.folder / f"{stage}@{version}"
