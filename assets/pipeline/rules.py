"""Checks the tables of a pipeline file, each by its own schema, and against each other.

A table's schema stands beside the stage that it configures. Nothing here stops at the first mistake: every function returns the
problems that it found, with their lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from graphmill.assets.building.keys import ConfigError
from graphmill.assets.building.stage import Stage
from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.pipeline.schema import Problem, Tables
from graphmill.assets.pipeline.toml_lines import KeyPath
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.fanouts import by_relation, spelled
from graphmill.assets.sources.interface import GraphConfig, TableConfig

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""Names of pipelines, train tables and feature tables, which are parts of asset keys and of paths."""

JOBS = ("preprocess", "train", "all")
"""Jobs of every pipeline; a train table of such a name would have an op of the job's name, and Dagster would load nothing."""

SAMPLING = "sampling"
"""The one table that configures no stage of its own: several stages read it."""


def table_names() -> tuple[str, ...]:
    """Returns the tables that a pipeline file may have, except [[train]]."""
    graph, *others = (stage.table for stage in stages() if stage.table)
    return (graph, SAMPLING, *others)


def parse_tables(raw: Mapping[str, Any], tables: Tables, seed: int) -> tuple[dict[str, Any], list[Problem]]:
    """Returns name -> checked value of each table that is there, None for one with mistakes, and the problems.

    Args:
        raw: the file's content.
        tables: tables with its lines.
        seed: seed of the pipeline, the default of the graph's.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    if SAMPLING in raw:
        values[SAMPLING], problems = tables.parse(SamplingConfig, raw[SAMPLING], (SAMPLING,))
    catalogue = [stage for stage in stages() if stage.table]
    for stage in catalogue:
        # The graph's table is always parsed, so that its absence is a problem.
        if stage.table in raw or stage is catalogue[0]:
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
    if values[stage.table] is not None:
        for key, text in stage.problems(values):
            yield tables.problem((stage.table, key) if key else (stage.table,), text)


def parse_train(entries: Any, tables: Tables, schema: type | None) -> tuple[tuple[Any, ...], list[Problem]]:
    """Returns the checked train tables, None for each with mistakes, and the problems.

    Args:
        entries: the value of `train` in the file.
        tables: tables with the lines.
        schema: the dataclass of a train table; None leaves them unchecked.
    """
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        return (), [tables.problem(("train",), "train is a list of tables: write [[train]] with two brackets")]
    parsed, problems = [], []
    for index, entry in enumerate(entries):
        value, found = (dict(entry), []) if schema is None else _parse_entry(entry, tables, schema, ("train", index))
        parsed.append(value)
        problems += found
    return tuple(parsed), problems


def _parse_entry(entry: Mapping[str, Any], tables: Tables, schema: type, where: KeyPath) -> tuple[Any, list[Problem]]:
    """Returns a train table, with the settings of its technique if it has their sub-table."""
    named = schema.sub_table(entry) if hasattr(schema, "sub_table") else None
    if named is None or named[0] not in entry:
        return tables.parse(schema, entry, where)
    name, settings_class = named
    settings, problems = tables.parse(settings_class, entry[name], (*where, name))
    rest = {key: value for key, value in entry.items() if key != name}
    value, found = tables.parse(schema, rest, where, {"settings": settings})
    return (None if problems else value), problems + found


def impossible(raw: Mapping[str, Any], values: Mapping[str, Any], tables: Tables) -> list[Problem]:
    """Returns the problems between tables: names that are taken, a missing [sampling], a depth that differs from the sampler's."""
    problems = list(_impossible_names(raw, tables))
    problems += [tables.problem((SAMPLING, "weights"), text) for text in _lacking_weights(values["tables"])]
    problems += [tables.problem((SAMPLING, key), text) for key, text in _without_attributes(values["tables"])]
    entries = raw.get("train", [])
    if not isinstance(entries, list) or not entries:
        return problems
    sampling = values["tables"].get(SAMPLING)
    needing = [value for value in values["train"] if "sampling" in _needs(value)]
    if "sampling" not in raw and needing:
        problems.append(tables.problem(("train",), "[[train]] needs a table [sampling] with fanouts and batch_size"))
    for index, (entry, value) in enumerate(zip(entries, values["train"], strict=False)):
        where = ("train", index)
        problems += [tables.problem((*where, key), text) for key, text in _other_fanouts(entry, value, sampling)]
        if text := _unknown_features(getattr(value, "feature_table", ""), values["tables"]):
            problems.append(tables.problem((*where, "feature_table"), text))
        if hasattr(value, "technique"):
            problems += [tables.problem((*where, key), text) for key, text in _lacking(raw, value, values)]
            written = {path[2] for path in tables.lines if path[:2] == where and len(path) == 3}
            problems += [
                tables.problem((*where, *path), text) for path, text in value.conflicts(values["tables"], written)
            ]
    problems += [tables.problem(path, text) for path, text in _useless(values, tables)]
    return problems


def _useless(values: Mapping[str, Any], tables: Tables) -> Iterator[tuple[KeyPath, str]]:
    """Yields the tables and keys of a file that have an effect on none of its trainings, and the problem of each."""
    trains = [value for value in values["train"] if hasattr(value, "technique")]
    if trains and len(trains) == len(values["train"]):
        yield from ((path, text) for path, text in trains[0].useless(trains, values["tables"]) if path in tables.lines)


def _other_fanouts(entry: Mapping[str, Any], value: Any, sampling: Any) -> Iterator[tuple[str, str]]:
    """Yields the keys of a train table whose depth or fan-outs contradict those of [sampling], and the problem of each."""
    layers, own = getattr(value, "layers", entry.get("layers")), tuple(getattr(value, "fanouts", ()))
    if sampling is None or type(layers) is not int or not getattr(value, "sampled_by", "it does"):
        return
    if len(own or sampling.fanouts) != layers:
        whose = f"fanouts = {spelled(own)} has" if own else "[sampling] has"
        text = f"layers = {layers}, but {whose} {len(own or sampling.fanouts)} fanouts: one is needed for each layer"
        yield ("fanouts" if own else "layers"), f"{text}; one number, fanouts = 10, stands for all layers"
    elif own and own != sampling.fanouts:
        given = f"fanouts = {spelled(own)}"
        if sampling.schedule:
            yield "fanouts", f"{given}, but [sampling] has a schedule of its own fan-outs: leave one of them out"
        elif by_relation(own) and sampling.method != "uniform":
            yield (
                "fanouts",
                f'{given} has numbers per relation, which are for [sampling] method = "uniform", not "{sampling.method}"',
            )


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
    features = raw.get("features")
    named = (
        [name for name, keys in features.items() if isinstance(keys, Mapping)] if isinstance(features, Mapping) else []
    )
    # The external content of such tables has an asset, too.
    reserved |= {"raw_features", *(f"raw_features_{_as_identifier(name)}" for name in named)}
    given: list[tuple[KeyPath, Any]] = [(("features", name), name) for name in named]
    entries = raw.get("train")
    if isinstance(entries, list):
        given += [(("train", n, "name"), entry["name"]) for n, entry in enumerate(entries) if _has_name(entry)]
    first_of: dict[str, KeyPath] = {}
    for where, name in given:
        train = where[0] == "train"
        # Dagster names the op of an asset by its key, with _ for every other character than letters and digits.
        same = _as_identifier(name) if train else f"features_{_as_identifier(name)}"
        if not NAME.fullmatch(name):
            text = f'"{name}" has other characters than letters, digits, - and _'
        elif train and same in reserved:
            text = f'"{name}" is the name of a stage'
        elif train and same in JOBS:
            text = f'"{name}" is the name of a job of the pipeline'
        elif (first := first_of.setdefault(same, where)) != where:
            table = "[[train]]" if first[0] == "train" else f"[features.{first[1]}]"
            text = f'"{name}" is taken by the {table} of line {tables.problem(first, "").line}'
        else:
            continue
        yield tables.problem(where, f"name = {text}; give another one")


def _as_identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _has_name(entry: Any) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("name"), str)


def _unknown_features(chosen: str, tables: Mapping[str, Any]) -> str:
    """Returns the problem of the feature table that a train table names, "" if there is none."""
    if not chosen:
        return ""
    if "features" not in tables:
        return f"feature_table needs a table [features.{chosen}]"
    known = getattr(tables["features"], "named", None)
    if known is None or chosen in known:
        return ""
    return f'feature_table = "{chosen}" is not one of {", ".join(known) or "(none)"}: add a table [features.{chosen}]'


def mixed_features(pipeline: Any, tables: Tables) -> list[Problem]:
    """Returns the conflicts between train tables over feature tables, in a file without other mistakes.

    Args:
        pipeline: the checked file.
        tables: tables with its lines.
    """
    about_one = {stage.name for stage in stages() if stage.of_one_feature_table and stage.configs(pipeline)}
    problems, shared = [], pipeline.shared_features
    for index, table in enumerate(pipeline.train):
        name = getattr(table, "feature_table", "")
        read = about_one & {*table.inputs, *table.reads} if hasattr(table, "technique") else set()
        if read and name != shared:
            about = f"[features.{shared}]" if shared else "the main table"
            text = (
                f'feature_table = "{name}", but {" and ".join(sorted(read))} of this pipeline are about {about}, which another '
                "[[train]] chooses; write a second pipeline file, it shares all stages that are equal"
            )
            problems.append(tables.problem(("train", index, "feature_table"), text))
    return problems


def _lacking(raw: Mapping[str, Any], table: Any, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the keys of a train table that ask for tables that the file lacks, and the problem of each."""
    named = f'trainer = "{table.trainer}"'
    missing = [f"[{name}]" for name in table.needs if name not in raw and name != "sampling"]
    if missing:
        yield "trainer", f"{named} needs {' and '.join(missing)}"
    elif table.stored and (text := _unstored(raw, table, values)):
        yield ("trainer", named + text) if table.technique.stored else ("samples", f'samples = "stored"{text}')
    sampling = _drawn_by(table, values["tables"].get(SAMPLING))
    yield from _by_relation(table, sampling)
    if table.edge_weight and table.sampled_by and sampling and (why := sampling.without_weights()):
        yield (
            "edge_weight",
            f"edge_weight = true multiplies messages by edge weights, but [sampling] {why}: remove the key",
        )
    if table.reads_relations and table.sampled_by and sampling and (why := sampling.without_relations()):
        yield "model", f'model = "{table.model}" reads relations, but [sampling] {why}: take another model'
    if graph := values["tables"].get("graph"):
        yield from _without_data(table, graph, _features_of(table, values["tables"]))
        if table.sampled_by and by_relation(table.fanouts) and "edge_types" in graph.never:
            yield "fanouts", f"fanouts = {spelled(table.fanouts)} {ABSENT['fanouts'].format(source=graph.source)}"


ABSENT: Mapping[str, str] = {
    "edge_types": 'has matrices per relation, and the edges of source = "{source}" have no relations here: take another model, or give '
    "the source relations (docs/own-data.md)",
    "weights": 'multiplies messages by edge weights, and source = "{source}" gives none here: remove the key, or name the weights '
    "of the data (docs/own-data.md)",
    "featureless": 'has a row for each node of the types without features, and all node types of source = "{source}" have features '
    "here: remove the key",
    "fanouts": 'has numbers per relation, and the edges of source = "{source}" have no relations here: give one number per layer, or give '
    "the source relations (docs/own-data.md)",
    "node_types": 'has a projection per node type, and the nodes of source = "{source}" have no types here: set input = "linear"',
}
"""Attribute of a graph, or a key of tables, -> the end of the sentence about a key that needs it, if the graph lacks it."""


def _features_of(table: Any, tables: Mapping[str, Any]) -> TableConfig | None:
    """Returns the feature table of a train table; None if the file has no valid table of that name."""
    features: Any = tables.get("features")
    if features is None:
        return None if table.feature_table or "features" in tables else TableConfig()
    return features.named.get(table.feature_table) if table.feature_table else features.main


def _without_data(table: Any, graph: GraphConfig, features: TableConfig | None) -> Iterator[tuple[str, str]]:
    """Yields the keys of a train table that need what the source certainly does not give, and the problem of each."""
    own = features is not None and features.file is None and features.columns is None
    if table.embedding == "node" and features is not None and features.file is not None and features.node_type is None:
        text = "has a row for each node of the types without features, and the file of the feature table has rows of all nodes"
        yield "embedding", f'embedding = "node" {text}: remove the key, or name the node_type of the rows'
    wanted = (
        ("embedding", "featureless", table.embedding == "node" and own),
        ("model", "edge_types", table.reads_relations),
        ("edge_weight", "weights", table.edge_weight),
        ("input", "node_types", table.input == "typed"),
    )
    for key, attribute, needed in wanted:
        if needed and attribute in graph.never:
            value = json.dumps(getattr(table, key))
            yield key, f"{key} = {value} {ABSENT[attribute].format(source=graph.source)}"


def _without_attributes(tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the keys of [sampling] that need what the source certainly does not give, and the problem of each."""
    sampling, graph = tables.get(SAMPLING), tables.get("graph")
    if sampling is None or graph is None:
        return
    if sampling.by_relation and "edge_types" in graph.never:
        yield "fanouts", f"fanouts = {spelled(sampling.fanouts)} {ABSENT['fanouts'].format(source=graph.source)}"
    if sampling.method == "weighted" and sampling.weights == "edge" and "weights" in graph.never:
        text = f'method = "weighted" draws by edge weights, and source = "{graph.source}" gives none here'
        yield "method", f'{text}: name the weights of the data (docs/own-data.md), or give weights = "node:COLUMN"'


def _drawn_by(table: Any, sampling: Any) -> Any:
    """Returns [sampling] with the fan-outs of a train table, unchanged if they do not fit it."""
    try:
        return replace(sampling, fanouts=table.fanouts) if sampling and table.fanouts else sampling
    except ConfigError:  # reported by `_other_fanouts`
        return sampling


def _by_relation(table: Any, sampling: Any) -> Iterator[tuple[str, str]]:
    """Yields the keys of a train table that fan-outs per relation contradict, and the problem of each."""
    if sampling and sampling.by_relation and table.sampled_by and (why := table.without_relations()):
        yield "model", f"fanouts has numbers per relation, but {why}: give one number per layer, or take another model"


def _needs(table: Any) -> tuple[str, ...]:
    """Returns the tables that a train table needs; an unchecked one is taken to sample."""
    return table.needs if hasattr(table, "technique") else ("sampling",)


def _unstored(raw: Mapping[str, Any], table: Any, values: Mapping[str, Any]) -> str:
    """Returns the rest of the sentence that says why a train table cannot take stored samples, "" if it can."""
    samples, sampling, seed = values["tables"].get("samples"), values["tables"].get(SAMPLING), values.get("seed")
    if "samples" not in raw:
        return " needs a table [samples]"
    if table.seeds and set(table.seeds) != {seed} and not (sampling and sampling.sampling_seed is not None):
        drawn = f"but samples are drawn by the pipeline's seed = {seed}, not by seeds = {list(table.seeds)}"
        return f", {drawn}: set `sampling_seed` in [sampling], by which all of them draw"
    if samples and sampling and not sampling.reuse and table.epochs > samples.epochs > 0:
        have = f"[samples] has epochs = {samples.epochs}"
        return f" with epochs = {table.epochs}, but {have} and [sampling] has no reuse"
    return ""
