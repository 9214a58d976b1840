"""Rows of edges: the table `[features.edges]`, built by the features stage as rows of nodes are.

Row i belongs to the edge with id i: the row of the edge in its source, counted over all files or relations. The rows of a source lie in its
arrays of edges; a file beside it has a row for each edge in the same order.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from graphmill.assets.features.config import FeaturesConfig
from graphmill.assets.sources.arrays.mapped_arrays import file_block, open_ids, open_rows
from graphmill.assets.sources.features.blocks import FeatureBlock
from graphmill.assets.sources.features.types import stored_type
from graphmill.assets.sources.survey import Survey
from graphmill.kernels.errors import InputError


@runtime_checkable
class EdgeSource(Protocol):
    """An open source whose edges have ids."""

    @property
    def num_edge_rows(self) -> int:
        """Number of edges as the source has them, which their ids count."""
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
    if table.file is None:
        found = opened.edge_blocks()
        if not found:
            problem = f"source = '{semantic.graph.source}' has no rows of edges here"
            raise InputError(f"[features.edges]: {problem}", "save them with the graph, or give a file of them")
        return [replace(block, owner="edge") for block in found]
    rows, _ = open_rows(table.file, table.tensor)
    if open_ids(table.file, table.tensor) is not None:
        problem = f"{table.file} has ids beside its rows, and rows of edges are matched by position"
        raise InputError(problem, "save the rows alone, in the order of the edges of the source")
    if rows.ndim == 2 and len(rows) != count:
        problem = f"{table.file} has {len(rows):,} rows for {count:,} edges"
        raise InputError(
            problem, "give a row for each edge of the source, in its order; its reverse takes the same row"
        )
    return [replace(file_block(table.file, table.tensor, 0, count), owner="edge")]


def edge_survey(found: Survey, semantic: FeaturesConfig) -> Survey:
    """Returns the survey of a source with its rows of edges in place of those of nodes."""
    table, graph = semantic.table, semantic.graph
    if table.file is not None:
        rows, dtype = open_rows(table.file, table.tensor)
        num_rows, width = (*rows.shape, 1, 1)[:2]
    else:
        num_rows, width, dtype = graph.edge_matrix()
    stored = stored_type(dtype, table.dtype, "none", "[features.edges]")
    return replace(found, num_nodes=num_rows, num_features=width, dtype=stored, num_without_features=0, type_widths=())
