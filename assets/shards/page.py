"""Texts of the page of shards."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.artifact import Artifact


def headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the number of shards, and the size of the largest beside that of all."""
    numbers = artifacts[0].summary["numbers"]
    largest = max(numbers["shard_bytes"], default=0)
    return (
        f"**{numbers['num_parts']:,} shards**, {format_bytes(numbers['feature_bytes'])} in all, "
        f"{format_bytes(largest)} in the largest"
    )


SHARDS_PAGE = Page(
    about="The feature rows of each part of the graph, in an artifact of its own. A rank of a training across machines opens the shards of "
    "its own parts and asks other ranks for all other rows, so no machine needs all features. "
    "Look at the largest shard over the mean: the rank that has it needs the most memory.",
    docs="docs/stages/shards.md",
    headline=headline,
    first=("num_parts", "num_rows", "feature_bytes", "balance_rows"),
    labels={
        "num_rows": "rows of all shards",
        "feature_bytes": "features of all shards (MiB)",
        "shard_bytes": "bytes by part",
        "balance_rows": "largest shard over the mean",
    },
    columns={"row_of": "row of node i in the shard of its part, -1 without features"},
)
