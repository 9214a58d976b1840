"""Stores graphs of several node and edge types as one graph: node types become ranges of ids, relations become edge types.

Node i of a type has the id `node_type_ptr[type] + i`. A graph with one type of each is stored without types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from assets.sources.feature_blocks import FeatureBlock
from assets.sources.registry import RawGraph, TableConfig
from assets.sources.spool import EdgeSpool
from assets.sources.spooled import SpooledConfig, check_split
from kernels.errors import InputError
from kernels.types import Array

if TYPE_CHECKING:
    from assets.building.stage import Progress


@dataclass(frozen=True, kw_only=True)
class Relation:
    """The edges of one relation.

    Attributes:
        source, name, target: node type, relation, node type.
        num_edges: number of edges, None if it is not known before they are read.
        batches: function that yields (src integers[n], dst integers[n], weight f32[n] or None), ids within the node types.
        place: function row -> place of that edge in words, for errors.
    """

    source: str
    name: str
    target: str
    num_edges: int | None
    batches: Callable[[], Iterator[tuple[Array, Array, Array | None]]]
    place: Callable[[int], str]


@dataclass(kw_only=True)
class TypedGraph:
    """The result of a reader.

    Attributes:
        where: the file or folder.
        node_types: name -> number of nodes, in the order of their ids.
        relations: relations in the order of their edge types.
        blocks: blocks of the source's own feature table, whose ids are global.
        labels: i32[N]; splits: global ids, or None.
        weights: whether the relations have weights.
    """

    where: str
    node_types: dict[str, int]
    relations: Sequence[Relation]
    blocks: Sequence[FeatureBlock]
    labels: Array
    splits: tuple[Array, Array, Array] | None
    weights: bool = False
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def starts(self) -> dict[str, int]:
        """Node type -> its first id."""
        return first_ids(self.node_types)


def first_ids(node_types: dict[str, int]) -> dict[str, int]:
    """Returns node type -> its first id."""
    ends = np.cumsum([0, *node_types.values()]).tolist()
    return dict(zip(node_types, ends, strict=False))


class TypedSource:
    """A typed graph that was read except its features and edges; see `OpenSource`.

    Args:
        found: result of the reader.
        config: configuration of the source.
        folder: scratch folder for the edges.
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
        self.num_nodes = sum(found.node_types.values())
        self.typed = len(found.node_types) > 1 or len(found.relations) > 1

    @property
    def node_types(self) -> Mapping[str, int]:
        """Name -> number of nodes."""
        return self.found.node_types

    def graph(self, progress: Progress) -> RawGraph:
        """Spools the edges and returns the rest.

        Raises:
            InputError: an edge names a node outside its type, or the split is not valid.
        """
        graph, config = self.found, self.config
        if graph.splits is not None:
            check_split(graph.splits, graph.labels, graph.where)
        names = ["/".join((r.source, r.name, r.target)) for r in graph.relations] if self.typed else []
        columns = config.columns(names, weights=graph.weights)
        spool = EdgeSpool(self.folder, self.num_nodes, columns, undirected=config.undirected)
        counts = [relation.num_edges for relation in graph.relations]
        total = None if None in counts else sum(count or 0 for count in counts)
        progress.start("read edges", total, "edges")
        for number, relation in enumerate(graph.relations):
            _spool_relation(graph, relation, number, spool, progress)
        progress.done()
        if spool.num_edges == 0:
            raise InputError(f"{graph.where}: has no edges", "give a graph with at least one edge")
        pointers = np.cumsum([0, *graph.node_types.values()], dtype=np.int64)
        types = {"edge_types": config.stored_types(names), "node_types": list(graph.node_types)} if self.typed else {}
        return RawGraph(
            num_nodes=self.num_nodes,
            spool=spool,
            memory_bytes=config.memory_bytes // 2,
            labels=graph.labels,
            class_names=[str(label) for label in range(int(graph.labels.max(initial=-1)) + 1)],
            splits=graph.splits,
            node_type_ptr=pointers if self.typed else None,
            numbers=types | graph.numbers,
        )


def _spool_relation(graph: TypedGraph, relation: Relation, number: int, spool: EdgeSpool, progress: Progress) -> None:
    first, counts, done = spool.num_edges, graph.node_types, 0
    ends = ((relation.source, "source"), (relation.target, "destination"))
    for src, dst, weight in relation.batches():
        for values, (kind, role) in zip((src, dst), ends, strict=True):
            bad = np.flatnonzero((values < 0) | (values >= counts[kind]))
            if len(bad):
                shown = "; ".join(f"{relation.place(done + row)}: {src[row]} -> {dst[row]}" for row in bad[:3].tolist())
                raise InputError(
                    f"edges name a {role} outside [0, {counts[kind]}), the nodes of type '{kind}': {shown}",
                    "correct the edges, or the number of nodes",
                )
        if weight is not None and not np.isfinite(weight).all():
            row = int(np.flatnonzero(~np.isfinite(weight))[0])
            raise InputError(f"{relation.place(done + row)}: the weight is {weight[row]}", "give finite weights")
        starts = graph.starts
        spool.append(
            np.asarray(src, np.int64) + starts[relation.source],
            np.asarray(dst, np.int64) + starts[relation.target],
            tie=np.arange(first + done, first + done + len(src)),
            weight=weight,
            type=number,
        )
        done += len(src)
        progress.advance(len(src))
    if relation.num_edges is not None and done != relation.num_edges:
        raise InputError(
            f"{relation.place(done)}: the edges end here, but {relation.num_edges} are announced",
            "the file is incomplete: copy it again",
        )
