"""Steps as Dagster assets; the one file of this folder that knows Dagster.

A step becomes the asset `[pipeline, name]` in the group of its pipeline. Dagster never skips work and never decides whether an artifact is
current: the `code_version` is the hash of the whole recipe, the data version is the artifact's own, and the body asks the store first. So
an edited pipeline file marks exactly what it changes, and a reverted one finds its old artifacts. External content has an observable asset
of its own: `[pipeline, raw]`, `[pipeline, measured]`.
"""

import base64
import hashlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg

from graphmill.assets.building.labels import built_in_words, join_checks, joined, labelled
from graphmill.assets.building.materialize import materialize, materialize_together
from graphmill.assets.building.page import ordered, table_of
from graphmill.assets.building.stage import Check, ChecksFailedError, Progress, Silent
from graphmill.assets.cluster.pool import OnCluster
from graphmill.assets.pipeline.steps import Step, Versions, describe, find_all, find_inputs, joint_version, recipe_hash
from graphmill.assets.sources.edges.asset import keep_table
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.names.version import canonical, canonical_json, short
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.machine import here_and_now, seconds_since_boot
from graphmill.assets.storage.system.refused import refusal
from graphmill.kernels.errors import InputError

TRIAL = "trial"
"""Part of the keys of assets whose keys of the pipeline file were set for one command."""

CONFIG, SUMMARY = "config", "summary"
FIGURE_BYTES = 100_000
"""Largest figure that is stored with a materialisation, which takes about twice its bytes; a larger one is named by its path."""

WHOLE = "stored bytes are whole"
"""The check of every asset that reads its artifacts again, when it is executed alone."""
WHOLE_SAYS = "Every byte of the stored artifact matches its digest. They are read when the check is executed alone."

NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_]")
HIDDEN = ".dagster/graphmill-"
"""The first letters of tags that only programs read: Dagster shows none that begins with `.dagster/`."""
SLOT_TAG = f"{HIDDEN}slot"
"""The pool whose slot a step takes if it has work to do."""
MACHINE_TAG = f"{HIDDEN}machine"
"""Tag of a run: the machine that its steps run on (assets/storage/system/machine.py)."""
SEEN_TAG = f"{HIDDEN}seen"
"""Tag of a run: its id, and the seconds since that machine's boot at which a step of it was there."""
INPUT_TAG = "dagster/input_data_version/"
DATA_TAG = "dagster/data_version"

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


class UndeclaredCheckError(RuntimeError):
    """A stage declares other checks than it makes; this is a defect of the stage."""


def group_of(pipeline: str) -> str:
    """Returns the asset group of a pipeline: its name with the characters that Dagster allows."""
    return pipeline.replace("-", "_")


def allowed_name(name: str) -> str:
    """Returns the name of a check, or of a group, with the characters that Dagster allows."""
    return NOT_ALLOWED.sub("_", name)


def key_of(step: Step) -> dg.AssetKey:
    """Returns the asset key of a step; that of a trial leaves the last materialisation of the file's own step as it is."""
    return dg.AssetKey([step.pipeline, *([TRIAL] if step.trial else []), step.name])


def source_assets(
    steps: Sequence[Step], execution: Any, around: Surroundings, slot: Slot | None = None, pool: str = ""
) -> dg.AssetsDefinition:
    """Returns the assets that one pass over a source builds in the step's own process: the graph and its feature tables.

    A run may ask for some of them; the pass then builds no others.

    Args:
        steps: steps of `OnePass` stages that read one source.
        execution: the Execution config of the pass.
        around: the store and the listeners.
        slot: slot that the pass holds while it builds; None for none.
        pool: name of the slot's pool, "" for none.
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
                    yield from _check_results(step, error.checks, whole=False)
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
        yield dg.AssetObservation(asset_key=raw_key(step), metadata=dict(raw), tags={DATA_TAG: _raw_version(raw)})
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
    """Returns the asset that builds a step's artifact in the step's own process.

    Args:
        step: a step with one config, or with one per split.
        execution: Execution config of its stage.
        around: the store and the listeners.
        slot: slot that the step holds while it builds; None for none.
        pool: name of the slot's pool, "" for none.
    """

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
            yield from _check_results(step, error.checks, whole=False)
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
        around: the store whose artifacts are checked.
        config: class of the settings of a run.
        priority: steps of the highest priority among the ready ones begin first.
        pool: name of the pool whose slot the step takes if it has work to do, "" for none. A run begins no more of these at once than the
            pool has slots.
        tables: key of each asset of the user's own project whose table is loaded first -> file that keeps the table.
    """
    inputs = {f"table_{place}": key for place, key in enumerate(tables)}

    @dg.multi_asset(
        name=key_of(steps[0]).to_python_identifier(),
        specs=[_spec(step) for step in steps],
        ins={name: dg.AssetIn(dg.AssetKey.from_user_string(key)) for name, key in inputs.items()},
        can_subset=True,
        check_specs=[
            dg.AssetCheckSpec(
                allowed_name(name),
                asset=key_of(step),
                description=WHOLE_SAYS if name == WHOLE else step.recipe.says.get(name, name),
                blocking=name not in (*step.recipe.warnings, WHOLE),
            )
            for step in steps
            for name in (*step.checks, WHOLE)
        ],
        config_schema=dict(config.to_fields_dict()) if config else None,
        op_tags=({"dagster/priority": str(priority)} if priority else {}) | ({SLOT_TAG: pool} if pool else {}),
    )
    def build(context: dg.AssetExecutionContext, **loaded: Any):
        _note_machine(context)
        asked = context.selected_asset_keys
        with _failing_by_message():
            for step in steps:
                if key_of(step) not in asked:
                    yield from _stored_checks(context, step, around)
            if asked:
                for name, key in inputs.items():
                    keep_table(key, loaded[name], tables[key])
                made = body(context, config(**context.op_execution_context.op_config) if config else None)
                yield from (_as_asked(event, context.selected_asset_check_keys) for event in made)

    return build


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
    checks = [*join_checks(made, step.checks, reused=True), _wholeness(made, wrong, read=True)]
    yield from (result for result in _check_results(step, checks) if _key_of_check(result) in asked)


def _wholeness(artifacts: Sequence[Artifact], wrong: Sequence[str], *, read: bool) -> Check:
    """Returns the check of the bytes of artifacts, with the problems that were found if they were read."""
    num_bytes = sum(artifact.total_bytes for artifact in artifacts)
    how = "were read and compared with their digests" if read else "are stored; execute this check alone to read them"
    detail = "; ".join(wrong[:5]) or f"{num_bytes:,} bytes {how}"
    return Check(name=WHOLE, passed=not wrong, detail=detail, numbers={"problems": len(wrong), "bytes": num_bytes})


@contextmanager
def _failing_by_message() -> Iterator[None]:
    """Turns an error that a user can correct into a failure that shows only its message."""
    try:
        yield
    except Exception as error:
        said = refusal(error)
        if said is None:
            raise
        raise dg.Failure(description=str(said), allow_retries=False) from error


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


def _spec(step: Step) -> dg.AssetSpec:
    deps = [key_of(source) for source in step.sources.values()]
    deps += [dg.AssetKey.from_user_string(key) for key in step.after]
    notes, page = step.origin.notes, step.recipe.page
    shown = {
        "recipe hash": short(recipe_hash(step)),
        CONFIG: _config(step),
        **{f"reads {role}": dg.MetadataValue.asset(key_of(source)) for role, source in step.sources.items()},
    }
    return dg.AssetSpec(
        key_of(step),
        deps=[*deps, raw_key(step)] if step.external else deps,
        description=describe(step, page, f"Command line: `{step.command}`"),
        group_name=group_of(step.pipeline),
        code_version=short(recipe_hash(step)),
        kinds=set(page.kinds) if page else None,
        owners=list(notes.owners),
        tags=notes.tags,
        metadata={**shown, **_code_references(step)},
        skippable=True,
    )


def _config(step: Step) -> dg.MetadataValue:
    """Returns the config of a step; of several, which differ in the seed or the split, a list."""
    configs = [canonical(each) for each in step.configs]
    return dg.MetadataValue.json(configs[0] if len(configs) == 1 else configs)


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


def _column_lineage(step: Step, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns which columns of the source decide those that an artifact has, under Dagster's key; {} if none is known."""
    named = step.recipe.columns_from(step.configs[0]) if step.external else {}
    deps = {
        name: [dg.TableColumnDep(asset_key=raw_key(step), column_name=named[name])] for name in columns if name in named
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(deps_by_column=deps)} if deps else {}


def raw_key(step: Step) -> dg.AssetKey:
    """Returns the key of the outside content that a step reads."""
    return dg.AssetKey([step.pipeline, *([TRIAL] if step.trial else []), step.external])


def raw_asset(step: Step, around: Surroundings) -> dg.SourceAsset:
    """Returns the observable asset of the outside content that a step reads; observing it digests the content."""
    page = step.recipe.external_page
    kinds = {f"dagster/kind/{kind}": "" for kind in page.kinds} if page else {}

    def observe():
        with _failing_by_message():
            digests = around.make_versions().raw(step.recipe, step.configs[0])
        return dg.ObserveResult(data_version=dg.DataVersion(_raw_version(digests)), metadata=dict(digests))

    # Observable sources are in beta; the versions of dagster that were tested are pinned.
    with warnings.catch_warnings(action="ignore", category=dg.BetaWarning):
        return dg.observable_source_asset(
            key=raw_key(step),
            group_name=group_of(step.pipeline),
            description=describe(step, page, f"Read by `{'/'.join(step.key)}`."),
            tags={**step.origin.notes.tags, **kinds},
        )(observe)


def materialized(
    step: Step,
    artifacts: Sequence[Artifact],
    versions: Versions,
    *,
    reused: bool,
    extra: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.MaterializeResult:
    """Returns the materialisation of a step: versions, inputs, numbers, figures and checks.

    Args:
        step, artifacts: the step, and its artifacts in the store, one per config.
        versions: versions of this run.
        reused: whether nothing had to be built.
        extra: more metadata.
        tags: more tags of the event.
    """
    read = {f"{INPUT_TAG}{key_of(source).to_user_string()}": versions.joint(source) for source in step.sources.values()}
    if step.external:
        raw = versions.raw(step.recipe, step.configs[0])
        read[f"{INPUT_TAG}{raw_key(step).to_user_string()}"] = _raw_version(raw)
    checks = [*join_checks(artifacts, step.checks, reused=reused), _wholeness(artifacts, (), read=False)]
    shown = _metadata(step, artifacts, extra or {})
    return dg.MaterializeResult(
        asset_key=key_of(step),
        data_version=dg.DataVersion(joint_version(tuple(artifact.version for artifact in artifacts))),
        metadata=shown | {"artifacts": ", ".join(artifact.label for artifact in artifacts), "reused": reused},
        tags={**read, **(tags or {})},
        check_results=list(_check_results(step, checks)),
    )


def figure(title: str, png: bytes) -> dg.MarkdownMetadataValue:
    """Returns a PNG as Markdown with the image inside: Dagster has no metadata type for images."""
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(png).decode()})")


def _metadata(step: Step, artifacts: Sequence[Artifact], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata for the UI, most important first: a headline, numbers, one summary with all figures, then lists and paths.

    Args:
        step: the step.
        artifacts: its artifacts in the store; of several, numbers are means.
        extra: more numbers, figures and tables.
    """
    page, first = step.recipe.page, artifacts[0]
    names = page.labels if page else {}
    figures = {name: value.value for name, value in extra.items() if isinstance(value, dg.MarkdownMetadataValue)}
    found = {
        name: joined([artifact.summary["numbers"].get(name) for artifact in artifacts])
        for name in ordered(page, first.summary["numbers"])
    }
    found |= {name: value for name, value in extra.items() if not isinstance(value, dg.MarkdownMetadataValue)}
    found["stored_bytes"] = sum(artifact.total_bytes for artifact in artifacts)
    found["build_seconds"] = sum(artifact.run_record().get("seconds", 0.0) for artifact in artifacts)
    if unread := first.run_record().get("unread"):
        found["not_read"] = "; ".join(unread)
    numbers: dict[str, Any] = {}
    for name, value in found.items():
        label, value = labelled(name, value)
        numbers[names.get(name, label)] = _shown(value)
    if len(artifacts) == 1:
        for title, file_name in first.summary["figures"].items():
            png, path = first.content_of(file_name), first.path / file_name
            figures[title] = figure(title, png).value if len(png) <= FIGURE_BYTES else f"{title}: `{path}`"
    line = page.headline(artifacts) if page else ""
    shown: dict[str, Any] = {SUMMARY: dg.MetadataValue.md("\n\n".join([line, *figures.values()]))}
    if figures and line:
        # Dagster hides a long text behind a button, so the line stands above it, too.
        shown = {"headline": line.replace("**", "")} | shown
    scalars = {label: value for label, value in numbers.items() if not isinstance(value, dg.MetadataValue)}
    # The path of an artifact is too long for the table, which would then cut the rows above it.
    places = {"dagster/uri": first.path.as_uri(), CONFIG: _config(step)}
    return shown | scalars | numbers | _table_metadata(step, first) | places


def _table_metadata(step: Step, artifact: Artifact) -> dict[str, Any]:
    """Returns rows, columns and where these come from under Dagster's keys; {} if no file of the artifact is a table."""
    num_rows, columns = table_of(step.recipe.page, artifact) if step.recipe.page else (0, {})
    if not columns:
        return {}
    listed = [dg.TableColumn(name, kind, description) for name, (kind, description) in columns.items()]
    schema = dg.MetadataValue.table_schema(dg.TableSchema(listed))
    return {"dagster/column_schema": schema, "dagster/row_count": num_rows} | _column_lineage(step, columns)


def _shown(value: Any) -> Any:
    """Returns a value as metadata: rows with the same columns as a table, other lists and dicts as JSON."""
    if isinstance(value, int | float | str | bool | dg.MetadataValue):
        return value
    if value and isinstance(value, list) and all(isinstance(r, dict) and r.keys() == value[0].keys() for r in value):
        # The subject of a row comes first: stored numbers have their keys in the order of the alphabet.
        columns = sorted(value[0], key=lambda name: not isinstance(value[0][name], str))
        return dg.MetadataValue.table(records=[dg.TableRecord({name: row[name] for name in columns}) for row in value])
    return dg.MetadataValue.json(value)


def _check_results(step: Step, checks: Sequence[Check], *, whole: bool = True) -> Iterator[dg.AssetCheckResult]:
    """Yields one result for each check that the step declares, with its sentence and its numbers.

    A failed check that does not block is a warning; stages that read the artifact go on.

    Args:
        step: step that declares the checks.
        checks: checks that were made.
        whole: whether an artifact was published; a stage whose checks failed may have stopped before it made the others.

    Raises:
        UndeclaredCheckError: the checks that were made differ from the declared ones, so that one would never be seen.
    """
    made = {name: [check for check in checks if check.name == name] for name in (*step.checks, WHOLE)}
    missing = [name for name, found in made.items() if not found]
    strange = sorted({check.name for check in checks} - made.keys())
    if strange or (missing and whole):
        raise UndeclaredCheckError(
            f"{'/'.join(step.key)} made no checks named {missing} and undeclared ones named {strange}"
        )
    for name, found in ((name, found) for name, found in made.items() if found):
        yield dg.AssetCheckResult(
            asset_key=key_of(step),
            check_name=allowed_name(name),
            passed=all(check.passed for check in found),
            severity=dg.AssetCheckSeverity.ERROR if any(c.blocking for c in found) else dg.AssetCheckSeverity.WARN,
            description="; ".join(check.detail for check in found if check.detail) or "passed",
            metadata={label: value for check in found for label, value in check.numbers.items()},
        )


def _raw_version(digests: Mapping[str, str]) -> str:
    return hashlib.sha256(canonical_json(dict(digests))).hexdigest()
