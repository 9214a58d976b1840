"""`graphmill status PIPELINE`: the artifacts of a pipeline that are there, those that a run would build, and why."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.steps import Step, Versions
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.collect import asked_for
from graphmill.assets.storage.names.user_code import find_source, is_reference
from graphmill.assets.storage.names.version import canonical, short
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.results.views import flattened
from graphmill.jobs.operations.sound import unread_lines
from graphmill.jobs.runs.training import all_steps
from graphmill.trainers.record.checkpoint_head import Waiting, checkpoint_path, waiting_run

MOST_REASONS = 4
"""Reasons that are shown for one artifact."""
NEVER = "never built"
"""Reason for an artifact whose step was never built for this pipeline."""


@dataclass(frozen=True, kw_only=True)
class State:
    """One artifact that a pipeline asks for.

    Attributes:
        split: its split if the pipeline lists several, else "".
        waiting: the position that a run with --resume would go on from; None without a checkpoint.
        artifact: the one in the store, None if a run would build it.
        reasons: differences from the artifact that was built last for the step; empty if it is there, or none was built.
    """

    step: str
    label: str
    version: str
    artifact: Artifact | None
    reasons: tuple[str, ...] = ()
    split: str = ""
    waiting: Waiting | None = None

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
    stored, states, missing = store.artifacts(), [], set()
    for step in (one for each in all_steps(pipeline, store.home) for one in each.apart):
        for config, version in zip(step.configs, versions.of(step), strict=True):
            artifact, reasons = store.find(step.recipe.name, version), ()
            if artifact is None:
                missing.add(step.name)
                like = _asked_last(step, canonical(config), stored)
                reasons = () if like is None else tuple(_reasons(step, config, versions, like, missing))
            waiting = None if artifact else waiting_run(checkpoint_path(store.home / "checkpoints", version), version)
            label = f"{step.recipe.name}/{short(version)}"
            found = {"artifact": artifact, "reasons": reasons, "waiting": waiting}
            states.append(State(step=step.name, label=label, version=version, split=step.split, **found))
    return states


def print_status(pipeline: Pipeline, home: Path | None, write: Callable[[str], Any] = print) -> None:
    """Prints one line per artifact, and the work of a run; errors are those of `pipeline_states`."""
    states = pipeline_states(pipeline, home)
    width = max(len(state.name) for state in states)
    for state in states:
        if state.artifact is not None:
            what = f"is there     {format_bytes(state.artifact.total_bytes):>10}"
        else:
            more = len(state.reasons) - MOST_REASONS
            shown = [*state.reasons[:MOST_REASONS], *([f"{more} more"] if more > 0 else [])] or [NEVER]
            what = f"to be built  {'; '.join([str(state.waiting)] if state.waiting else shown)}"
        write(f"{state.name:{width}}  {state.label:28}  {what}")
    missing = sum(state.artifact is None for state in states)
    resume = " --resume" if any(state.waiting for state in states) else ""
    write(
        f"{missing} of {len(states)} to be built: graphmill run {pipeline.reference}{resume}"
        if missing
        else "everything is there"
    )
    for line in unread_lines(pipeline):
        write(line)


def status_json(pipeline: Pipeline, home: Path | None) -> list[dict[str, Any]]:
    """Returns a JSON-ready row for each artifact that a pipeline asks for: whether it is there, its bytes, or why it would be built."""
    return [
        {
            "step": state.step,
            "split": state.split or None,
            "stage": state.label.partition("/")[0],
            "version": state.version,
            "is_there": state.artifact is not None,
            "bytes": None if state.artifact is None else state.artifact.total_bytes,
            "reasons": [*state.reasons],
            "checkpoint": asdict(state.waiting) if state.waiting else None,
        }
        for state in pipeline_states(pipeline, home)
    ]


def _asked_last(step: Step, config: Any, artifacts: list[Artifact]) -> Artifact | None:
    """Returns the newest artifact that was built for a step, with the seed and the split of a config; None if there is none.

    Artifacts of other pipelines do not count, however alike they are.
    """
    wanted = asked_for({"asked_by": "/".join(step.key)}, config)
    own = [each for each in artifacts if asked_for(each.run_record(), each.config) == wanted]
    alike = [each for each in own if each.stage == step.recipe.name and each.config.get("split") == config.get("split")]
    return max(alike, key=lambda each: each.run_record().get("started", ""), default=None)


def _reasons(step: Step, config: Any, versions: Versions, like: Artifact, missing: set[str]) -> Iterator[str]:
    """Yields the differences between the artifact that a step asks for and one that is there."""
    if like.manifest["code_version"] != step.recipe.code_version:
        yield f"the stage has code version {step.recipe.code_version}, no longer {like.manifest['code_version']}"
    yield from _changed(flattened(like.config), flattened(canonical(config)))
    old, new = like.manifest["raw"], versions.raw(step.recipe, config)
    changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    code = {name: _own_code(config, name) for name in changed}
    yield from (f"other source of {reference}, {find_source(reference)}" for reference in code.values() if reference)
    if others := [name for name in changed if not code[name]]:
        yield f"other content outside: {', '.join(others)}"
    for role, source in step.inputs.items():
        entry = like.inputs.get(role, {})
        if versions.read(step, role) not in (entry.get("version"), entry.get("aspect_version")):
            yield f"{source.name} {'is to be built' if source.name in missing else 'is another one'}"


def _own_code(config: Any, role: str) -> str:
    """Returns the reference to a user's own code whose digest has a role among those of a config, "" if it is of other content."""
    table, key = {"model": ("train", "model"), "sampling": ("sampling", "method")}.get(role, ("", ""))
    reference = getattr(getattr(config, table, None), key, "")
    return reference if is_reference(reference) else ""


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield f"{key} = {new.get(key, '(none)')}, was {old.get(key, '(none)')}"
