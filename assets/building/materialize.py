"""What a stage is, and the one door through which stages run: `materialize`.

A stage turns input artifacts and a Semantic config into one artifact. Its version is known before it is built, so
`materialize` asks the store first and returns what is there. Only the Semantic config, the inputs and raw digests are
hashed; the Execution config (threads, queues) is recorded in run.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assets.building.build import _check_presence, build_artifact
from assets.building.stage import Progress, Silent, Stage
from assets.storage.artifact import Artifact
from assets.storage.store import Store
from assets.storage.version import locations, version_of
from kernels.errors import InputError


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
            from assets.building.build import Job, listed
            from assets.building.parts import build_parts

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
    """Tells whether a stage builds parts; see assets/building/parts.py. A stage without the method has none."""
    return hasattr(stage, "parts")


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
