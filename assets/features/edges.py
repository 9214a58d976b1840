"""Rows of edges: the table `[features.edges]`, built by the features stage as rows of nodes are.

Row i belongs to the edge with id i: the row of the edge in its source, counted over all files or relations. The rows of a source lie in its
arrays of edges; a file beside it has a row for each edge in the same order. Or each relation has a file of its own, as wide as it likes:
rows are padded with zeros, and edges of relations without a file have rows of zeros.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from graphmill.assets.features.config import FeaturesConfig
from graphmill.assets.sources.arrays.mapped_arrays import file_block, open_ids, open_rows
from graphmill.assets.sources.features.blocks import FeatureBlock, row_ranges
from graphmill.assets.sources.features.types import common_type, stored_type
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.survey import Survey
from graphmill.assets.tasks.relations import middle_part
from graphmill.kernels.errors import InputError, did_you_mean
from graphmill.kernels.types import Array


@runtime_checkable
class EdgeSource(Protocol):
    """An open source whose edges have ids."""

    @property
    def num_edge_rows(self) -> int:
        """Number of edges as the source has them, which their ids count."""
        ...

    @property
    def edge_relations(self) -> Sequence[tuple[str, int]]:
        """Names SOURCE/RELATION/DESTINATION and numbers of edges of the relations, in the order of the edge ids; none if they mix."""
        ...

    def edge_blocks(self) -> Sequence[FeatureBlock]:
        """Returns the rows of edges that the source itself has, by edge ids; none if it has none."""
        ...


def edge_blocks(opened: Any, semantic: FeaturesConfig) -> Sequence[FeatureBlock]:
    """Returns the rows of edges, from the table's file or from the source.

    Raises:
        InputError: there are none, or more or fewer than edges.
    """
    assert isinstance(opened, EdgeSource), "a source that says takes_edge_rows"
    table, count = semantic.table, opened.num_edge_rows
    if semantic.of_relations:
        return _relation_blocks(opened, semantic)
    if table.file is None:
        found = opened.edge_blocks()
        if not found:
            problem = f"source = '{semantic.graph.source}' has no rows of edges here"
            raise InputError(f"[features.edges]: {problem}", "save them with the graph, or give a file of them")
        return [replace(block, owner="edge") for block in found]
    remedy = "give a row for each edge of the source, in its order; its reverse takes the same row"
    return [_rows_of_edges(table, 0, count, f"{count:,} edges", remedy)]


def _rows_of_edges(table: TableConfig, first: int, count: int, edges: str, remedy: str) -> FeatureBlock:
    """Returns the rows of a file as a block of the edges from number `first` on, which are `edges` in words."""
    assert table.file is not None
    rows, _ = open_rows(table.file, table.tensor)
    if open_ids(table.file, table.tensor) is not None:
        problem = f"{table.file} has ids beside its rows, and rows of edges are matched by position"
        raise InputError(problem, "save the rows alone, in the order of the edges of the source")
    if rows.ndim == 2 and len(rows) != count:
        raise InputError(f"{table.file} has {len(rows):,} rows for {edges}", remedy)
    return replace(file_block(table.file, table.tensor, first, count), owner="edge")


def _relation_blocks(opened: EdgeSource, semantic: FeaturesConfig) -> Sequence[FeatureBlock]:
    """Returns the rows of the edges of each relation; of those without a file, zeros.

    Raises:
        InputError: the edges are not listed by relation, one has no such name, or more or fewer rows than edges.
    """
    known = opened.edge_relations
    if not known:
        problem = f"[features.edges]: source = '{semantic.graph.source}' does not list its edges by relation here"
        raise InputError(problem, "give [features.edges] a file with a row for each edge, in the order of the source")
    names = dict.fromkeys([*(name for name, _ in known), *(middle_part(name) for name, _ in known)])
    for name in semantic.of_relations:
        if name not in names:
            problem = f"[features.edges.{name}]: the graph has no such relation{did_you_mean(name, names)}"
            raise InputError(problem, f"its relations are: {', '.join(name for name, _ in known)}")
    found, empty, first = list[FeatureBlock](), list[tuple[str, int, int]](), 0
    for name, count in known:
        table = semantic.of_relations.get(name, semantic.of_relations.get(middle_part(name)))
        if table is None:
            empty.append((name, first, count))
        else:
            remedy = "give a row for each edge of the relation, in the order of the source"
            found.append(_rows_of_edges(table, first, count, f"{count:,} edges of {name}", remedy))
        first += count
    return [*found, *(_zeros(*each, like=found[0]) for each in empty)]


def _zeros(name: str, first: int, count: int, like: FeatureBlock) -> FeatureBlock:
    """Returns rows of zeros of the edges of a relation, of the type of another block."""

    def slices() -> Iterator[tuple[int, Array]]:
        dtype = np.float32 if isinstance(like.dtype, str) else like.dtype
        for low, high in row_ranges(count, np.dtype(dtype).itemsize):
            yield low, np.zeros((high - low, 1), dtype)

    where = f"no rows of {name}"
    return FeatureBlock(
        where=where, num_rows=count, width=1, dtype=like.dtype, slices=slices, first=first, owner="edge"
    )


def edge_survey(found: Survey, semantic: FeaturesConfig) -> Survey:
    """Returns the survey of a source with its rows of edges in place of those of nodes."""
    table, graph = semantic.table, semantic.graph
    if semantic.of_relations:
        opened = [open_rows(each.file, each.tensor) for each in semantic.of_relations.values() if each.file is not None]
        types = [stored_type(dtype, table.dtype, "none", "[features.edges]") for _, dtype in opened]
        width = max((*rows.shape, 1, 1)[1] for rows, _ in opened)
        # Reverse edges and those that are merged count as well: the survey does not tell them apart.
        return replace(
            found,
            num_nodes=found.num_edges,
            num_features=width,
            dtype=common_type(types),
            num_without_features=0,
            type_widths=(),
        )
    if table.file is not None:
        rows, dtype = open_rows(table.file, table.tensor)
        num_rows, width = (*rows.shape, 1, 1)[:2]
    else:
        num_rows, width, dtype = graph.edge_matrix()
    stored = stored_type(dtype, table.dtype, "none", "[features.edges]")
    return replace(found, num_nodes=num_rows, num_features=width, dtype=stored, num_without_features=0, type_widths=())
