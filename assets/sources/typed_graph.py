"""Stores graphs of several node and edge types as one graph: node types become ranges of ids, relations become edge types.

Node i of a type has the id `node_type_ptr[type] + i`. A graph with one type of each is stored without types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.candidates import Given
from graphmill.assets.sources.features.blocks import FeatureBlock, blocks_type, blocks_width, columns_of_types
from graphmill.assets.sources.interface import RawGraph, TableConfig
from graphmill.assets.sources.splits import checked
from graphmill.assets.sources.spool import EdgeSpool
from graphmill.assets.sources.spooled import SpooledConfig, spooled_survey
from graphmill.assets.sources.survey import Survey
from graphmill.assets.sources.targets import column_names, unlabelled
from graphmill.assets.sources.unread import unread_notes
from graphmill.assets.tasks.labels import OF_LABEL, column_words, kind_of
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress


class EdgeBatch(NamedTuple):
    """Edges of one relation: integers[n] ids within the node types, weights f32[n] or None, rows i64[n] of the relation, types u8[n],
    marks and labels f64[n].

    Without rows they are the next ones in order. Types are places among the relation's values, None without values. Without
    marks (`EdgeMarks`) none of the edges is predicted by time or by a given split, without labels none has one.
    """

    src: Array
    dst: Array
    weight: Array | None = None
    rows: Array | None = None
    type: Array | None = None
    mark: Array | None = None
    label: Array | None = None


def value_name(value: str) -> str:
    """Returns a relation, or a value of a column of them, as names of edge types have it: they are joined by /."""
    return value.replace("/", ".")


@dataclass(frozen=True, kw_only=True)
class Relation:
    """The edges of one relation.

    Attributes:
        kind: node type, relation, node type.
        batches: function that yields the edges.
        place: function row -> place of that edge in words, for errors.
        values: what a column tells apart, each an edge type of its own; none if all edges have one type.
        dropped: function that returns the number of edges which `batches` left out, once all are read.
        remarks: function of the largest weight of a graph -> sentences about edges that look like something else.
    """

    kind: tuple[str, str, str]
    num_edges: int
    batches: Callable[[], Iterator[EdgeBatch]]
    place: Callable[[int], str]
    values: Sequence[str] = ()
    dropped: Callable[[], int] = lambda: 0
    remarks: Callable[[float], Sequence[str]] = lambda largest: ()

    @property
    def edge_types(self) -> list[str]:
        """Names of its edge types."""
        source, name, target = self.kind
        middle = [f"{name}.{value_name(value)}" for value in self.values] or [value_name(name)]
        return ["/".join((source, each, target)) for each in middle]


@dataclass(kw_only=True)
class TypedGraph:
    """The result of a reader.

    Attributes:
        node_types: name -> number of nodes, in the order of their ids.
        relations: relations in the order of their edge types.
        blocks: blocks of the source's own feature table, whose ids are global.
        labels: labels of N nodes (assets/tasks/labels.py); splits: global ids, or None.
        class_names: names of the classes, labels or targets; None: they are numbered.
        node_names, node_times, original_ids, candidates: as in `RawGraph`.
        edge_blocks: rows of edges of the source, by the edges of all relations in their order.
    """

    where: str
    node_types: dict[str, int]
    relations: Sequence[Relation]
    blocks: Sequence[FeatureBlock]
    labels: Array
    splits: tuple[Array, Array, Array] | None
    numbers: dict[str, Any] = field(default_factory=dict)
    unread: Sequence[str] = ()
    class_names: Sequence[str] | None = None
    node_names: Any = None
    node_times: Array | None = None
    original_ids: Any = None
    candidates: Sequence[Given] = ()
    edge_blocks: Sequence[FeatureBlock] = ()

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return sum(self.node_types.values())

    @property
    def edge_types(self) -> list[str]:
        """Names of the edge types; empty if the graph has one type of nodes and one of edges."""
        names = [name for relation in self.relations for name in relation.edge_types]
        typed = len(self.node_types) > 1 or len(names) > 1 or any(relation.values for relation in self.relations)
        return names if typed else []


def first_ids(node_types: dict[str, int]) -> dict[str, int]:
    """Returns node type -> its first id."""
    ends = np.cumsum([0, *node_types.values()]).tolist()
    return dict(zip(node_types, ends, strict=False))


class TypedSource:
    """A typed graph that was read except its features and edges; see `OpenSource`.

    Args:
        blocks_of: feature table -> blocks whose ids are global.
    """

    node_of_row = None

    def __init__(
        self,
        found: TypedGraph,
        config: SpooledConfig,
        folder: Path,
        blocks_of: Callable[[TableConfig], Sequence[FeatureBlock]],
    ):
        self.found, self.config, self.folder, self.blocks = found, config, folder, blocks_of
        self.num_nodes, self.node_types = found.num_nodes, found.node_types

    @property
    def num_edge_rows(self) -> int:
        """Number of edges of all relations."""
        return sum(count for _, count in self.edge_relations)

    @property
    def edge_relations(self) -> Sequence[tuple[str, int]]:
        """Names and numbers of edges of all relations, in their order."""
        return [("/".join(relation.kind), relation.num_edges) for relation in self.found.relations]

    def edge_blocks(self) -> Sequence[FeatureBlock]:
        """Returns the rows of edges, by the edges of all relations in their order."""
        return self.found.edge_blocks

    def graph(self, progress: Progress) -> RawGraph:
        """Spools the edges and returns the rest; raises InputError if an edge names a node outside its type, or the split is not valid."""
        graph, config, names = self.found, self.config, self.found.edge_types
        if graph.splits is not None:
            checked(graph.splits, graph.labels, graph.where)
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise InputError(f"{graph.where}: two relations are called {twice}", "rename one")
        watched = config.counts_reverses(len(names))
        spool = EdgeSpool(
            self.folder,
            self.num_nodes,
            config.columns(names),
            undirected=config.undirected,
            watched=watched,
            marked=config.marked,
            labelled=config.task in OF_LABEL,
        )
        progress.start("read edges", sum(relation.num_edges for relation in graph.relations), "edges")
        number = first = 0
        for relation in graph.relations:
            _spool_relation(graph, relation, number, first, spool, progress)
            number, first = number + len(relation.edge_types), first + relation.num_edges
        progress.done()
        if spool.num_edges == 0:
            raise InputError(f"{graph.where}: has no edges", "give a graph with at least one edge")
        pointers = np.cumsum([0, *graph.node_types.values()], dtype=np.int64)
        types = {"edge_types": config.stored_types(names), "node_types": list(graph.node_types)} if names else {}
        return RawGraph(
            num_nodes=self.num_nodes,
            spool=spool,
            memory_bytes=config.memory_bytes // 2,
            labels=graph.labels,
            class_names=column_names(graph.labels, graph.class_names),
            splits=graph.splits,
            node_type_ptr=pointers if names else None,
            numbers=types | graph.numbers,
            unread=graph.unread,
            node_names=graph.node_names,
            node_times=graph.node_times,
            original_ids=graph.original_ids,
            candidates=graph.candidates,
            edge_marks=spool.marks(lambda row: _edge_place(graph.relations, row)),
            remarks=list(
                dict.fromkeys(text for each in graph.relations for text in each.remarks(spool.largest_weight))
            ),
        )


def _edge_place(relations: Sequence[Relation], row: int) -> str:
    """Returns the place of an edge in words, by its row among those of all relations."""
    for relation in relations:
        if row < relation.num_edges:
            return relation.place(row)
        row -= relation.num_edges
    raise AssertionError("a row of no relation")


def _spool_relation(
    graph: TypedGraph, relation: Relation, number: int, first: int, spool: EdgeSpool, progress: Progress
) -> None:
    """Appends the edges of a relation, whose edge types are numbered from `number` on, and its rows from `first` on."""
    counts, starts, done = graph.node_types, first_ids(graph.node_types), 0
    source, _, target = relation.kind
    for src, dst, weight, rows, kinds, mark, label in relation.batches():
        rows = np.arange(done, done + len(src)) if rows is None else rows
        for values, kind, role in ((src, source, "source"), (dst, target, "destination")):
            bad = np.flatnonzero((values < 0) | (values >= counts[kind]))
            if len(bad):
                shown = "; ".join(f"{relation.place(done + row)}: {src[row]} -> {dst[row]}" for row in bad[:3].tolist())
                problem = f"edges name a {role} outside [0, {counts[kind]}), the nodes of type '{kind}': {shown}"
                raise InputError(problem, "correct the edges, or the number of nodes")
        if weight is not None and not np.isfinite(weight).all():
            row = int(np.flatnonzero(~np.isfinite(weight))[0])
            raise InputError(f"{relation.place(done + row)}: the weight is {weight[row]}", "give finite weights")
        spool.append(
            np.asarray(src, np.int64) + starts[source],
            np.asarray(dst, np.int64) + starts[target],
            tie=first + rows,
            weight=weight,
            type=number if kinds is None else number + kinds,
            mark=mark,
            label=label,
        )
        done += len(src)
        progress.advance(len(src))
    if done + relation.dropped() != relation.num_edges:
        problem = f"{relation.place(done)}: the edges end here, but {relation.num_edges} are announced"
        raise InputError(problem, "the file is incomplete: copy it again")


def survey_typed(
    graph: TypedGraph, config: SpooledConfig, files: Mapping[str, Path], contents: Sequence[str] | None = None
) -> Survey:
    """Returns the survey of a reader's graph and of its artifacts.

    Args:
        contents: lines about the source, None for those about the graph and the files.
    """
    return spooled_survey(
        config,
        graph.edge_types,
        graph.num_nodes,
        sum(relation.num_edges for relation in graph.relations),
        blocks_width(graph.blocks),
        blocks_type(graph.blocks, "as stored", config.normalize),
        title=f"{config.source}: {graph.where}",
        contents=_contents(graph, files) if contents is None else contents,
        notes=unread_notes(graph.unread),
        num_without_features=graph.num_nodes - sum(block.num_rows for block in graph.blocks) if graph.blocks else 0,
        type_widths=tuple(columns_of_types(graph.blocks, graph.node_types)),
    )


def _contents(graph: TypedGraph, files: Mapping[str, Path]) -> list[str]:
    size = format_bytes(sum(path.stat().st_size for path in files.values()))
    lines = [f"{len(files)} files, {size}"] if files else []
    for name, count in graph.node_types.items():
        lines.append(f"nodes of type '{name}': {count:,}")
    for relation in graph.relations:
        lines.append(f"edges {', '.join(relation.edge_types)}: {relation.num_edges:,}")
    for block in graph.blocks:
        lines.append(f"features: {block.num_rows:,} x {block.width} {block.dtype}")
    known, width = len(graph.labels) - unlabelled(graph.labels), len(column_names(graph.labels))
    lines.append(f"labels: {known:,} of {len(graph.labels):,} nodes, {column_words(kind_of(graph.labels), width)}")
    if graph.splits is None:
        lines.append("split: none; a stratified one would be drawn from the pipeline's seed")
    else:
        train, valid, test = (f"{len(part):,}" for part in graph.splits)
        lines.append(f"split: {train} train, {valid} valid, {test} test")
    return lines
