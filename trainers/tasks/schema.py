"""What a model knows of the data that it was trained on, and how other data differ from that.

A model takes another graph with the same kinds of nodes and edges and the same columns of features, each in its place: a weight belongs to
a place, and not to a name. Numbers of nodes and edges, labels and splits may differ, and labels may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphmill.assets.features.encode import ENCODERS_FILE
from graphmill.assets.features.read import node_types, open_features
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.tasks.labels import COLUMN_WORDS, column_words
from graphmill.kernels.errors import InputError

ALL_NODES = "nodes"
"""Stands for the type of the nodes in a graph without types."""
MOST_NAMED = 5
"""Names of which a sentence lists the first ones."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Names and places of what a graph and its features have."""

    # Kind of the labels.
    task: str
    # Names of the classes, labels or targets in their order; none if the graph has no labels.
    classes: tuple[str, ...]
    # Names in the order of their numbers; none if nodes or edges have no types.
    node_types: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    # Node type -> number of columns of its features.
    columns: Mapping[str, int]
    # NumPy name of the stored type of features.
    dtype: str
    # Whether edges have weights.
    weighted: bool = False
    # Node type -> the fitted encoders of its columns; empty without.
    encoders: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def read_schema(artifacts: Mapping[str, Artifact]) -> Schema:
    """Returns the schema of the artifacts `graph` and `features` of a pipeline."""
    features = artifacts["features"]
    opened, rows = open_graph(artifacts["graph"]), open_features(features)
    types = node_types(opened.topology, rows)
    columns = {ALL_NODES: rows.width} if types is None else dict(zip(opened.node_types, types.columns, strict=True))
    fitted = features.file(ENCODERS_FILE).read_text(encoding="utf-8") if ENCODERS_FILE in features.files else "{}"
    return Schema(
        task=opened.task,
        classes=_classes(opened),
        node_types=opened.node_types,
        relations=opened.relations,
        columns=columns,
        dtype=rows.dtype,
        weighted=opened.topology.weights is not None,
        encoders=json.loads(fitted),
    )


def _classes(graph: Graph) -> tuple[str, ...]:
    return tuple(graph.class_names) or tuple(map(str, range(graph.num_classes)))


def differences(trained: Schema, other: Schema) -> Iterator[str]:
    """Yields a sentence for each difference because of which a model cannot be used on other data."""
    if other.classes and other.task != trained.task:
        yield f"its task is {other.task}, and the model's {trained.task}"
    elif other.classes:
        if len(other.classes) != len(trained.classes):
            counts = (column_words(each.task, len(each.classes)) for each in (other, trained))
            yield f"it has {next(counts)}, and the model {next(counts)}"
        yield from _names(COLUMN_WORDS[trained.task][1], trained.classes, other.classes)  # pyright: ignore[reportArgumentType]
    yield from _names("node types", trained.node_types, other.node_types)
    yield from _names("relations", trained.relations, other.relations)
    for name, number in trained.columns.items():
        theirs = other.columns.get(name)
        if theirs is not None and theirs != number:
            yield f"{name} have {theirs:,} columns of features, and the model was trained with {number:,}"
    if other.dtype != trained.dtype:
        yield f"its features are {other.dtype}, and those of the training {trained.dtype}"
    if trained.weighted and not other.weighted:
        yield "its edges have no weights, and those of the training have"
    changed = [
        name
        for name in trained.columns
        if trained.encoders.get(name, []) != other.encoders.get(name, []) and name in other.columns
    ]
    if changed:
        yield f"the encoders of {_listed(changed)} were fitted to other values than in the training"


def _names(what: str, trained: Sequence[str], other: Sequence[str]) -> Iterator[str]:
    """Yields how lists of names differ: names that one of the two lacks, or another order."""
    lacking, unknown = (
        [name for name in of if name not in there] for of, there in ((trained, other), (other, trained))
    )
    if lacking:
        yield f"it lacks the {what} {_listed(lacking)}"
    if unknown:
        yield f"the model does not know the {what} {_listed(unknown)}"
    if not lacking and not unknown and list(trained) != list(other):
        yield f"its {what} stand in another order: {_listed(other)} in place of {_listed(trained)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def require_schema(trained: Schema, other: Schema, graph: Artifact, model: Artifact) -> None:
    """Refuses data that a model cannot be used on: raises InputError, which lists all differences from the schema of its training."""
    if found := [*differences(trained, other)]:
        listed = "".join(f"\n  {each}" for each in found)
        raise InputError(
            f"{graph.label} does not fit {model.label}, which was trained on other data:{listed}",
            "build the graph with the tables and keys of the training, or train a model on it",
        )
