"""The rows of a table of predictions: the nodes that are asked for, and the graph's facts about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphmill.assets.graph.read import Graph
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.inference.answers.kinds import Answers, names_at

if TYPE_CHECKING:
    import polars

SPLITS = ("train", "valid", "test")
ALL_TYPES = "all"


@dataclass(frozen=True, kw_only=True)
class AskedNodes:
    """The nodes that are predicted: whole ranges of ids, or some nodes of them.

    Attributes:
        ranges: (low, high), ascending and apart, the ids of the node types that are asked for.
        named: ids[n], ascending, the nodes of the ranges that a file names; None for all of them.
    """

    num_nodes: int
    ranges: Sequence[tuple[int, int]]
    named: Array | None = field(default=None, repr=False)

    @property
    def count(self) -> int:
        """Number of nodes."""
        return sum(high - low for low, high in self.ranges) if self.named is None else len(self.named)

    def ids(self) -> Array | None:
        """Returns ids[n], ascending; None for all nodes of the graph."""
        if self.named is None and self.count < self.num_nodes:
            dtype = np.int32 if self.num_nodes <= np.iinfo(np.int32).max else np.int64
            return np.concatenate([np.arange(low, high, dtype=dtype) for low, high in self.ranges])
        return self.named

    def places(self, low: int, high: int) -> Array:
        """Returns i64[k], the asked nodes among those from low to high, counted from low."""
        if self.named is not None:
            start, stop = np.searchsorted(self.named, (low, high))
            return self.named[start:stop] - low
        clipped = [(max(low, first), min(high, last)) for first, last in self.ranges]
        return np.concatenate([np.arange(first, max(first, last)) - low for first, last in clipped])


def asked_nodes(graph: Graph, nodes: Path, types: Sequence[str], named: Path | None) -> AskedNodes:
    """Returns the nodes that are predicted.

    Args:
        nodes: its Parquet file of nodes.
        types: names of node types; "all" for all of them; none for those that have nodes in the split, whose labels the model has learnt.
        named: a file that names nodes of these types (`named_nodes`); None for all nodes of these types.

    Raises:
        InputError: the graph has no such type, or the file names other nodes.
    """
    num_nodes = graph.topology.num_nodes
    ranges = _ranges(graph, types)
    ids = None if named is None else named_nodes(named, nodes, ranges)
    return AskedNodes(num_nodes=num_nodes, ranges=ranges, named=ids)


def labelled_types(graph: Graph) -> list[str]:
    """Returns the names of the node types that have nodes in the split; none if nodes have no types."""
    starts = graph.topology.node_type_ptr
    if not graph.node_types or starts is None:
        return []
    held = np.sum([np.diff(np.searchsorted(ids, starts)) for ids in graph.splits], axis=0)
    return [name for name, count in zip(graph.node_types, held, strict=True) if count]


def _ranges(graph: Graph, types: Sequence[str]) -> list[tuple[int, int]]:
    starts, known = graph.topology.node_type_ptr, graph.node_types
    if wrong := [each for each in types if each not in known and each != ALL_TYPES]:
        there = f"its types are: {', '.join(known)}" if known else "its nodes have no types: leave --type out"
        raise InputError(f"the graph has no node type {wrong[0]!r}", there)
    chosen = [*types] or labelled_types(graph)
    if not chosen or starts is None or (ALL_TYPES in chosen and ALL_TYPES not in known):
        return [(0, graph.topology.num_nodes)]
    return [(int(starts[place]), int(starts[place + 1])) for place, name in enumerate(known) if name in chosen]


def named_nodes(path: Path, nodes: Path, ranges: Sequence[tuple[int, int]]) -> Array:
    """Returns i64[n], ascending, the nodes that a file names by their ids in the raw data, each once.

    Args:
        path: a Parquet or CSV file with a column `node_id` (as `predict` writes it), or a text file with one id per line.
        nodes: the graph's Parquet file of nodes.
        ranges: (low, high), the ids of the nodes that may be named.

    Raises:
        InputError: the file cannot be read, names no node, or names one that the graph does not have.
    """
    import polars

    remedy = "give a .parquet or .csv file with a column node_id, or a .txt file with one id per line"
    inside = reduce(or_, (polars.col("node_id").is_between(low, high, closed="left") for low, high in ranges))
    known = polars.scan_parquet(nodes, glob=False).select("node_id", "original_id").filter(inside)
    try:
        if path.suffix == ".txt":
            ids = polars.Series("original_id", path.read_text(encoding="utf-8").split())
        else:
            read = {".parquet": polars.read_parquet, ".csv": polars.read_csv}[path.suffix]
            ids = read(path, columns=["node_id"], glob=False)["node_id"].alias("original_id")
        ids = ids.cast(known.collect_schema()["original_id"]).unique()
    except KeyError:
        raise InputError(f"{path} is no file of nodes", remedy) from None
    except (OSError, UnicodeDecodeError, polars.exceptions.PolarsError) as error:
        raise InputError(f"the nodes in {path} cannot be read: {error}", remedy) from error
    if not len(ids):
        raise InputError(f"{path} names no node", remedy)
    found = known.join(ids.to_frame().lazy(), on="original_id", how="semi").collect()
    # In a graph with node types an id may be that of several nodes, one of each type.
    if found["original_id"].n_unique() < len(ids):
        missing = ids.filter(~ids.is_in(found["original_id"].implode()))
        some = ", ".join(map(str, missing.head(3).to_list()))
        problem = f"{path} names {len(missing):,} nodes that the graph does not have: {some}"
        raise InputError(
            problem, "give ids of the raw data, of the node types that are predicted; `graphmill sql` shows them"
        )
    return np.sort(found["node_id"].to_numpy()).astype(np.int64)


class NodeFacts:
    """The facts of a graph's Parquet file of nodes beside a prediction: original id, label and part of the split."""

    def __init__(self, nodes: Path, graph: Graph, asked: AskedNodes, answers: Answers):
        import polars

        self.answers, self.asked = answers, asked
        self._original = polars.scan_parquet(nodes, glob=False).select(polars.col("original_id").alias("node_id"))
        self._types, self._type_ptr = polars.Series(list(graph.node_types)), graph.topology.node_type_ptr
        self._labels, self._splits = graph.labels, polars.Series(list(SPLITS))
        self._split_of = np.full(graph.topology.num_nodes, -1, np.int8)
        for place, ids in enumerate(graph.splits):
            self._split_of[np.asarray(ids)] = place

    def beside(self, low: int, frame: polars.DataFrame) -> polars.DataFrame:
        """Returns predictions of nodes low, low + 1, ... with the facts about these nodes; only those that are asked for."""
        high = low + len(frame)
        known = self._original.slice(low, len(frame)).collect()
        if len(self._types) and self._type_ptr is not None:
            place = np.searchsorted(self._type_ptr, np.arange(low, high), side="right") - 1
            known = known.with_columns(self._types.gather(place).alias("node_type"))
        label = self.answers.known(self._labels[low:high]).values()
        split = [names_at(self._splits, self._split_of[low:high]).alias("split")] if label else []
        first = self.answers.first
        table = known.hstack(frame.select(first)).hstack([*label, *split]).hstack(frame.drop(first))
        places = self.asked.places(low, high)
        return table if len(places) == len(table) else table[places]
