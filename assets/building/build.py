"""How one artifact, or a part of a fan-out stage, is named, found, built and published."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from graphmill.assets.building.stage import Building, ChecksFailedError, FanOut, OnePass, Progress, Stage, Summary
from graphmill.assets.costs.needs import Need
from graphmill.assets.storage.local.artifact import Artifact, read_artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.assets.storage.names.patterns import matches, paths_in
from graphmill.assets.storage.names.version import canonical, locations, part_version, version_of
from graphmill.assets.storage.remote.raw_digests import keep_raw_digests, kept_raw_digests
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.machine import processor_name
from graphmill.assets.storage.system.refused import reporting_refusals
from graphmill.kernels.errors import InputError

PART_SUFFIX = ".parts"
"""Parts of a stage lie in STAGE.parts beside the parents."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """One artifact that a recipe asks for, with everything that its build needs. It can be sent to other processes.

    Attributes:
        semantic, execution: the stage's configs; only the first is hashed.
        inputs: role -> artifact, as `stage.inputs(semantic)` names them; hashed by their versions, or those of the aspects read.
        reads: role -> artifact that decides only how it is built; leased and recorded in run.json, never hashed.
        raw: name -> SHA-256 of the external content; None asks the stage.
        anew: build it even if the store has it, and replace the old one.
        asked_by: PIPELINE/STEP that it is built for; recorded in run.json, never hashed.
        node: id of the cluster's node that builds it, "" without a cluster; recorded in run.json, never hashed.
        version: version of the artifact, 64 hex digits; known before the build.
    """

    store: Store
    stage: Stage
    semantic: Any
    execution: Any
    inputs: Mapping[str, Artifact]
    reads: Mapping[str, Artifact] = field(default_factory=dict)
    raw: Mapping[str, str] | None = None
    anew: bool = False
    asked_by: str = ""
    node: str = ""
    version: str = field(init=False)

    def __post_init__(self) -> None:
        """Checks the roles and computes the version.

        Raises:
            InputError: the inputs are not those that the stage reads, or raw content is missing or unreadable.
        """
        wanted = dict(self.stage.inputs(self.semantic))
        given = {role: artifact.stage for role, artifact in self.inputs.items()}
        if wanted != given:
            problem = f"stage {self.stage.name} reads {wanted}, but was given {given}"
            raise InputError(problem, "pass one artifact for each role")
        raw = dict(raw_digests(self.stage, self.semantic) if self.raw is None else self.raw)
        places = locations(self.semantic)
        # A path is not hashed; if the bytes behind it were not either, two different graphs would share a version.
        assert raw or not places, f"stage {self.stage.name} reads {places} without a raw digest"
        versions = input_versions(self.stage, self.inputs)
        version = version_of(self.stage.name, self.stage.code_version, self.semantic, versions, raw)
        object.__setattr__(self, "raw", raw)
        object.__setattr__(self, "version", version)

    def address(self, part: str | None = None) -> tuple[str, str]:
        """Returns stage and version of the artifact, or of a part of it."""
        if part is None:
            return self.stage.name, self.version
        return self.stage.name + PART_SUFFIX, part_version(self.version, part)

    def find(self, part: str | None = None) -> Artifact | None:
        """Returns the artifact, or a part of it, if the store has it and it is sound."""
        return self.store.find(*self.address(part))

    def find_parts(self, parts: Sequence[str]) -> dict[str, Artifact | None]:
        """Returns name -> part, None for each that the store does not have, or has damaged."""
        return dict(zip(parts, self.store.find_many([self.address(part) for part in parts]), strict=True))

    def share(self, found: Artifact) -> Artifact:
        """Makes an artifact that is reused one of the object store, if there is one that lacks it; returns it with `reused` set."""
        keep_raw_digests(self.stage.name, self.semantic, self.raw or {})
        return replace(found.shared(), reused=True)

    def require_inputs(self) -> None:
        """Checks the inputs again after they were leased: a collector may have removed them before.

        Raises:
            InputError: an input is gone or damaged.
        """
        for role, artifact in {**self.inputs, **self.reads}.items():
            try:
                if not (artifact.is_remote and self.store.has(*artifact.address)):
                    read_artifact(artifact.path)
            except (FileNotFoundError, ValueError) as error:
                name = f"{role} {artifact.label}"
                problem = f"stage {self.stage.name} was to read {name}, which was removed or damaged meanwhile: {error}"
                raise InputError(problem, "run the same command again: what is missing will be rebuilt") from error

    def publish(
        self,
        progress: Progress,
        *,
        part: str | None = None,
        parts: Mapping[str, Artifact] | None = None,
        work: tuple[Need | None, float] | None = None,
    ) -> Artifact:
        """Builds and publishes the artifact, or a part of it, without a look at the store first; callers use `materialize`.

        Args:
            parts: name -> finished part, for the artifact of a fan-out stage.
            work: need of the artifact and its parts, None to record none, and the `time.perf_counter` when they were begun; None for now.

        Raises:
            InputError: an error of the stage, with the name of the part; or a blocking check failed.
        """
        clock = _Clock(*work) if work else _Clock()
        name = nullcontext() if part is None else naming(f"part {part} of {self.stage.name}")
        with name, reporting_refusals(f"stage {self.stage.name}"), self._writer(part) as writer:
            if part is None:
                building = self._building(writer, progress, parts=parts or {})
                return self._seal(writer, self.stage.build(building), clock, _listed(parts or {}))
            assert isinstance(self.stage, FanOut)
            summary = self.stage.build_part(self._building(writer, Advancing(progress), part))
            return self._seal(writer, summary, clock, self._part_of(part))

    def publish_parts(self, progress: Progress, parts: Sequence[str]) -> list[Artifact]:
        """Builds parts by one pass and publishes them one after the other, without a look at the store first.

        Args:
            parts: names of the parts; the stage builds as many together.

        Raises:
            InputError: an error of the stage, or a blocking check failed. Parts that were published before stay.
        """
        stage, clock = self.stage, _Clock()
        assert isinstance(stage, FanOut)
        name = f"parts {', '.join(parts)} of {stage.name}"
        with naming(name), reporting_refusals(f"stage {stage.name}"), ExitStack() as opened:
            writers = [opened.enter_context(self._writer(part)) for part in parts]
            advancing = Advancing(progress)
            buildings = [self._building(writer, advancing, part) for part, writer in zip(parts, writers, strict=True)]
            summaries = zip(parts, writers, stage.build_parts(buildings), strict=True)
            return [self._seal(writer, summary, clock, self._part_of(part)) for part, writer, summary in summaries]

    def _building(
        self, writer: Writer, progress: Progress, part: str = "", parts: Mapping[str, Artifact] | None = None
    ) -> Building[Any, Any]:
        inputs = {**self.inputs, **self.reads, **(parts or {})}
        return Building(
            inputs=inputs, semantic=self.semantic, execution=self.execution, writer=writer, progress=progress, part=part
        )

    def _part_of(self, part: str) -> dict[str, Any]:
        """Returns the field of a part's manifest that names its parent."""
        return {"part": {"name": part, "stage": self.stage.name, "of": self.version}}

    def _writer(self, part: str | None = None) -> Writer:
        return self.store.writer(*self.address(part), threads=min(4, os.cpu_count() or 1), replaces=self.anew)

    def _seal(self, writer: Writer, summary: Summary, clock: _Clock, more: Mapping[str, Any]) -> Artifact:
        """Publishes the files of a writer, with the record of the build."""
        self._stop_on_failed(summary)
        self._require_raw()
        for artifact in (*self.inputs.values(), *self.reads.values()):
            artifact.require_unchanged()
        run = {
            "started": clock.started.isoformat(timespec="milliseconds"),
            "seconds": clock.lap(),
            "execution": canonical(self.execution),
            "asked_by": self.asked_by,
            "locations": locations(self.semantic),
            "reads": {role: {"stage": each.stage, "version": each.version} for role, each in self.reads.items()},
            **clock.work(),
            **({"node": self.node} if self.node else {}),
            **({"unread": list(summary.unread)} if summary.unread else {}),
            "host": {
                "name": platform.node(),
                "processor": processor_name(),
                "cpus": os.cpu_count(),
                "python": platform.python_version(),
            },
        }
        hashed = {"code_version": self.stage.code_version, "raw": self.raw or {}}
        read = self.stage.reads_aspects
        aspects = {"aspects": self._aspects()} if self.stage.aspects else {}
        made = writer.publish(self.semantic, self.inputs, summary, run, more={**more, **aspects}, read=read, **hashed)
        keep_raw_digests(self.stage.name, self.semantic, self.raw or {})
        return made

    def _require_raw(self) -> None:
        """Asks for the digests of external files once more: what was built from a file that changed meanwhile is of no version."""
        if not isinstance(self.stage, OnePass):
            return  # code that an artifact was made with is imported before, and may be edited meanwhile
        old, new = self.raw or {}, raw_digests(self.stage, self.semantic)
        if changed := sorted(name for name in {*old, *new} if old.get(name) != new.get(name)):
            problem = (
                f"the files that stage {self.stage.name} reads changed while it was built: {', '.join(changed[:5])}"
            )
            raise InputError(problem, "wait until they are complete, then run the same command again")

    def _aspects(self) -> dict[str, str]:
        stage, raw = self.stage, self.raw or {}
        versions = input_versions(stage, self.inputs)
        return {
            name: version_of(f"{stage.name}/{name}", stage.code_version, config, versions, digests)
            for name in stage.aspects
            for config, digests in (stage.aspect(name, self.semantic, raw),)
        }

    def _stop_on_failed(self, summary: Summary) -> None:
        failed = [check for check in summary.checks if check.blocking and not check.passed]
        if failed:
            lines = "".join(f"\n  {check.name}: {check.detail or 'failed'}" for check in failed)
            count = f"{len(failed)} check{'s' if len(failed) > 1 else ''}"
            raise ChecksFailedError(
                f"stage {self.stage.name} failed {count}, so nothing was published:{lines}",
                "correct the input and build again",
                tuple(summary.checks),
                self.version,
            )


def input_versions(stage: Stage, inputs: Mapping[str, Artifact]) -> dict[str, str]:
    """Returns role -> version of an input that is hashed: that of the aspect that is read, or the artifact's own if it lacks the aspect."""
    read = stage.reads_aspects
    return {role: artifact.aspects.get(read.get(role, ""), artifact.version) for role, artifact in inputs.items()}


def publish_together(builds: Sequence[Build], progress: Progress) -> list[Artifact]:
    """Builds and publishes artifacts by one pass over the external content that they read, without a look at the store first.

    They are built and published one after the other: a crash between two keeps the earlier ones.

    Args:
        builds: artifacts of `OnePass` stages that read the same source; the first opens it.

    Raises:
        InputError: an error of a stage, or a blocking check failed. Artifacts that were published before stay.
    """
    stage, clock = builds[0].stage, _Clock()
    assert isinstance(stage, OnePass)
    asked = [(build.stage, build.semantic) for build in builds]
    published = []
    with reporting_refusals(f"stages {', '.join(build.stage.name for build in builds)}"), ExitStack() as opened:
        writers = [opened.enter_context(build._writer()) for build in builds]
        # The last writer's folder exists the longest.
        source = opened.enter_context(stage.opened(asked, builds[0].execution, writers[-1].scratch(), progress))
        for build, writer in zip(builds, writers, strict=True):
            assert isinstance(build.stage, OnePass)
            summary = build.stage.build_from(source, build._building(writer, progress))
            published.append(build._seal(writer, summary, clock, {}))
    return published


class _Clock:
    """The time when building began, and the seconds since then or since the previous artifact.

    Args:
        need: need of the artifact and its parts, None to record none.
        began: `time.perf_counter` when their work began; None for now.
    """

    def __init__(self, need: Need | None = None, began: float | None = None):
        now = time.perf_counter()
        self._need, self._began = need, now if began is None else began
        self._clock = self._began
        self.started = datetime.now(UTC) - timedelta(seconds=now - self._began)

    def work(self) -> dict[str, Any]:
        """Returns the field of run.json that later predictions read, with the memory that was predicted; empty without a need."""
        if self._need is None:
            return {}
        seconds = round(time.perf_counter() - self._began, 3)
        return {"work": {"units": self._need.work, "seconds": seconds, "memory_bytes": self._need.memory_bytes}}

    def lap(self) -> float:
        """Returns the seconds since the last call, and starts again."""
        now = time.perf_counter()
        seconds, self._clock = round(now - self._clock, 3), now
        return seconds


@contextmanager
def naming(words: str) -> Iterator[None]:
    """Puts words before the problem of an `InputError`."""
    try:
        yield
    except ChecksFailedError as error:
        raise ChecksFailedError(f"{words}: {error.problem}", error.remedy, error.checks, error.version) from error
    except InputError as error:
        raise InputError(f"{words}: {error.problem}", error.remedy) from error


class Advancing(Progress):
    """Passes only `advance` on: the phases of all parts are one phase of the whole."""

    def __init__(self, progress: Progress):
        self._progress = progress

    def advance(self, n: int) -> None:
        """Passes the step on."""
        self._progress.advance(n)


def _listed(parts: Mapping[str, Artifact]) -> dict[str, Any]:
    """Returns the field of a parent's manifest that lists its parts; empty if there are none."""
    entries = [
        {"name": name, "stage": part.stage, "version": part.version, "bytes": part.num_bytes}
        for name, part in parts.items()
    ]
    return {"parts": entries} if entries else {}


def raw_digests(stage: Stage, semantic: Any) -> Mapping[str, str]:
    """Returns name -> SHA-256 of the external content that a stage reads.

    If no file or folder that the config names is on this machine, the digests count that the machine recorded in the object store that
    built from them last, at the same paths. With some of them here, a record could be one of other bytes than these.

    Raises:
        InputError: the content is missing here and not on record, or is unreadable.
    """
    try:
        return stage.raw(semantic)
    except InputError:
        is_here = any(matches(path) for path in paths_in(semantic))
        found = None if is_here else kept_raw_digests(stage.name, semantic)
        if found is None:
            raise
        return found
