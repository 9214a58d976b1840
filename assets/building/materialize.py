"""The one door through which stages run: `materialize`.

A stage turns input artifacts and a Semantic config into one artifact. Its version is known before it is built, so `materialize` asks the
store first and returns the stored artifact. Only the Semantic config, the inputs and raw digests are hashed; the Execution config (threads,
queues) and artifacts that are only read are recorded in run.json.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphmill.assets.building.build import Build, input_versions, publish_together, raw_digests
from graphmill.assets.building.stage import FanOut, Progress, Silent, Stage
from graphmill.assets.costs.needs import Need, require_free, sizes_of
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import version_of
from graphmill.assets.storage.store import Store

if TYPE_CHECKING:
    from graphmill.assets.building.parts import Elsewhere


def stage_version(stage: Stage, semantic: Any, inputs: Mapping[str, Artifact]) -> str:
    """Returns the version that `materialize` will build or find, 64 hex digits.

    Raises:
        InputError: raw input is missing, or cannot be read.
    """
    versions = input_versions(stage, inputs)
    return version_of(stage.name, stage.code_version, semantic, versions, raw_digests(stage, semantic))


def materialize(
    store: Store,
    stage: Stage,
    semantic: Any,
    execution: Any,
    inputs: Mapping[str, Artifact],
    progress: Progress | None = None,
    *,
    reads: Mapping[str, Artifact] | None = None,
    raw: Mapping[str, str] | None = None,
    anew: bool = False,
    asked_by: str = "",
    elsewhere: Elsewhere | None = None,
) -> Artifact:
    """Returns the stage's artifact, with `reused` set if the store had it; builds it only if it is missing or damaged.

    Args:
        store, stage, semantic, execution, inputs, reads, raw, anew, asked_by: as in `Build`; `anew` does not work for a fan-out stage.
        elsewhere: other machines that build the parts of a fan-out stage (assets/building/parts.py); None for this one.

    Inputs and the artifact are leased while it builds, so that no garbage collector removes them; the leases end with the call.

    Raises:
        InputError: an input is missing, removed meanwhile or of the wrong stage, the memory that the build needs is not there, a blocking
        check failed, or the disk is full. Nothing is published.
    """
    assert not (anew and isinstance(stage, FanOut)), f"parts of {stage.name} would be reused"
    given = {"store": store, "stage": stage, "semantic": semantic, "execution": execution, "inputs": inputs}
    build = Build(**given, reads=reads or {}, raw=raw, anew=anew, asked_by=asked_by)
    found = build.find()
    if found is not None and not anew:
        return build.share(found)
    read = [*build.inputs.values(), *build.reads.values()]
    with store.lease(build.address(), *((artifact.stage, artifact.version) for artifact in read)):
        build.require_inputs()
        return _build(build, progress or Silent(), elsewhere)


def _build(build: Build, listener: Progress, elsewhere: Elsewhere | None) -> Artifact:
    """Builds an artifact whose inputs are leased, with the parts that are missing."""
    names = build.stage.parts(build.inputs, build.semantic) if isinstance(build.stage, FanOut) else ()
    there = any(build.find(name) for name in names)
    # With parts that are there, or built elsewhere, the need of the whole says neither what is taken here nor how fast it is.
    apart = there or (names and elsewhere is not None)
    need, began, parts = None if apart else _require_fit(build), time.perf_counter(), {}
    if names:
        from graphmill.assets.building.parts import build_parts

        parts = build_parts(build, names, listener, elsewhere)
        # Another process may have been faster, or only a part was missing or damaged and is now built.
        found = build.find() if parts else None
        if found is not None:
            return found
    return build.publish(listener, parts=parts, work=(need, began))


def _require_fit(build: Build) -> Need | None:
    """Returns the exact need of a build, None if its stage has no formula.

    Raises:
        InputError: the memory that is free, and that this process has already, is less.
    """
    sizes = sizes_of({**build.inputs, **build.reads})
    need = build.stage.need(build.semantic, build.execution, sizes) if sizes else None
    require_free(need)
    return need


def materialize_together(
    store: Store,
    asked: Sequence[tuple[Stage, Any]],
    execution: Any,
    progress: Progress | None = None,
    *,
    raw: Sequence[Mapping[str, str] | None] | None = None,
    asked_by: Sequence[str] | None = None,
) -> list[Artifact]:
    """Returns artifacts that one pass over external content makes; builds those that the store lacks or that are damaged.

    Args:
        asked: stage and Semantic config of each artifact, of `OnePass` stages that read the same source. They are built in this order.
        raw: name -> SHA-256 of the external content of each artifact, None asks its stage.
        asked_by: PIPELINE/STEP that each is built for.

    Raises:
        InputError: external content is missing or damaged, the memory or the disk is too small, or a blocking check failed. Artifacts that
            were finished before stay.
    """
    digests = raw or [None] * len(asked)
    builds = [
        Build(store=store, stage=stage, semantic=semantic, execution=execution, inputs={}, raw=each, asked_by=name)
        for (stage, semantic), each, name in zip(asked, digests, asked_by or [""] * len(asked), strict=True)
    ]
    with store.lease(*(build.address() for build in builds)):
        found = {build.version: build.find() for build in builds}
        artifacts = {build.version: build.share(each) for build in builds if (each := found[build.version])}
        missing = {build.version: build for build in builds if build.version not in artifacts}
        if missing:
            for build in missing.values():
                require_free(build.stage.certain_need(build.semantic, execution))
            built = publish_together(list(missing.values()), progress or Silent())
            artifacts |= {artifact.version: artifact for artifact in built}
    return [artifacts[build.version] for build in builds]
