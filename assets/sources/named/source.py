"""Sources whose graphs are given as arrays by name: features, labels and masks of each node type, `edge_index` of each edge type.

Node types become ranges of ids and edge types relations, in the order in which they are given. One node type may have labels. Data of other
names are not read, which `graphmill inspect` says; a name that probably means one that is missing is refused.
"""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.assets.sources.arrays.mapped_arrays import array_block
from graphmill.assets.sources.edge_marks import of_node_times
from graphmill.assets.sources.features.blocks import FeatureBlock, blocks_type, blocks_width
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.named.arrays import MASKS, NamedArrays
from graphmill.assets.sources.named.edges import relations_of
from graphmill.assets.sources.named.keys import NamedKeys
from graphmill.assets.sources.splits import mask_ids, one_split, part_meant
from graphmill.assets.sources.survey import Survey
from graphmill.assets.sources.targets import read_labels
from graphmill.assets.sources.typed_graph import TypedGraph, TypedSource, first_ids, survey_typed
from graphmill.assets.sources.unread import unread_words
from graphmill.assets.storage.system.machine import require_memory
from graphmill.assets.tasks.labels import no_labels
from graphmill.kernels.errors import Attempts, InputError, did_you_mean
from graphmill.kernels.types import Array

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress

LABEL_BYTES, FEWER_NODES = 4, "correct the number of nodes"
"""Bytes of a label, and the remedy for more nodes than fit the memory."""

Blocks = Mapping[str | None, list[FeatureBlock]]
"""Name of features -> their blocks."""


@dataclass(frozen=True, kw_only=True)
class NamedSource(NamedKeys):
    """`[graph]` of such a source; a subclass loads the arrays."""

    tasks = ("classes", "multilabel", "regression")

    @abstractmethod
    def load(self, folder: Path, features: Sequence[str | None]) -> NamedArrays:
        """Returns the arrays of the graph.

        Args:
            features: names of data of nodes to read as features; None is the library's own name if it exists.

        Raises:
            InputError: the file cannot be read.
        """

    @contextmanager
    def opened(
        self, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
    ) -> Iterator[TypedSource]:
        """Loads the arrays, once for the graph and all feature tables."""
        names = self.feature_names(tables)
        found, blocks = read(self, folder, names, wants_features=bool(names))
        yield TypedSource(found, self, folder, lambda table: blocks[self.for_table(table).feature])

    def survey(self) -> Survey:
        """Describes the graph, whose arrays are loaded for that."""
        with tempfile.TemporaryDirectory(prefix="graphmill-inspect-") as folder:
            graph, _ = read(self, Path(folder), [self.feature], wants_features=False)
            return survey_typed(graph, self, self.files())

    def edge_matrix(self) -> tuple[int, int, Any]:
        """Returns number, columns and type of the rows of edges; raises InputError if the file has none."""
        with tempfile.TemporaryDirectory(prefix="graphmill-inspect-") as folder:
            graph, _ = read(self, Path(folder), [self.feature], wants_features=False)
        found = graph.edge_blocks
        if not found:
            problem = f"{graph.where}: no edges have '{self.edge_feature}'"
            raise InputError(problem, "save it with the graph, or give [features.edges] a file")
        return sum(block.num_rows for block in found), blocks_width(found), blocks_type(found, "as stored", "none")


def read(
    config: NamedSource, folder: Path, features: Sequence[str | None], *, wants_features: bool
) -> tuple[TypedGraph, Blocks]:
    """Reads a graph but for the values of features and edges.

    Args:
        features: names of data of nodes to read as features; None is the library's own name if it exists.
        wants_features: whether data that probably mean features, which are missing, are refused.

    Returns:
        (the graph, with the blocks of the first of the features; name -> blocks of each of them).

    Raises:
        InputError: the file cannot be read, or data do not fit: all that were found at once.
    """
    data, attempts = config.load(folder, features), Attempts()
    attempts.errors += missing_names(data, config, features)
    relations = attempts(relations_of, data, config)
    attempts.errors += meant_names(data, config, features, wants_features=wants_features)
    attempts.settle()
    sized = [*read_names(data, config, [config.feature]), *config.feature_columns]
    node_types = {name: attempts(data.num_nodes, name, sized) for name in data.nodes}
    attempts.settle()
    names = read_names(data, config, features)
    blocks = {
        asked: [
            attempts(_block, data, kind, name, node_types, config) for kind in data.nodes if name in data.nodes[kind]
        ]
        for asked, name in zip(features, names, strict=False)
    }
    count = sum(node_types.values())
    require_memory(LABEL_BYTES * count, f"{data.where}: a graph of {count:,} nodes", FEWER_NODES)
    labels = attempts(_labels, data, config, node_types)
    splits = attempts(_splits, data, one_split(config.split), node_types) if config.links is None else None
    times = attempts(_times, data, config.node_time, node_types)
    attempts.settle()
    graph = TypedGraph(
        where=data.where,
        node_types=node_types,
        relations=relations,
        blocks=blocks[features[0]] if features else [],
        labels=labels,
        splits=splits,
        node_names=data.node_names,
        node_times=times,
        unread=unread_data(data, config, features),
        edge_blocks=_edge_blocks(data, config) if config.edge_rows else (),
    )
    return graph, blocks


def _block(data: NamedArrays, kind: str, name: str, node_types: dict[str, int], config: NamedKeys) -> FeatureBlock:
    """Returns the features of a node type; one column may be [N]."""
    values, dtype = data.array(kind, name)
    values, where = values.reshape(-1, 1) if values.ndim == 1 else values, f"{data.place(kind)}: '{name}'"
    block = array_block(values, first_ids(node_types)[kind], node_types[kind], where, dtype=dtype)
    return replace(block, named_twice=config.named_twice(name, data.words.label))


def _edge_blocks(data: NamedArrays, config: NamedKeys) -> list[FeatureBlock]:
    """Returns the rows of the edges of each edge type that has some, by the edges of all types in their order; one column may be [E]."""
    found, first = [], 0
    for kind, names in data.edges.items():
        count = data.array(kind, "edge_index")[0].shape[-1]
        if config.edge_feature in names:
            values, dtype = data.array(kind, config.edge_feature)
            values = values.reshape(-1, 1) if values.ndim == 1 else values
            where = f"{data.place(kind)}: '{config.edge_feature}'"
            if values.ndim == 2 and len(values) != count:
                problem = f"{where} has {len(values):,} rows for {count:,} edges"
                raise InputError(problem, "save a row for each edge")
            found.append(array_block(values, first, count, where, dtype=dtype))
        first += count
    return found


def _labels(data: NamedArrays, config: NamedKeys, node_types: dict[str, int]) -> Array:
    """Returns the labels of N nodes (assets/tasks/labels.py); those of node types without labels are unknown."""
    name, task = config.label or data.words.label, config.task
    labelled = [kind for kind, names in data.nodes.items() if name in names]
    if len(labelled) > 1:
        problem = f"{data.where}: the node types {', '.join(labelled)} have labels"
        raise InputError(problem, "keep those of one type: their classes would mix")
    num_nodes, starts = sum(node_types.values()), first_ids(node_types)
    for kind in labelled:
        values, _ = data.array(kind, name, wide=True)
        given = read_labels(task, values, node_types[kind], f"{data.place(kind)}: '{name}'", name)
        labels = no_labels(task, num_nodes, given.shape[-1])
        labels[starts[kind] : starts[kind] + node_types[kind]] = given
        return labels
    return no_labels(task, num_nodes)


def _times(data: NamedArrays, name: str | None, node_types: dict[str, int]) -> Array | None:
    """Returns f64[N], the times of the nodes, NaN for node types without them; None if they are not asked for."""
    if name is None:
        return None
    times, starts = np.full(sum(node_types.values()), np.nan), first_ids(node_types)
    for kind in (kind for kind, names in data.nodes.items() if name in names):
        values, where = data.array(kind, name, wide=True)[0], f"{data.place(kind)}: '{name}'"
        times[starts[kind] : starts[kind] + node_types[kind]] = of_node_times(values, node_types[kind], where)
    return times


def _splits(data: NamedArrays, split: int | None, node_types: dict[str, int]) -> tuple[Array, Array, Array] | None:
    """Returns the global ids of the masks; None without masks."""
    masked = [kind for kind, names in data.nodes.items() if any(mask in names for mask in MASKS)]
    if not masked:
        if split is not None:
            raise InputError(f"{data.where}: split = {split}, but it has no masks", "leave `split` out")
        return None
    parts: list[list[Array]] = [[], [], []]
    for kind in masked:
        where = data.place(kind)
        if missing := [mask for mask in MASKS if mask not in data.nodes[kind]]:
            raise InputError(f"{where}: lacks {', '.join(missing)}", "save all three masks, an empty one too")
        masks = [data.array(kind, mask, wide=True)[0] for mask in MASKS]
        several = any(values.ndim > 1 for values in masks)
        for part, mask, values in zip(parts, MASKS, masks, strict=True):
            # One mask beside several of the other parts is that of every split, as the test nodes of WikiCS are.
            number = None if several and values.ndim == 1 else split
            chosen = mask_ids(values, node_types[kind], number, f"{where}: '{mask}'", mask)
            part.append(chosen + first_ids(node_types)[kind])
    return np.concatenate(parts[0]), np.concatenate(parts[1]), np.concatenate(parts[2])


def read_names(data: NamedArrays, keys: NamedKeys, features: Sequence[str | None]) -> list[str]:
    """Returns the names of data of nodes that are read: features, in the order of `features`, labels and masks."""
    times = () if keys.node_time is None else (keys.node_time,)
    return [*(name or data.words.feature for name in features), keys.label or data.words.label, *MASKS, *times]


def missing_names(data: NamedArrays, keys: NamedKeys, features: Sequence[str | None]) -> Iterator[InputError]:
    """Yields an error for each name of features, labels or times that no type has; None among `features` is the library's own name."""
    of_edges = sorted({name for each in data.edges.values() for name in each if name != "edge_index"})
    if keys.time is not None and keys.time not in of_edges:
        hint = f"{did_you_mean(keys.time, of_edges, chr(39))}; they have {', '.join(of_edges) or 'none'}"
        yield InputError(f"{data.where}: no edges have '{keys.time}'{hint}", "correct `time` in [graph]")
    has = sorted({name for each in data.nodes.values() for name in each if name != "num_nodes"})
    asked = ("label", keys.label), ("node_time", keys.node_time)
    for key, name in (*(("feature", name) for name in features), *asked):
        if name is not None and name not in has:
            hint = f"{did_you_mean(name, has, chr(39))}; they have {', '.join(has) or 'none'}"
            also = ", or `columns` in [features]" if key == "feature" else ""
            problem = f"{data.where}: no node type has {data.words.data[0]}'{name}'{hint}"
            yield InputError(problem, f"correct `{key}` in [graph]{also}")


def meant_names(
    data: NamedArrays, keys: NamedKeys, features: Sequence[str | None], *, wants_features: bool
) -> Iterator[InputError]:
    """Yields an error for data that probably mean missing features, if those of the library's own name are wanted, labels or masks."""
    words, read = data.words, read_names(data, keys, features)
    has = dict.fromkeys(name for each in data.nodes.values() for name in each)
    lacks_features = wants_features and None in features and words.feature not in has
    lacking = {
        "feature": (words.feature, *words.features) if lacks_features else (),
        "label": (words.label, *words.labels)
        if keys.links is None and keys.label is None and words.label not in has
        else (),
    }
    for key, others in lacking.items():
        for name in [name for name in has if name not in read and name.lower() in others][:1]:
            problem = f"{data.where}: {words.data[0]}'{name}' is not read (did you mean {key} = \"{name}\"?)"
            remedy = f'set {key} = "{name}" in [graph], or leave it out of the {words.saved} that you save'
            yield InputError(problem, remedy)
    yield from _other_masks(data) if keys.links is None else ()


def _other_masks(data: NamedArrays) -> Iterator[InputError]:
    """Yields an error for a node type that lacks a mask and has another one that probably means it."""
    for kind, names in data.nodes.items():
        for mask in [mask for mask in MASKS if mask not in names]:
            for name in [name for name in names if part_meant(name) == mask.removesuffix("_mask")][:1]:
                problem = f"{data.place(kind)}: '{name}' is not read (did you mean '{mask}'?)"
                owner = f"data['{kind}']" if data.typed else "data"
                yield InputError(problem, data.words.rename.format(owner=owner, mask=mask, name=name))


def unread_data(data: NamedArrays, keys: NamedKeys, features: Sequence[str | None]) -> list[str]:
    """Returns phrases about the data that no key of the pipeline names."""
    read = {*read_names(data, keys, [*features, keys.feature]), *keys.feature_columns, "num_nodes"}
    (_, of_nodes, of_edges), found = data.words.data, []
    for kind, names in data.nodes.items():
        left = [f"'{name}'" for name in names if name not in read]
        found += unread_words(of_nodes, of_nodes, left, f" of node type '{kind}'" if data.typed else " of nodes")
    read = {"edge_index", *keys.edge_names} | (set() if data.typed else {"edge_type"})
    read |= {*MASKS, *(f"edge_{mask}" for mask in MASKS)} if keys.marks == "given" else set()
    for edge_type, names in data.edges.items():
        left = [f"'{name}'" for name in names if name not in read]
        found += unread_words(
            of_edges, of_edges, left, f" of edges {'/'.join(edge_type)}" if data.typed else " of edges"
        )
    return [*found, *data.whole]
