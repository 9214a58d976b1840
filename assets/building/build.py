"""How one artifact, a part of a fan-out stage included, is built and published."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from assets.building.stage import ChecksFailedError, Progress, Stage, Summary
from assets.storage.artifact import Artifact, read_artifact
from assets.storage.store import Store
from assets.storage.version import canonical, locations, part_version
from kernels.errors import InputError


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


SUFFIX, CLAIMS = ".parts", ".claims"


class FanOut(Stage, Protocol):
    """What a stage adds when it fans out. Its `build` is then called with `part=name`, and for the parent without.

    For the parent, `inputs` holds the finished parts too, under their names.

    Attributes:
        work_unit: what `work` counts, and what building a part reports as progress.
    """

    work_unit: str

    def parts(self, inputs: Mapping[str, Artifact], semantic: Any) -> Sequence[str]:
        """Returns the names of the parts, in order; () builds everything in the parent. Execution has no say in it."""
        ...

    def work(self, inputs: Mapping[str, Artifact], semantic: Any, part: str) -> int:
        """Returns how many units of progress building a part will report."""
        ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that building a part takes; travels to other processes.

    Attributes:
        store, stage, semantic, execution, inputs, raw: as in `assets.building.materialize.materialize`.
        of: version of the parent.
    """

    store: Store
    stage: FanOut
    semantic: Any
    execution: Any
    inputs: Mapping[str, Artifact]
    raw: Mapping[str, str]
    of: str

    def address(self, part: str) -> tuple[str, str]:
        """Returns stage and version of a part."""
        return self.stage.name + SUFFIX, part_version(self.of, part)

    def find(self, part: str) -> Artifact | None:
        """Returns a part that is there and sound."""
        return self.store.find(*self.address(part))

    def build(self, part: str, progress: Progress) -> Artifact:
        """Builds and publishes one part.

        Raises:
            InputError: as the stage raises it, with the name of the part.
        """
        with naming(f"part {part} of {self.stage.name}"):
            return build_artifact(
                self.store,
                self.stage,
                self.semantic,
                self.execution,
                self.inputs,
                Advancing(progress),
                address=self.address(part),
                raw=self.raw,
                more={"part": {"name": part, "stage": self.stage.name, "of": self.of}},
                part=part,
            )


class naming:  # noqa: N801
    """A context that puts words before the problem of an `InputError`."""

    def __init__(self, words: str):
        self.words = words

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ChecksFailedError):
            raise ChecksFailedError(f"{self.words}: {error.problem}", error.remedy, error.checks) from error
        if isinstance(error, InputError):
            raise InputError(f"{self.words}: {error.problem}", error.remedy) from error


class Advancing:
    """Passes only the advance on: the phases of parts are one phase of the whole."""

    def __init__(self, progress: Progress):
        self._progress = progress

    def start(self, label: str, total: int | None, unit: str) -> None:
        """Ignores the beginning of a part's phase."""

    def advance(self, n: int) -> None:
        """Passes the step on."""
        self._progress.advance(n)

    def done(self) -> None:
        """Ignores the end."""


def listed(parts: Mapping[str, Artifact]) -> dict[str, Any]:
    """Returns the field of a parent's manifest that lists its parts; empty where there are none."""
    entries = [
        {"name": name, "stage": part.stage, "version": part.version, "bytes": part.num_bytes}
        for name, part in parts.items()
    ]
    return {"parts": entries} if entries else {}
