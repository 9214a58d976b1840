"""Refuses what does not go together in a train table and its file, by the table of options and by rules.

trainers/recipe/option_table.py has the table, trainers/recipe/file_rules.py the rules. What is there and not used is noted: tables without
an effect, and attributes of edges. The models of graphmill read the neighbours of a node and nothing else of an edge, but for `rgcn` and
`rgat`, which read relations. Fan-outs per relation read those as well. Weighted sampling reads weights, and so does a model with
`edge_weight = true`. Your own model or sampler may read all attributes of a block, so nothing is said about those.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from graphmill.assets.building.keys import KeyProblem
from graphmill.assets.features.config import of_edges
from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.toml_text import KeyPath
from graphmill.assets.pipeline.train_schema import FileTables
from graphmill.assets.samples.sets import NOT_A_SET, SAMPLES, set_names, tables_of_set
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.fanouts import by_relation
from graphmill.assets.sampling.fanouts import spelled as fanouts_spelled
from graphmill.assets.score import SCORE, model_name
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.tasks.labels import CLASSES, LINKS, ON_EDGES
from graphmill.trainers.recipe.file_rules import RULES, wrong_set
from graphmill.trainers.recipe.links import SEES_LINKS, link_problems
from graphmill.trainers.recipe.option_table import (
    ALWAYS,
    CONDITIONS,
    FILLED,
    OPTIONS,
    Condition,
    FileCase,
    Limit,
    Option,
    Tables,
    changed,
)

MODELS = {
    "layers": "is a list of layers",
    "module": "is one module over blocks of DGL",
    "graph_module": "is one module over a graph",
    "buffers": "has buffers",
}
"""What a model of the user's own is found to be, by option."""
OWN_MODEL = "your own model may read them (docs/own-models.md)"
EDGE_ATTRIBUTES = {"weights": "edge weights", "edge_types": "relations (edge types)", "edge_ids": "edge ids"}
"""Attributes of edges in the graph artifact, and their names for people."""


class Clash(NamedTuple):
    """An option that a train table asks for and that does not go with its technique, by its cell of the table of options."""

    option: Option
    limit: Limit
    condition: Condition
    text: str


def clashes(case: FileCase, names: Collection[str] = OPTIONS.keys()) -> Iterator[Clash]:
    """Yields the options that a train table asks for and that do not go with its technique; other tables may be missing."""
    trainer = case.train.trainer
    for limit in case.train.technique.limits():
        if limit.option in names:
            option, condition = OPTIONS[limit.option], CONDITIONS[limit.when] if limit.when else ALWAYS
            if option.asked(case) and condition.holds(case):
                who = f'trainer = "{trainer}" {condition.words}'.rstrip()
                but = " has no effect, since" if limit.useless else ", but"
                remedy = limit.remedy.replace("{own}", f"[train.{trainer}]")
                text = f"{_shown(option, case)}{but} {who} {limit.why}: {remedy}"
                yield Clash(option, limit, condition, _of_set(text, case.train.sample_set))


def _of_set(text: str, sample_set: str) -> str:
    """Returns a sentence about stored samples as one about those of a sample set, "" for none."""
    if not sample_set:
        return text
    named = re.sub(r"(?<!\[)\[samples\]", f"[[samples]] {sample_set}:", text)
    return named.replace('samples = "stored"', f'samples = "{sample_set}"')


def table_problems(table: Any) -> Iterator[KeyProblem]:
    """Yields the clashes of a train table that it shows by itself."""
    for option, _, condition, text in clashes(FileCase(train=table, tables={})):
        if option.scope in ("train", "settings") and not condition.of_file and option.name not in FILLED:
            keys = [_below(option, table, key) for key in _changed_first(option, table)]
            yield KeyProblem(" ".join(keys) + " trainer", text)


def file_problems(file: FileTables) -> Iterator[tuple[KeyPath, str]]:
    """Yields the keys of train tables that contradict their file, and tables and keys without an effect on any; each with its problem."""
    if "sampling" not in file.tables and any(train is None or "sampling" in train.needs for train in file.train):
        yield ("train",), "[[train]] needs a table [sampling] with fanouts and batch_size"
    for index, (entry, train) in enumerate(zip(file.entries, file.train, strict=True)):
        where = ("train", index)
        tables = tables_of_set(file.tables, str(entry.get("samples", "")) if train is None else train.sample_set)
        written = {path[2] for path in file.lines if path[:2] == where and len(path) == 3}
        case = FileCase(train=train, tables=tables, seed=file.seed, written=written)  # pyright: ignore[reportArgumentType]
        if train is not None and (text := wrong_set(case)):  # which batches it would read is not known
            yield (*where, "samples"), text
            continue
        yield from (((*where, key), text) for key, text in _other_depth(entry, train, tables.get("sampling")))
        if train is not None:
            yield from (((*where, *path.split(".")), text) for path, text in _conflicts(case))
    yield from _of_links(file.tables)
    yield from _unread_edges(file)
    if None not in file.train:
        yield from (
            (path, text)
            for path, text, _, all_of in useless_tables(file.train, file.tables)
            if all_of and path in file.lines
        )


def _of_links(tables: Tables) -> Iterator[tuple[KeyPath, str]]:
    """Yields the keys of [sampling] that are for links alone, of a file with another task."""
    sampling, kind = tables.get("sampling"), getattr(tables.get("task"), "kind", CLASSES)
    if sampling is None or kind == LINKS or ("task" in tables and tables["task"] is None):
        return
    for key in changed(sampling, ("negatives", "per_positive", "known_negatives")):
        text = f"{key} = {_spelled(getattr(sampling, key))} is for [task] kind = 'links', and the kind is {kind!r}"
        yield ("sampling", key), f"{text}: remove the key"


def _unread_edges(file: FileTables) -> Iterator[tuple[KeyPath, str]]:
    """Yields the table of rows of edges if there are trainings and none reads it."""
    edges = getattr(file.tables.get("features"), "edges", None)
    if edges is not None and file.train and not any(train is None or train.edge_features for train in file.train):
        text = "[features.edges] is read by no training, since none has edge_features = true: remove the table"
        yield ("features", "edges"), text
    memory = file.tables.get("memory")
    if memory is None or memory.edge_disk is None or None in file.train or not file.train:
        return
    if not any(of_edges("packed_chunks") in train.reads for train in file.train):
        text = f"edge_disk = {_spelled(memory.edge_disk)} packs rows of edges, and no training reads packed rows with edge_features = true"
        yield ("memory", "edge_disk"), f"{text}: remove the key"


def _other_depth(entry: Mapping[str, Any], train: Any, sampling: Any) -> Iterator[tuple[str, str]]:
    """Yields the keys of a train table, with or without mistakes, whose depth or fan-outs contradict [sampling]."""
    if sampling is None or (train is not None and not train.sampled_by):
        return
    layers, own = (entry.get("layers"), ()) if train is None else (train.layers, train.fanouts)
    if type(layers) is not int:
        return
    if len(own or sampling.fanouts) != layers:
        of_sampling = (
            f'samples = "{name}" has' if (name := entry.get("samples", "online")) not in NOT_A_SET else "[sampling] has"
        )
        whose = f"fanouts = {fanouts_spelled(own)} has" if own else of_sampling
        text = f"layers = {layers}, but {whose} {len(own or sampling.fanouts)} fanouts: one is needed for each layer"
        yield ("fanouts" if own else "layers"), f"{text}; one number, fanouts = 10, stands for all layers"
    elif own and own != sampling.fanouts:
        given = f"fanouts = {fanouts_spelled(own)}"
        if sampling.schedule:
            yield "fanouts", f"{given}, but [sampling] has a schedule of its own fan-outs: leave one of them out"
        elif by_relation(own) and sampling.method != "uniform":
            for_uniform = 'has numbers per relation, which are for [sampling] method = "uniform"'
            yield "fanouts", f'{given} {for_uniform}, not "{sampling.method}"'


def _conflicts(case: FileCase) -> Iterator[tuple[str, str]]:
    """Yields the keys of a train table that contradict other tables, as paths below `[[train]]` with dots."""
    train = case.train
    if case.kind in ON_EDGES:
        yield from link_problems(train, case.kind, case.drawn, case.on_gpu, train.stored)
    for rule in (*RULES, *train.technique.rules()):
        if found := rule.broken(case):
            yield rule.key.replace("*", train.trainer), rule.text.format(case=case, found=found)
    for option, limit, condition, text in clashes(case):
        if option.scope == "file" and not limit.useless:
            yield condition.key.replace("*", train.trainer) or "trainer", text
        elif option.scope != "code" and (
            condition.of_file or (option.name in FILLED and option.keys[0] in case.written)
        ):
            yield _below(option, train, option.keys[0]), text


def pipeline_problems(pipeline: Pipeline) -> Iterator[tuple[KeyPath, str]]:
    """Yields the conflicts between train tables, in a file without other mistakes: over feature tables, and over models that they name."""
    yield from _mixed_features(pipeline)
    named: list[tuple[KeyPath, str, int]] = [
        (("train", place, "start"), table.start, place) for place, table in enumerate(pipeline.train) if table.start
    ]
    if pipeline.score is not None:
        named.append(((SCORE, "model"), pipeline.score.model, len(pipeline.train)))
    for path, text, place in named:
        name = model_name(text)
        if name.version or name.key[0] != pipeline.name:
            continue
        before = {table.name: table for table in pipeline.train[:place]}
        if name.table not in before:
            where = f"the tables above it are {', '.join(before) or '(none)'}"
            yield path, f'{path[-1]} = "{text}" names no table of this file that is trained before: {where}'
        elif len(before[name.table].seeds) > 1:
            yield path, f'{path[-1]} = "{text}" has several seeds: name one of its models, {text}@VERSION'
        elif path == (SCORE, "model") and before[name.table].edge_features:
            yield path, f'model = "{text}" reads rows of edges, which [score] does not give yet: name another model'


def _mixed_features(pipeline: Pipeline) -> Iterator[tuple[KeyPath, str]]:
    """Yields the conflicts between train tables over feature tables."""
    about_one = {stage.name for stage in stages() if stage.of_one_feature_table and stage.configs(pipeline)}
    shared = pipeline.shared_features
    for index, table in enumerate(pipeline.train):
        read = about_one & {*table.inputs, *table.reads}
        if read and table.feature_table != shared:
            about = f"[features.{shared}]" if shared else "the main table"
            what = f"{' and '.join(sorted(read))} of this pipeline are about {about}, which another [[train]] chooses"
            text = f'feature_table = "{table.feature_table}", but {what}'
            yield (
                ("train", index, "feature_table"),
                f"{text}; write a second pipeline file, it shares all stages that are equal",
            )


def useless_tables(
    trains: Sequence[Any], tables: Tables
) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...], bool]]:
    """Yields the tables and keys of a file that have no effect on trainings: (path, sentence, names of the trainings, on all of them)."""
    found: dict[tuple[str, str], list[str]] = {}
    for table in trains:
        for option, limit, _, text in clashes(FileCase(train=table, tables=tables_of_set(tables, table.sample_set))):
            if option.scope == "file" and limit.useless:
                found.setdefault((option.name, text), []).append(table.name)
    for (name, text), names in found.items():
        option = OPTIONS[name]
        all_of = {each for (other, _), named in found.items() if other == name for each in named}
        used = any(each in tables or (each == SAMPLES and set_names(tables)) for each in option.used_by) or len(
            all_of
        ) < len(trains)
        yield tuple(option.keys[0].split(".")), text, tuple(names), not used


def useless_lines(trains: Sequence[Any], tables: Tables) -> Iterator[str]:
    """Yields a note for each table or key of a file that has no effect on some of its trainings."""
    for _, text, names, _ in useless_tables(trains, tables):
        yield f"note: {', '.join(names)}: {text.rpartition(':')[0]}"


def sampling_problems(table: Any, sampling: Any) -> Iterator[str]:
    """Yields why a train table and [sampling] do not go together, for a training without a file."""
    for option, limit, _, text in clashes(FileCase(train=table, tables={"sampling": sampling})):
        if option.scope == "file" and not limit.useless:
            yield text


def unused_attributes(table: Any, sampling: SamplingConfig | None, stored: Collection[str]) -> list[str]:
    """Returns a sentence for each attribute of the edges that is stored and that a training does not use.

    Args:
        sampling: the `[sampling]` table of its pipeline, None without one.
        stored: names of the attributes that the graph has, of `EDGE_ATTRIBUTES`.
    """
    drawn = None if table.technique.whole_graph else sampling
    own = is_reference(table.model) or (drawn is not None and is_reference(drawn.method))
    equal = f'model = "{table.model}" treats all edges alike'
    found = {} if table.edge_features else {"edge_ids": "a training reads none"}
    drawn_by_relation = drawn is not None and by_relation(table.fanouts or drawn.fanouts)
    if not own and table.model not in ("rgcn", "rgat") and not drawn_by_relation:
        found["edge_types"] = f"{equal}; {OWN_MODEL}"
    if not own and (why := _without_weights(table, drawn)):
        found["weights"] = f"{equal}, and {why}"
    return [
        f"{words} are stored and not used: {found[name]}"
        for name, words in EDGE_ATTRIBUTES.items()
        if name in stored and name in found
    ]


def unused_lines(tables: Sequence[Any], sampling: SamplingConfig | None, stored: Collection[str]) -> Iterator[str]:
    """Yields a line for each attribute that train tables do not use, and for links that they see, with the names of those tables.

    Args:
        stored: as for `unused_attributes`.
    """
    found: dict[str, list[str]] = {}
    for table in tables:
        for sentence in unused_attributes(table, sampling, stored):
            found.setdefault(sentence, []).append(table.name)
    for table in tables:
        if table.predicts_links and not table.exclude_targets:
            found.setdefault(f"exclude_targets = false {SEES_LINKS}", []).append(table.name)
    yield from (f"note: {', '.join(names)}: {sentence}" for sentence, names in found.items())


def _without_weights(table: Any, drawn: SamplingConfig | None) -> str:
    """Returns why edge weights decide nothing in the blocks of a training, and how they would; "" if they do."""
    if table.edge_weight:
        return ""
    counts = "" if table.model == "pinsage" else "; edge_weight = true in [[train]] multiplies messages by them"
    if drawn is None:
        return f'trainer = "{table.trainer}" takes all neighbours of a node{counts}; other trainers draw by [sampling] method = "weighted"'
    if drawn.method != "weighted":
        return f'[sampling] method = "{drawn.method}" draws without them{counts}; method = "weighted" draws by them, or {OWN_MODEL}'
    if drawn.weights != "edge":
        return f'[sampling] weights = "{drawn.weights}" draws by other ones; weights = "edge" draws by them'
    if table.model == "gat" and not drawn.replace and all(fanout == -1 for fanout in drawn.fanouts):
        return "fanouts of -1 draw all neighbours; numbers in their place draw by weights"
    return ""


def _below(option: Option, table: Any, key: str) -> str:
    return f"{table.trainer}.{key}" if option.scope == "settings" else key


def _shown(option: Option, case: FileCase) -> str:
    if option.scope == "file":
        name, _, key = option.keys[0].partition(".")
        value = case.table(name, key) if key else None
        return f"[{name}]" + (
            f" {key} = {_spelled(value)}" if isinstance(value, str | bool | int) else f" {key}" if key else ""
        )
    if option.scope == "code":
        return f'model = "{case.train.model}" {MODELS[option.name]}'
    key = _changed_first(option, case.train)[0]
    return f"{key} = {_spelled(getattr(case.train.settings if option.scope == 'settings' else case.train, key))}"


def _changed_first(option: Option, train: Any) -> list[str]:
    """Returns the keys of an option, first those that are not as by default: a mistake is told at the line of its first key."""
    found = changed(train.settings if option.scope == "settings" else train, option.keys)
    return sorted(option.keys, key=lambda key: key not in found)


def _spelled(value: Any) -> str:
    if isinstance(value, tuple):
        return fanouts_spelled(value)
    return (
        json.dumps(value) if isinstance(value, str | bool) else f"{value:g}" if isinstance(value, float) else str(value)
    )
