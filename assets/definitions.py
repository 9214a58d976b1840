"""Steps as Dagster assets; with assets/pipeline/shown.py, which shows them, the one place of this folder that knows Dagster.

A step becomes the asset `[pipeline, name]` in the group of its pipeline. Dagster never skips work and never decides whether an artifact is
current: the `code_version` is the hash of the whole recipe, the data version is the artifact's own, and the body asks the store first. So
an edited pipeline file marks exactly what it changes, and a reverted one finds its old artifacts. External content has an observable asset
of its own: `[pipeline, raw]`, `[pipeline, measured]`.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg

from graphmill.assets.building.child import KilledError
from graphmill.assets.building.labels import built_in_words, join_checks
from graphmill.assets.building.materialize import materialize, materialize_together
from graphmill.assets.building.page import markdown_code
from graphmill.assets.building.stage import ChecksFailedError, Progress, Silent
from graphmill.assets.cluster.pool import OnCluster
from graphmill.assets.pipeline.shown import (
    CONFIG,
    DATA_TAG,
    HOME,
    PIPELINE_FILE,
    WHOLE,
    WHOLE_SAYS,
    allowed_name,
    check_results,
    config_of,
    key_of,
    materialized,
    raw_key,
    raw_version,
    wholeness,
)
from graphmill.assets.pipeline.steps import Step, Versions, describe, find_all, find_inputs, recipe_hash
from graphmill.assets.sources.edges.asset import keep_table
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.names.upstream import forget_tables, steps_of
from graphmill.assets.storage.names.version import short
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.machine import here_and_now, seconds_since_boot
from graphmill.assets.storage.system.refused import refusal
from graphmill.kernels.errors import InputError

HIDDEN = ".dagster/graphmill-"
"""The first letters of tags that only programs read: Dagster shows none that begins with `.dagster/`."""
SLOT_TAG = f"{HIDDEN}slot"
"""The pool whose slot a step takes if it has work to do."""
MACHINE_TAG = f"{HIDDEN}machine"
"""Tag of a run: the machine that its steps run on (assets/storage/system/machine.py)."""
SEEN_TAG = f"{HIDDEN}seen"
"""Tag of a run: its id, and the seconds since that machine's boot at which a step of it was there."""
Body = Callable[[dg.AssetExecutionContext, Any], Iterator[Any]]
Slot = Callable[[dg.AssetExecutionContext], AbstractContextManager[None]]
"""Slot that a step holds while it builds, so that not too many build at once."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The surroundings in which asset bodies run: the store, and their listeners."""

    # The store of the artifacts.
    store: Store
    # Called once per body; a launcher that runs many bodies in one process returns one object for all, so raw files are read once.
    make_versions: Callable[[], Versions] = Versions
    # Listens to long operations, and may end them by raising.
    make_progress: Callable[[dg.AssetExecutionContext], Progress] = lambda context: Silent()
    # Gets a line about each artifact that is ready.
    report: Callable[[str], None] = lambda line: None
    # Address of the cluster that builds parts and trains; "" for this machine.
    on: str = ""
    # Whether the assets stand in the user's own project, whose assets that come first are there, too.
    in_project: bool = False

    @property
    def elsewhere(self) -> OnCluster | None:
        """The nodes that build parts, None for this machine."""
        return OnCluster(self.on) if self.on else None


def group_of(pipeline: str) -> str:
    """Returns the asset group of a pipeline: its name with the characters that Dagster allows."""
    return pipeline.replace("-", "_")


def source_assets(
    steps: Sequence[Step], execution: Any, around: Surroundings, slot: Slot | None = None, pool: str = ""
) -> dg.AssetsDefinition:
    """Returns the assets that one pass over a source builds in the step's own process: the graph and its feature tables.

    A run may ask for some of them; the pass then builds no others.

    Args:
        steps: steps of `OnePass` stages that read one source.
        slot: slot that the pass holds while it builds; None for none.
    """

    def body(context: dg.AssetExecutionContext, config: Any) -> Iterator[Any]:
        versions, store = around.make_versions(), around.store
        # The graph comes last: it takes the longest, and artifacts that are finished before it stay.
        asked = [step for step in reversed(steps) if key_of(step) in context.selected_asset_keys]
        if (after := dict.fromkeys(key for step in asked for key in step.after)) and not around.in_project:
            around.report(f"comes after {', '.join(after)}: assets of a Dagster project, which are not run from here")
        found = {step.name: find_all(store, step, versions) for step in asked}
        idle = all(each is not None for each in found.values())
        try:
            with _held(slot, context, idle=idle):
                for one_pass in zip_longest(*(step.apart for step in asked)):
                    # One pass, or one per split, of which the first builds the shared artifacts.
                    together = [step for step in one_pass if step is not None]
                    materialize_together(
                        store,
                        [(step.recipe, step.configs[0]) for step in together],
                        execution,
                        around.make_progress(context),
                        raw=[versions.raw(step.recipe, step.configs[0]) for step in together],
                        asked_by=["/".join(step.key) for step in together],
                    )
        except InputError as error:
            for step in asked:
                if (made := find_all(store, step, versions)) is not None:
                    yield from _finished(step, made, versions, around, reused=found[step.name] is not None)
                elif isinstance(error, ChecksFailedError) and error.version in versions.of(step):
                    yield from check_results(step, error.checks, whole=False)
            raise
        for step in asked:
            made = find_all(store, step, versions) or []
            yield from _finished(step, made, versions, around, reused=found[step.name] is not None)

    tables = steps[-1].recipe.loaded(steps[-1].configs[0]) if around.in_project else {}
    return asset_of(steps, body, around, pool=pool, tables=tables)


def _held(slot: Slot | None, context: dg.AssetExecutionContext, *, idle: bool) -> AbstractContextManager[None]:
    """Returns the slot that a step holds while it builds; none if all of its artifacts are there already."""
    return nullcontext() if slot is None or idle else slot(context)


def _finished(
    step: Step, artifacts: Sequence[Artifact], versions: Versions, around: Surroundings, *, reused: bool
) -> Iterator[Any]:
    """Reports a step's artifacts, one or one per split, and yields its events."""
    if step.external:
        raw = versions.raw(step.recipe, step.configs[0])
        yield dg.AssetObservation(asset_key=raw_key(step), metadata=dict(raw), tags={DATA_TAG: raw_version(raw)})
    for each, artifact in zip(step.apart, artifacts, strict=True):
        name = f"{step.name}, split {each.split}" if each.split else step.name
        around.report(f"{name}: {'reused' if reused else 'built'} {artifact.label}{built_in_words(artifact, reused)}")
        for check in artifact.summary["checks"]:
            if not check["passed"]:
                around.report(f"{name}: check failed: {check['name']}: {check['detail']}")
    yield materialized(step, artifacts, versions, reused=reused)


def stage_asset(
    step: Step, execution: Any, around: Surroundings, slot: Slot | None = None, pool: str = ""
) -> dg.AssetsDefinition:
    """Returns the asset that builds a step's artifact in the step's own process."""

    def body(context: dg.AssetExecutionContext, config: Any) -> Iterator[Any]:
        versions = around.make_versions()
        idle = find_all(around.store, step, versions) is not None
        artifacts = []
        try:
            with _held(slot, context, idle=idle):
                for each in step.apart:
                    found = find_inputs(around.store, each, versions)
                    artifacts.append(
                        materialize(
                            around.store,
                            step.recipe,
                            each.configs[0],
                            execution,
                            {role: found[role] for role in each.inputs},
                            around.make_progress(context),
                            raw=versions.raw(step.recipe, each.configs[0]),
                            asked_by="/".join(step.key),
                            elsewhere=around.elsewhere,
                        )
                    )
        except ChecksFailedError as error:
            yield from check_results(step, error.checks, whole=False)
            raise
        yield from _finished(step, artifacts, versions, around, reused=all(each.reused for each in artifacts))

    return asset_of([step], body, around, pool=pool)


def asset_of(
    steps: Sequence[Step],
    body: Body,
    around: Surroundings,
    *,
    config: type[dg.Config] | None = None,
    priority: int = 0,
    pool: str = "",
    tables: Mapping[str, Path] = MappingProxyType({}),
) -> dg.AssetsDefinition:
    """Returns the assets of steps that one body builds. A run may ask for some of them, and for checks of what is stored alone.

    Args:
        steps: the steps that the assets stand for; the first names the op.
        body: called with the context and the run's config (None without `config`); yields events and the result. An `InputError` becomes a
            failure that shows only its message.
        priority: steps of the highest priority among the ready ones begin first.
        pool: name of the pool whose slot the step takes if it has work to do, "" for none. A run begins no more of these at once than the
            pool has slots.
        tables: key of each asset of the user's own project whose table is loaded first -> file that keeps the table.
    """
    inputs = {f"table_{place}": key for place, key in enumerate(tables)}

    @dg.multi_asset(
        name=key_of(steps[0]).to_python_identifier(),
        specs=[_spec(step, around) for step in steps],
        ins={name: dg.AssetIn(dg.AssetKey.from_user_string(key)) for name, key in inputs.items()},
        can_subset=True,
        check_specs=[spec for step in steps for spec in _check_specs(step)],
        config_schema=dict(config.to_fields_dict()) if config else None,
        op_tags=({"dagster/priority": str(priority)} if priority else {}) | ({SLOT_TAG: pool} if pool else {}),
    )
    def build(context: dg.AssetExecutionContext, **loaded: Any):
        _note_machine(context)
        asked = context.selected_asset_keys
        with failing_by_message(), steps_of(context.run.run_id if around.in_project else ""):
            for step in steps:
                if key_of(step) not in asked:
                    yield from _stored_checks(context, step, around)
            if asked:
                get_run = context.instance.get_run_by_id
                for name, key in inputs.items():
                    keep_table(key, loaded[name], tables[key])
                    forget_tables(tables[key], lambda run_id: (run := get_run(run_id)) is None or run.is_finished)
                made = body(context, config(**context.op_execution_context.op_config) if config else None)
                yield from (_as_asked(event, context.selected_asset_check_keys) for event in made)

    return build


def _check_specs(step: Step) -> Iterator[dg.AssetCheckSpec]:
    for name in (*step.checks, WHOLE):
        yield dg.AssetCheckSpec(
            allowed_name(name),
            asset=key_of(step),
            description=WHOLE_SAYS if name == WHOLE else step.recipe.says.get(name, name),
            blocking=name not in (*step.recipe.warnings, WHOLE),
        )


def _as_asked(event: Any, asked: Set[dg.AssetCheckKey]) -> Any:
    """Returns an event of a body without results of checks that the run did not ask for, which Dagster would refuse."""
    if not isinstance(event, dg.MaterializeResult):
        return event
    return event._replace(check_results=[each for each in event.check_results or () if _key_of_check(each) in asked])


def _key_of_check(result: dg.AssetCheckResult) -> dg.AssetCheckKey:
    assert result.asset_key is not None and result.check_name is not None
    return dg.AssetCheckKey(result.asset_key, result.check_name)


def _stored_checks(
    context: dg.AssetExecutionContext, step: Step, around: Surroundings
) -> Iterator[dg.AssetCheckResult]:
    """Yields the results of a step's checks that a run asks for without the asset: those of the stored artifacts, whose bytes are read."""
    asked = [key for key in context.selected_asset_check_keys if key.asset_key == key_of(step)]
    if not asked:
        return
    try:
        made, why = find_all(around.store, step, around.make_versions()), f"{around.store.home} does not have it"
    except InputError as error:
        made, why = None, str(error)
    if made is None:
        context.log.warning(f"{'/'.join(step.key)} is not checked: {why}; build it first: {step.command}")
        return
    whole = any(key.name == allowed_name(WHOLE) for key in asked)
    wrong = [
        f"{each.label}: {problem}" for each in made if whole for problem in replace(each, path=each.here()).verify()
    ]
    checks = [*join_checks(made, step.checks, reused=True), wholeness(made, wrong, read=True)]
    yield from (result for result in check_results(step, checks) if _key_of_check(result) in asked)


@contextmanager
def failing_by_message() -> Iterator[None]:
    """Turns an error that a user can correct into a failure that shows only its message. A retry would end in the same, but for a kill."""
    try:
        yield
    except Exception as error:
        said = refusal(error)
        if said is None:
            raise
        raise dg.Failure(description=str(said), allow_retries=isinstance(error, KilledError)) from error


def _note_machine(context: dg.AssetExecutionContext) -> None:
    """Writes machine and time of a run's steps into its tags, so that the run is not taken for dead."""
    run, here = context.run, here_and_now()
    # A run that repeats another one begins with the tags of the other.
    if run.tags.get(MACHINE_TAG) != here or seen_at(run) is None:
        seen = f"{run.run_id} {seconds_since_boot():.2f}"
        context.instance.add_run_tags(run.run_id, {MACHINE_TAG: here, SEEN_TAG: seen})


def seen_at(run: dg.DagsterRun) -> float | None:
    """Returns the seconds since its machine's boot at which a step of a run was there, None if no step recorded it yet."""
    run_id, _, seconds = run.tags.get(SEEN_TAG, "").partition(" ")
    try:
        return float(seconds) if run_id == run.run_id else None
    except ValueError:  # anyone may write a tag
        return None


def _spec(step: Step, around: Surroundings) -> dg.AssetSpec:
    deps = [key_of(source) for source in step.followed]
    deps += [dg.AssetKey.from_user_string(key) for key in step.after]
    notes, page = step.origin.notes, step.recipe.page
    shown = {
        "recipe hash": short(recipe_hash(step)),
        CONFIG: config_of(step),
        **{f"reads {role}": dg.MetadataValue.asset(key_of(source)) for role, source in step.sources.items()},
        HOME: dg.MetadataValue.path(around.store.home.absolute()),
    }
    if (path := step.origin.path) is not None:
        shown[PIPELINE_FILE] = dg.MetadataValue.path(path.absolute())
    return dg.AssetSpec(
        key_of(step),
        deps=[*deps, raw_key(step)] if step.external else deps,
        description=describe(step, page, f"Command line: {markdown_code(step.command)}"),
        group_name=group_of(step.pipeline),
        code_version=short(recipe_hash(step)),
        kinds=set(page.kinds) if page else None,
        owners=list(notes.owners),
        tags=notes.tags,
        metadata={**shown, **_code_references(step)},
        skippable=True,
    )


def _code_references(step: Step) -> dict[str, Any]:
    """Returns the line of the pipeline file that asks for a step, and the page of the docs about it, as Dagster names them."""
    origin, page, places = step.origin, step.recipe.page, []
    # Code references are in beta; the versions of dagster that were tested are pinned.
    with warnings.catch_warnings(action="ignore", category=dg.BetaWarning):
        if origin.path is not None:
            label = f"{origin.path.name}:{origin.line}"
            places.append(dg.LocalFileCodeReference(file_path=str(origin.path), line_number=origin.line, label=label))
        if page is not None:
            places.append(dg.LocalFileCodeReference(file_path=str(ROOT / page.docs), label=page.docs))
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=places)} if places else {}


def raw_asset(step: Step, around: Surroundings) -> dg.SourceAsset:
    """Returns the observable asset of the outside content that a step reads; observing it digests the content."""
    page = step.recipe.external_page
    kinds = {f"dagster/kind/{kind}": "" for kind in page.kinds} if page else {}

    def observe():
        with failing_by_message():
            digests = around.make_versions().raw(step.recipe, step.configs[0])
        return dg.ObserveResult(data_version=dg.DataVersion(raw_version(digests)), metadata=dict(digests))

    # Observable sources are in beta; the versions of dagster that were tested are pinned.
    with warnings.catch_warnings(action="ignore", category=dg.BetaWarning):
        return dg.observable_source_asset(
            key=raw_key(step),
            group_name=group_of(step.pipeline),
            description=describe(step, page, f"Read by `{'/'.join(step.key)}`."),
            tags={**step.origin.notes.tags, **kinds},
        )(observe)
