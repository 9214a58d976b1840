"""`graphmill status PIPELINE`: the artifacts of a pipeline that are there, those that a run would build, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.pipeline.data_steps import preprocessing_steps
from assets.pipeline.file import Pipeline
from assets.pipeline.steps import Step, Versions
from assets.sizes import format_bytes
from assets.storage.artifact import Artifact
from assets.storage.home import home_folder
from assets.storage.store import Store
from assets.storage.version import canonical, short
from jobs.commands.views import flattened
from jobs.runs.training import training_steps

MOST_REASONS = 4
"""Reasons that are shown for one artifact."""


@dataclass(frozen=True, kw_only=True)
class State:
    """One artifact that a pipeline asks for.

    Attributes:
        step: name of the step.
        split: its split if the pipeline lists several, else "".
        label: stage and version.
        version: the full version.
        artifact: the one in the store, None if a run would build it.
        reasons: differences from the most similar artifact of that stage; empty if it is there, or the store has none of the stage.
    """

    step: str
    label: str
    version: str
    artifact: Artifact | None
    reasons: tuple[str, ...] = ()
    split: str = ""

    @property
    def name(self) -> str:
        """Step, and split if there are several."""
        return f"{self.step}, split {self.split}" if self.split else self.step


def pipeline_states(pipeline: Pipeline, home: Path | None) -> list[State]:
    """Returns the state of every artifact of a pipeline, in the order in which a run would build them; builds nothing.

    Raises:
        InputError: raw content is missing or unreadable.
    """
    store, versions = Store(home), Versions()
    data = preprocessing_steps(pipeline, home_folder(home))
    stored, states, missing = store.artifacts(), [], set()
    steps = [*data, *training_steps(pipeline, data)]
    for step in (one for each in steps for one in each.apart):
        for config, version in zip(step.configs, versions.of(step), strict=True):
            artifact, reasons = store.find(step.recipe.name, version), ()
            if artifact is None:
                missing.add(step.name)
                like = _most_like(canonical(config), [each for each in stored if each.stage == step.recipe.name])
                reasons = () if like is None else tuple(_reasons(step, config, versions, like, missing))
            label = f"{step.recipe.name}/{short(version)}"
            states.append(
                State(
                    step=step.name, label=label, version=version, artifact=artifact, reasons=reasons, split=step.split
                )
            )
    return states


def print_status(pipeline: Pipeline, home: Path | None, write: Callable[[str], Any] = print) -> None:
    """Prints one line per artifact, and the work of a run.

    Raises:
        InputError: raw content is missing or unreadable.
    """
    states = pipeline_states(pipeline, home)
    width = max(len(state.name) for state in states)
    for state in states:
        if state.artifact is not None:
            what = f"is there     {format_bytes(state.artifact.total_bytes):>10}"
        else:
            more = len(state.reasons) - MOST_REASONS
            shown = [*state.reasons[:MOST_REASONS], *([f"{more} more"] if more > 0 else [])]
            what = f"to be built  {'; '.join(shown) or 'nothing like it was built before'}"
        write(f"{state.name:{width}}  {state.label:28}  {what}")
    missing = sum(state.artifact is None for state in states)
    write(
        f"{missing} of {len(states)} to be built: graphmill run {pipeline.reference}"
        if missing
        else "everything is there"
    )


def status_json(pipeline: Pipeline, home: Path | None) -> list[dict[str, Any]]:
    """Returns a JSON-ready row for each artifact that a pipeline asks for: whether it is there, its bytes, or why it would be built.

    Raises:
        InputError: raw content is missing or unreadable.
    """
    return [
        {
            "step": state.step,
            "split": state.split or None,
            "stage": state.label.partition("/")[0],
            "version": state.version,
            "is_there": state.artifact is not None,
            "bytes": None if state.artifact is None else state.artifact.total_bytes,
            "reasons": [*state.reasons],
        }
        for state in pipeline_states(pipeline, home)
    ]


def _most_like(config: Any, artifacts: list[Artifact]) -> Artifact | None:
    """Returns the artifact with the fewest keys that differ, the newest of several; None without artifacts."""
    wanted = flattened(config)

    def distance(artifact: Artifact) -> int:
        found = flattened(artifact.config)
        return sum(wanted.get(key) != found.get(key) for key in {*wanted, *found})

    newest_first = sorted(artifacts, key=lambda each: each.run_record().get("started", ""), reverse=True)
    return min(newest_first, key=distance, default=None)


def _reasons(step: Step, config: Any, versions: Versions, like: Artifact, missing: set[str]) -> Iterator[str]:
    """Yields the differences between the artifact that a step asks for and one that is there."""
    if like.manifest["code_version"] != step.recipe.code_version:
        yield f"the stage has code version {step.recipe.code_version}, no longer {like.manifest['code_version']}"
    yield from _changed(flattened(like.config), flattened(canonical(config)))
    old, new = like.manifest["raw"], versions.raw(step.recipe, config)
    changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    if changed:
        yield f"other content outside: {', '.join(changed)}"
    for role, source in step.inputs.items():
        entry = like.inputs.get(role, {})
        if versions.read(step, role) not in (entry.get("version"), entry.get("aspect_version")):
            yield f"{source.name} {'is to be built' if source.name in missing else 'is another one'}"


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield f"{key} = {new.get(key, '(none)')}, was {old.get(key, '(none)')}"
