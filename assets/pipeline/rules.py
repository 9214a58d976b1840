"""Checks the tables of a pipeline file, each by its own schema, and against each other.

A table's schema stands beside the stage that it configures. Nothing here stops at the first mistake: every function returns the
problems that it found, with their lines.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.building.stage import Stage
from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.pipeline.schedule import RUN, SCHEDULE, RunTable, ScheduleTable
from graphmill.assets.pipeline.schema import Problem, Tables
from graphmill.assets.pipeline.toml_text import KeyPath
from graphmill.assets.pipeline.train_schema import TrainSchema
from graphmill.assets.pipeline.words import sentence
from graphmill.assets.samples.config import SampleSet
from graphmill.assets.samples.sets import NOT_A_SET, SAMPLES, parse_sets, set_places, tables_of_set
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.fanouts import spelled
from graphmill.assets.score import SCORE, ScoreTable
from graphmill.assets.sources.task_table import TaskTable, sound_task
from graphmill.assets.sources.unread import EDGE_TABLE, has_edge_table, named_tables

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""Names of pipelines, train tables and feature tables, which are parts of asset keys and of paths."""

JOBS = ("preprocess", "train", "all")
"""Jobs of every pipeline; a train table of such a name would have an op of the job's name, and Dagster would load nothing."""

SAMPLING = "sampling"
"""A table that configures no stage of its own: several stages read it."""

TASK = "task"
"""A table that the graph stage reads beside its own, and the trainings by way of the graph."""


@dataclass(frozen=True, kw_only=True)
class Head(Checked):
    """The keys above the first table."""

    # Names the recipe; letters, digits, - and _.
    name: str
    # Keys every random decision.
    seed: int = field(default=0, metadata=within(0, 2**63 - 1))

    remedy = ""

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a name with other characters."""
        if not NAME.fullmatch(self.name):
            yield KeyProblem("name", f"name = {self.name!r} has other characters than letters, digits, - and _")


def table_names() -> tuple[str, ...]:
    """Returns the tables that a pipeline file may have, except [[train]]."""
    graph, *others = (stage.table for stage in stages() if stage.table)
    return (graph, TASK, SAMPLING, *others)


def parse_tables(raw: Mapping[str, Any], tables: Tables, seed: int) -> tuple[dict[str, Any], list[Problem]]:
    """Returns name -> checked value of each table that is there, None for one with mistakes, and the problems."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    if SAMPLING in raw:
        values[SAMPLING], problems = tables.parse(SamplingConfig, raw[SAMPLING], (SAMPLING,))
    if TASK in raw:  # the graph stage reports its mistakes
        values[TASK] = sound_task(raw[TASK], tables)
    catalogue = [stage for stage in stages() if stage.table]
    for stage in catalogue:
        # The graph's table is always parsed, so that its absence is a problem.
        if stage.table == SAMPLES and isinstance(raw.get(SAMPLES), list):
            found, wrong = parse_sets(raw[SAMPLES], tables, values.get(SAMPLING))
            values |= found
            problems += wrong
        elif stage.table in raw or stage is catalogue[0]:
            values[stage.table], found = stage.parse(raw, tables, seed)
            problems += found
    for stage in catalogue:
        if stage.table in raw:
            problems += _lacking_tables(stage, raw, values, tables)
    return values, problems


def _lacking_tables(
    stage: Stage, raw: Mapping[str, Any], values: Mapping[str, Any], tables: Tables
) -> Iterator[Problem]:
    """Yields the problems of a stage's table with other tables."""
    for needed, why in stage.needs.items():
        if needed not in raw:
            yield tables.problem((stage.table,), f"[{stage.table}] needs a table [{needed}]{why}")
    for name, where in {"": (stage.table,)}.items() if stage.table in values else set_places(raw).items():
        own = tables_of_set(values, name) if name else values
        for key, text in stage.problems(own) if own[stage.table] is not None else ():
            yield tables.problem((*where, key) if key else where, text)


def key_owners(raw: Mapping[str, Any], train_schema: type[TrainSchema] | None) -> dict[str, tuple[str, ...]]:
    """Returns key -> headers of the tables that have it, for the message about a key that stands in another table.

    `[graph]` is left out, whose keys depend on its source.

    Args:
        raw: the content of the file, whose trainings have sub-tables.
        train_schema: the dataclass of a `[[train]]` table; None leaves those keys out.
    """
    found: dict[str, list[str]] = {}
    for header, kind in _schemas(raw, train_schema):
        for each in fields(kind) if is_dataclass(kind) else ():
            if each.init and each.metadata.get("key", True) and header not in found.setdefault(each.name, []):
                found[each.name].append(header)
    return {key: tuple(headers) for key, headers in found.items()}


def _schemas(raw: Mapping[str, Any], train_schema: type[TrainSchema] | None) -> Iterator[tuple[str, Any]]:
    yield f"[{TASK}]", TaskTable
    yield f"[{SAMPLING}]", SamplingConfig
    yield f"[{SCHEDULE}]", ScheduleTable
    yield f"[{RUN}]", RunTable
    for stage in stages():
        if stage.table == SAMPLES and isinstance(raw.get(SAMPLES), list):
            yield f"[[{SAMPLES}]]", SampleSet
        elif stage.table:
            yield f"[{stage.table}]", stage.Table
    if train_schema is None:
        return
    yield "[[train]]", train_schema
    entries = raw.get("train")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and (named := train_schema.sub_table(entry)):
            yield f"[train.{named[0]}]", named[1]
    yield f"[{SCORE}]", ScoreTable


def table_conflicts(raw: Mapping[str, Any], values: Mapping[str, Any], tables: Tables) -> Iterator[Problem]:
    """Yields names that are taken, and the problems of [sampling] with other tables, of which one with mistakes is None."""
    yield from _impossible_names(raw, tables)
    yield from (tables.problem((SAMPLING, "weights"), text) for text in _lacking_weights(values))
    yield from (tables.problem((SAMPLING, key), text) for key, text in _without_attributes(values))


def _lacking_weights(tables: Mapping[str, Any]) -> Iterator[str]:
    """Yields the problem of weights of [sampling] in a feature table that the file lacks."""
    sampling: Any = tables.get(SAMPLING)
    features: Any = tables.get("features")
    name = getattr(sampling, "feature_table", None)
    named = getattr(features, "named", {})
    if name is None or name in named or ("features" in tables and features is None):
        return
    if name:
        known = ", ".join(named) or "(none)"
        yield (
            f'weights = "{sampling.weights}", but there is no feature table [features.{name}] (there are: {known}): add one with one '
            "column, or give in_degree, out_degree or the number of a column of the main table"
        )
    elif named and not features.alone:
        yield f'weights = "{sampling.weights}" is in the main feature table, which this file does not have: name one of {", ".join(named)}'


def _impossible_names(raw: Mapping[str, Any], tables: Tables) -> Iterator[Problem]:
    """Yields names of train tables and feature tables that cannot name an asset, or that name two."""
    reserved = {stage.name for stage in stages()} | {"raw", "measured", "mistakes", "needs_data"}
    reserved |= {SCORE} & raw.keys()
    named = [*named_tables(raw.get("features"))]
    # The external content of such tables has an asset, too.
    reserved |= {"raw_features", *(f"raw_features_{_as_identifier(name)}" for name in named)}
    given: list[tuple[KeyPath, Any]] = [(("features", name), name) for name in named]
    for table in (SAMPLES, "train"):
        entries = raw.get(table)
        listed = enumerate(entries) if isinstance(entries, list) else ()
        given += [((table, n, "name"), entry["name"]) for n, entry in listed if _has_name(entry)]
    first_of: dict[str, KeyPath] = {}
    for where, name in given:
        train = where[0] == "train"
        # Dagster names the op of an asset by its key, with _ for every other character than letters and digits.
        same = _as_identifier(name) if train else f"{where[0]}_{_as_identifier(name)}"
        if where[0] == SAMPLES:
            for stage in stages():
                if stage.by_sample_set and stage.name != SAMPLES:
                    first_of.setdefault(f"{stage.name}_{_as_identifier(name)}", where)
        if not NAME.fullmatch(name):
            text = f'"{name}" has other characters than letters, digits, - and _'
        elif where[0] == SAMPLES and name in NOT_A_SET:
            text = f'"{name}" is what `samples` of a training says without a set'
        elif where[0] == SAMPLES and name == EDGE_TABLE and has_edge_table(raw.get("features")):
            text = f'"{name}" names what is made of [features.edges]'
        elif train and same in reserved:
            text = f'"{name}" is the name of a stage'
        elif train and same in JOBS:
            text = f'"{name}" is the name of a job of the pipeline'
        elif (first := first_of.setdefault(same, where)) != where:
            table = f"[features.{first[1]}]" if first[0] == "features" else f"[[{first[0]}]]"
            text = f'"{name}" is taken by the {table} of line {tables.problem(first, "").line}'
        else:
            continue
        yield tables.problem(where, f"name = {text}; give another one")


def _as_identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _has_name(entry: Any) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("name"), str)


NO_RELATIONS = (
    'has numbers per relation, and the edges of source = "{source}" have no relations here: give one number per layer, or give '
    "the source relations (docs/own-data.md)"
)
"""End of the sentence about fan-outs per relation of a graph without relations."""


def _without_attributes(tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the keys of [sampling] that need what the source certainly does not give, and the problem of each."""
    sampling, graph = tables.get(SAMPLING), tables.get("graph")
    if sampling is None or graph is None:
        return
    if sampling.by_relation and "edge_types" in graph.never:
        yield "fanouts", f"fanouts = {spelled(sampling.fanouts)} {NO_RELATIONS.format(source=graph.source)}"
    if sampling.method == "weighted" and sampling.weights == "edge" and "weights" in graph.never:
        text = f'method = "weighted" draws by edge weights, and source = "{graph.source}" gives none here'
        yield "method", f'{text}: name the weights of the data (docs/own-data.md), or give weights = "node:COLUMN"'


def unknown_sections(raw: Mapping[str, Any], tables: Tables) -> list[Problem]:
    """Returns the problems of keys and tables that no pipeline has."""
    problems = []
    sections = ("name", "seed", "description", "owners", "tags", *table_names(), "train", SCORE, SCHEDULE, RUN)
    for key in raw:
        if key not in sections:
            said = sentence(key, "")
            hint = f": {said}" if said else tables.hint(key, sections) or f" (it has {', '.join(sections)})"
            problems.append(tables.problem((key,), f"a pipeline has no {key}{hint}"))
    return problems
