"""What a train table asks of the other tables of its file: one rule per mistake, each with its key and its sentence.

trainers/recipe/option_table.py is the table of what a technique cannot do; these rules are about what is there. A technique has rules of
its own beside its limits (trainers/techniques/refusals.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from graphmill.assets.pipeline.rules import NO_RELATIONS
from graphmill.assets.samples.sets import NOT_A_SET
from graphmill.assets.sampling.fanouts import by_relation, spelled
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.tasks.labels import LINKS, OF_LABEL, ON_EDGES
from graphmill.kernels.errors import did_you_mean
from graphmill.trainers.recipe.architecture import LABEL_HEADS
from graphmill.trainers.recipe.option_table import FileCase
from graphmill.trainers.record.scores import METRICS_OF


class FileRule(NamedTuple):
    """What a train table asks of the other tables of its file."""

    # Path below `[[train]]` of the key that is refused; * stands for the sub-table.
    key: str
    # What is wrong with a case; "", False or None if nothing is.
    broken: Callable[[FileCase], Any]
    # The sentence, in which {case} is the case and {found} what `broken` returned.
    text: str


def _unknown_features(case: FileCase) -> str:
    """Returns the names of the feature tables if the chosen one is not among them."""
    named = getattr(case.tables.get("features"), "named", None)
    if not case.train.feature_table or named is None or case.train.feature_table in named:
        return ""
    return ", ".join(named) or "(none)"


def _needed(case: FileCase) -> str:
    return case.missing(*(name for name in case.train.needs if name != "sampling"))


def _unstored(case: FileCase) -> str:
    """Returns the rest of the sentence that says why a training cannot take stored samples, "" if it can or takes none."""
    train, samples, sampling = case.train, case.tables.get("samples"), case.tables.get("sampling")
    if not train.stored or _needed(case):
        return ""
    if "samples" not in case.tables:
        return " needs a table [samples]"
    if train.seeds and set(train.seeds) != {case.seed} and not (sampling and sampling.sampling_seed is not None):
        drawn = f"but samples are drawn by the pipeline's seed = {case.seed}, not by seeds = {list(train.seeds)}"
        return f", {drawn}: set `sampling_seed` in [sampling], by which all of them draw"
    if samples and sampling and not sampling.reuse and train.epochs > samples.epochs > 0:
        have = f"[samples] has epochs = {samples.epochs}"
        return f" with epochs = {train.epochs}, but {have} and [sampling] has no reuse"
    return ""


def wrong_set(case: FileCase) -> str:
    """Returns the sentence about `samples` of a training that names no sample set of the file, or none where it has to."""
    train, choices = case.train, (*NOT_A_SET, *case.sets)
    if train.sample_set:
        given = f'samples = "{train.samples}" is not one of {", ".join(choices)}'
        return "" if train.sample_set in case.sets else f"{given}{did_you_mean(train.samples, choices)}"
    asks = f'trainer = "{train.trainer}"' if train.samples == "online" else 'samples = "stored"'
    which = f"{asks} needs the name of one of [[samples]]: give samples = one of {', '.join(case.sets)}"
    return which if train.stored and case.sets else ""


def _of_all_nodes(case: FileCase) -> bool:
    """Tells whether the feature table is a file with rows of all nodes."""
    return case.features is not None and case.features.file is not None and case.features.node_type is None


def _of_source(case: FileCase) -> bool:
    """Tells whether the source gives the rows of the feature table."""
    return case.features is not None and case.features.file is None and case.features.columns is None


def _without_edge_rows(case: FileCase) -> str:
    """Returns the end of the sentence about a training that gets no rows of edges, "" if it gets some."""
    if "features" not in case.tables or (case.tables["features"] and case.tables["features"].edges is None):
        return "the file has no table [features.edges]: add it, or remove the key"
    if case.drawn and (case.drawn.method == "random_walk" or is_reference(case.drawn.method)):
        return f'[sampling] method = "{case.drawn.method}" draws nodes, and no edges of the graph: remove the key'
    if case.kind in ON_EDGES:
        return f"[task] kind = '{case.kind}' gives batches none yet: remove the key"
    return ""


KINDS_OF = {
    "class_weights": ("classes", "edge_classes"),
    "label_smoothing": ("classes", "edge_classes"),
    "pos_weight": ("multilabel",),
    "error": ("regression", "edge_regression"),
    **dict.fromkeys(("link_head", "exclude_targets", "row_penalty"), ON_EDGES),
    **dict.fromkeys(("link_loss", "margin"), (LINKS,)),
}
"""Key of a train table -> the kinds of `[task]` for which it has a meaning."""


def _foreign(case: FileCase, key: str) -> str:
    """Returns the end of the sentence about a key that has no meaning for the kind of task, "" for another key."""
    kind, value = case.kind, getattr(case.train, key)
    if not case.kind_known or kind in KINDS_OF[key] or value == getattr(type(case.train), key):
        return ""
    return f"{value!r} is for [task] kind = {' or '.join(map(repr, KINDS_OF[key]))}, and the kind is {kind!r}: remove the key"


def _foreign_metric(case: FileCase) -> str:
    """Returns the metrics of the kind of task if the table names another one, else ""."""
    known = METRICS_OF[case.kind]
    return "" if case.train.metric in known or not case.kind_known else ", ".join(known)


EXACT_LATER = (
    'rows of all neighbours are as of no time, and [sampling] before = "seed" leaves out those later than a seed'
)
"""Why an evaluation by all neighbours and neighbours as of a time contradict each other."""
AFTER_START = "begins with its own initial values, and not with those of `start`: remove one of them"
"""Why rows of nodes in files and the weights of another model contradict each other."""
SOURCE = 'source = "{case.graph.source}"'
RULES = (
    FileRule(
        "model",
        lambda c: c.train.model == "rows" and c.kind not in ON_EDGES and c.kind_known,
        'model = "rows" is for a [task] on edges, and the kind is "{case.kind}": take another model',
    ),
    FileRule(
        "link_head",
        lambda c: c.kind in ON_EDGES and (c.train.link_head in LABEL_HEADS) != (c.kind in OF_LABEL),
        'link_head = "{case.train.link_head}" is not a head of [task] kind = "{case.kind}": remove the key',
    ),
    *(FileRule(key, partial(_foreign, key=key), f"{key} = {{found}}") for key in KINDS_OF),
    FileRule(
        "metric",
        _foreign_metric,
        'metric = "{case.train.metric}" is not a metric of [task] kind = "{case.kind}": give one of {found}',
    ),
    FileRule(
        "feature_table",
        lambda c: c.train.feature_table and "features" not in c.tables,
        "feature_table needs a table [features.{case.train.feature_table}]",
    ),
    FileRule(
        "feature_table",
        _unknown_features,
        'feature_table = "{case.train.feature_table}" is not one of {found}: add a table [features.{case.train.feature_table}]',
    ),
    FileRule("trainer", _needed, 'trainer = "{case.train.trainer}" needs {found}'),
    FileRule("trainer", lambda c: c.train.technique.stored and _unstored(c), 'trainer = "{case.train.trainer}"{found}'),
    FileRule("samples", lambda c: not c.train.technique.stored and _unstored(c), 'samples = "stored"{found}'),
    FileRule(
        "*.rows",
        lambda c: c.own.rows == "packed" and c.missing("memory", "cache_plan"),
        'rows = "packed" needs {found}',
    ),
    FileRule(
        "model",
        lambda c: c.drawn and c.drawn.by_relation and c.train.without_relations(),
        "fanouts has numbers per relation, but {found}: give one number per layer, or take another model",
    ),
    FileRule(
        "eval",
        lambda c: c.drawn and c.drawn.before and c.train.eval != "sampled",
        f'eval = "{{case.train.eval}}", but {EXACT_LATER}: set eval = "sampled"',
    ),
    FileRule(
        "model",
        lambda c: c.drawn and c.drawn.before and c.train.without_times(),
        'before = "seed" of [sampling], but {found}: take another model, sage, gat, rgcn or rgat',
    ),
    FileRule(
        "edge_weight",
        lambda c: c.train.edge_weight and c.drawn and c.drawn.without_weights(),
        "edge_weight = true multiplies messages by edge weights, but [sampling] {found}: remove the key",
    ),
    FileRule(
        "edge_features",
        lambda c: c.train.edge_features and _without_edge_rows(c),
        "edge_features = true gives messages the rows of edges, but {found}",
    ),
    FileRule(
        "model",
        lambda c: c.train.reads_relations and c.drawn and c.drawn.without_relations(),
        'model = "{case.train.model}" reads relations, but [sampling] {found}: take another model',
    ),
    FileRule(
        "embedding",
        lambda c: c.graph and c.train.embedding == "node" and _of_all_nodes(c),
        'embedding = "node" has a row for each node of the types without features, and the file of the feature table has rows of all '
        "nodes: remove the key, or name the node_type of the rows",
    ),
    FileRule(
        "embedding",
        lambda c: c.train.embedding == "node" and c.never("featureless") and _of_source(c),
        f'embedding = "node" has a row for each node of the types without features, and all node types of {SOURCE} have features '
        "here: remove the key",
    ),
    FileRule(
        "embedding_init",
        lambda c: c.train.embedding_init != "row" and not c.train.learns_rows,
        'embedding_init = "{case.train.embedding_init}" is for embedding = "node" and model = "rows": remove the key',
    ),
    FileRule(
        "embedding_rows",
        lambda c: c.train.embedding_rows != "auto" and not c.train.learns_rows,
        'embedding_rows = "{case.train.embedding_rows}" is for embedding = "node" and model = "rows": remove the key',
    ),
    FileRule(
        "embedding_rows",
        lambda c: c.train.embedding_rows == "mapped" and c.train.start,
        f'embedding_rows = "mapped" {AFTER_START}',
    ),
    FileRule(
        "model",
        lambda c: c.train.reads_relations and c.never("edge_types"),
        f'model = "{{case.train.model}}" has matrices per relation, and the edges of {SOURCE} have no relations here: take another '
        "model, or give the source relations (docs/own-data.md)",
    ),
    FileRule(
        "edge_weight",
        lambda c: c.train.edge_weight and c.never("weights"),
        f"edge_weight = true multiplies messages by edge weights, and {SOURCE} gives none here: remove the key, or name the weights "
        "of the data (docs/own-data.md)",
    ),
    FileRule(
        "input",
        lambda c: c.train.input == "typed" and c.never("node_types"),
        f'input = "typed" has a projection per node type, and the nodes of {SOURCE} have no types here: set input = "linear"',
    ),
    FileRule(
        "fanouts",
        lambda c: (
            c.train.sampled_by and by_relation(c.train.fanouts) and c.never("edge_types") and spelled(c.train.fanouts)
        ),
        f"fanouts = {{found}} {NO_RELATIONS.replace('{source}', '{case.graph.source}')}",
    ),
)
"""The rules of every technique."""
