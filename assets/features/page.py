"""Texts of the page of a feature table."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.artifact import Artifact


def headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the size of a feature table, and the number of nodes without a row."""
    numbers = artifacts[0].summary["numbers"]
    rows = f"**{numbers['num_rows']:,} rows of {numbers['num_features']:,} {numbers['feature_dtype']}**"
    without = numbers["num_without_features"]
    missing = f", {without:,} nodes without a row" if without else ", a row for every node"
    return f"{rows}, {format_bytes(numbers['feature_bytes'])}{missing}"


FEATURES_PAGE = Page(
    about="The feature rows of the nodes: one row per node that has features, in the order of the nodes. "
    "They are stored apart from the graph, so that features can change without sampling anything anew, and be read row by row from disk. "
    "Look at the size in MiB, which decides what fits into memory, and at the number of nodes without features.",
    docs="docs/stages/features.md",
    headline=headline,
    first=("num_rows", "num_features", "feature_dtype", "feature_bytes", "num_without_features"),
    labels={
        "num_features": "values per row",
        "feature_bytes": "features (MiB)",
        "feature_dtype": "type of a value",
        "num_without_features": "nodes without a row",
    },
    columns={"rows": "the features of a node; bfloat16 is stored as uint16"},
)
