"""What a stage is, and the one door through which stages run: `materialize`.

A stage turns input artifacts and a Semantic config into one artifact. Its version is known before it is built, so
`materialize` asks the store first and returns what is there. Only the Semantic config, the inputs and raw digests are
hashed; the Execution config (threads, queues) is recorded in run.json.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from assets.artifact import Artifact, read_artifact
from assets.needs import require
from assets.recipe import canonical, locations, version_of
from assets.store import Store
from assets.writer import Writer
from kernels.errors import InputError

__all__ = [
    "Check",
    "ChecksFailedError",
    "Progress",
    "Silent",
    "Stage",
    "Summary",
    "canonical",
    "materialize",
    "require",
    "version_of",
]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One statement about an artifact that was tested while it was built."""

    name: str
    # What was tested, in a few words: "rows are sorted".
    passed: bool
    # Whether it holds.
    detail: str = ""
    # The numbers behind it: what was found, where.
    blocking: bool = True
    # Whether nothing may be published when it fails.


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What an artifact says about itself; it is content, so it holds no times, hosts or paths."""

    numbers: Mapping[str, Any] = field(default_factory=dict)
    # Name -> int, finite float, text, or a list or dict of these.
    checks: tuple[Check, ...] | list[Check] = ()
    # What was tested.
    figures: Mapping[str, str] = field(default_factory=dict)
    # Title -> file name of a PNG in the artifact.


class ChecksFailedError(InputError):
    """Blocking checks of an artifact failed, so it was not published; `checks` has all of them, passed ones too."""

    def __init__(self, problem: str, remedy: str, checks: tuple[Check, ...]):
        super().__init__(problem, remedy)
        self.checks = checks


class Progress(Protocol):
    """Listens to a long operation."""

    def start(self, label: str, total: int | None, unit: str) -> None:
        """A phase begins: what, how many units (None when unknown), of what."""
        ...

    def advance(self, n: int) -> None:
        """n more units are done."""
        ...

    def done(self) -> None:
        """The phase is over."""
        ...


class Silent:
    """The `Progress` that says nothing."""

    def start(self, label: str, total: int | None, unit: str) -> None:
        """Ignores the beginning."""

    def advance(self, n: int) -> None:
        """Ignores the step."""

    def done(self) -> None:
        """Ignores the end."""


class Stage(Protocol):
    """What `materialize` needs to know about a stage; a plain object or a module-level instance.

    A stage may also fan out into parts that are artifacts of their own: `assets.parts.FanOut` says what it adds.

    Attributes:
        name: the stage's folder in the store.
        code_version: raised by hand when the same config would build other bytes.
        Semantic, Execution: the dataclasses of its two configs.
    """

    name: str
    code_version: int
    Semantic: type
    Execution: type

    def inputs(self, semantic: Any) -> Mapping[str, str]:
        """Returns role -> stage name of the inputs; may depend on the config."""
        ...

    def raw(self, semantic: Any) -> Mapping[str, str]:
        """Returns name -> SHA-256 of the external content that is read; every `Path` in the config must be covered."""
        ...

    def build(
        self, inputs: Mapping[str, Artifact], semantic: Any, execution: Any, writer: Writer, progress: Progress
    ) -> Summary:
        """Fills the writer and returns the summary; does not publish."""
        ...


def stage_version(stage: Stage, semantic: Any, inputs: Mapping[str, Artifact]) -> str:
    """Returns the version that `materialize` will build or find, 64 hex digits.

    Raises:
        InputError: raw input is missing, or cannot be read.
    """
    return version_of(stage.name, stage.code_version, semantic, _versions(inputs), _raw(stage, semantic))


def materialize(
    store: Store,
    stage: Stage,
    semantic: Any,
    execution: Any,
    inputs: Mapping[str, Artifact],
    progress: Progress | None = None,
) -> Artifact:
    """Returns the stage's artifact, building it only when the store does not have it, sound, already.

    Args:
        store: where artifacts live.
        stage: what to build.
        semantic, execution: its configs; only the first is hashed.
        inputs: role -> artifact, as `stage.inputs(semantic)` names them.
        progress: listener, None for silence.

    Inputs and output are leased while it builds, so that no garbage collector takes them away; the leases end with the
    call.

    Returns:
        The artifact; `reused` tells whether it was there already.

    Raises:
        InputError: an input is missing, removed meanwhile or of the wrong stage, a blocking check failed, or the disk
        is full. Nothing is published.
    """
    _check_roles(stage, semantic, inputs)
    raw = _raw(stage, semantic)
    version = version_of(stage.name, stage.code_version, semantic, _versions(inputs), raw)
    found = store.find(stage.name, version)
    if found is not None:
        return replace(found, reused=True)
    with store.lease((stage.name, version), *((artifact.stage, artifact.version) for artifact in inputs.values())):
        _check_presence(stage, inputs)
        listener, more = progress or Silent(), {}
        if fans_out(stage):
            from assets.parts import Job, build_parts, listed

            about: dict[str, Any] = {"semantic": semantic, "execution": execution, "inputs": inputs, "raw": raw}
            job = Job(store=store, stage=stage, of=version, **about)  # pyright: ignore[reportArgumentType]
            parts = build_parts(job, stage.parts(inputs, semantic), listener)  # pyright: ignore[reportAttributeAccessIssue]
            # Another process may have been faster, or only a part was missing or damaged: that was built.
            found = store.find(stage.name, version) if parts else None
            if found is not None:
                return found
            more = {"more": listed(parts), "parts": parts}
        address = (stage.name, version)
        return build_artifact(store, stage, semantic, execution, inputs, listener, address=address, raw=raw, **more)


def fans_out(stage: Any) -> bool:
    """Tells whether a stage builds parts; see assets/parts.py. A stage without the method has none."""
    return hasattr(stage, "parts")


def build_artifact(
    store: Store,
    stage: Stage,
    semantic: Any,
    execution: Any,
    inputs: Mapping[str, Artifact],
    progress: Progress,
    *,
    address: tuple[str, str],
    raw: Mapping[str, str],
    more: Mapping[str, Any] | None = None,
    parts: Mapping[str, Artifact] | None = None,
    part: str | None = None,
) -> Artifact:
    """Builds and publishes one artifact, a part or a parent included, without asking whether it is there; `materialize`
    is the door.

    Args:
        store, stage, semantic, execution, inputs, progress: as in `materialize`.
        address: stage and version to publish at.
        raw: name -> SHA-256 of external content.
        more: further fields of the manifest.
        parts: the finished parts of a fan-out stage.
        part: which part is to be built.
    """
    started, clock = datetime.now(UTC), time.perf_counter()
    with store.writer(*address, threads=min(4, os.cpu_count() or 1)) as writer:
        named = {} if part is None else {"part": part}
        summary = stage.build({**inputs, **(parts or {})}, semantic, execution, writer, progress, **named)
        _stop_on_failed(stage, summary)
        run = {
            "started": started.isoformat(timespec="milliseconds"),
            "seconds": round(time.perf_counter() - clock, 3),
            "execution": canonical(execution),
            "locations": locations(semantic),
            "host": {"name": platform.node(), "cpus": os.cpu_count(), "python": platform.python_version()},
        }
        return writer.publish(semantic, inputs, summary, run, code_version=stage.code_version, raw=raw, more=more)


def _versions(inputs: Mapping[str, Artifact]) -> dict[str, str]:
    return {role: artifact.version for role, artifact in inputs.items()}


def _raw(stage: Stage, semantic: Any) -> dict[str, str]:
    raw = dict(stage.raw(semantic))
    # A path is not hashed; unless the bytes behind it are, two different graphs would share a version.
    assert raw or not locations(semantic), f"stage {stage.name} reads {locations(semantic)} without a raw digest"
    return raw


def _check_roles(stage: Stage, semantic: Any, inputs: Mapping[str, Artifact]) -> None:
    wanted = dict(stage.inputs(semantic))
    given = {role: artifact.stage for role, artifact in inputs.items()}
    if wanted != given:
        raise InputError(f"stage {stage.name} reads {wanted}, but was given {given}", "pass one artifact for each role")


def _check_presence(stage: Stage, inputs: Mapping[str, Artifact]) -> None:
    """Looks again for inputs that were found before they were leased: a collector may have been faster."""
    for role, artifact in inputs.items():
        try:
            read_artifact(artifact.path)
        except (FileNotFoundError, ValueError) as error:
            raise InputError(
                f"stage {stage.name} was to read {role} {artifact.label}, which was removed or damaged meanwhile: {error}",
                "run the same command again: what is missing will be rebuilt",
            ) from error


def _stop_on_failed(stage: Stage, summary: Summary) -> None:
    failed = [check for check in summary.checks if check.blocking and not check.passed]
    if failed:
        listed = "".join(f"\n  {check.name}: {check.detail or 'failed'}" for check in failed)
        count = f"{len(failed)} check{'s' if len(failed) > 1 else ''}"
        raise ChecksFailedError(
            f"stage {stage.name} failed {count}, so nothing was published:{listed}",
            "correct the input and build again",
            tuple(summary.checks),
        )
