"""Texts of the page of sampling tables."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.storage.artifact import Artifact


def headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the origin of the weights, and their unevenness."""
    numbers = artifacts[0].summary["numbers"]
    return (
        f"**weights of {numbers['weights']}**; {numbers['num_without_weight']:,} of {numbers['num_edges']:,} edges have none, "
        f"{numbers['num_empty_rows']:,} nodes no neighbour with weight"
    )


TABLES_PAGE = Page(
    about="What weighted sampling looks up: for every node a table that gives a neighbour in proportion to its weight for one draw. "
    "It is apart from the graph, so that another method or other weights rebuild neither the graph nor what is made of it. "
    "Look at the edges without weight, which are never drawn, and at the nodes whose neighbours have none.",
    docs="docs/stages/sampling_tables.md",
    headline=headline,
    first=("weights", "num_edges", "num_without_weight", "num_empty_rows", "effective_neighbours"),
    labels={
        "weights": "where the weights come from",
        "num_edges": "edges of the graph",
        "num_without_weight": "edges whose weight is 0",
        "effective_neighbours": "effective neighbours per node: 1 / sum of squared probabilities, mean",
        "num_empty_rows": "nodes whose neighbours all have the weight 0",
        "largest_weight": "largest weight",
        "smallest_weight": "smallest weight",
    },
    columns={"table": "threshold and alias of place i, in row i"},
)
