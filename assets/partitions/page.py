"""Texts of the page of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.storage.artifact import Artifact


def headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the share of the edges that are cut, beside that of random parts, and the replication."""
    numbers = artifacts[0].summary["numbers"]
    random = numbers.get("edge_cut_random")
    beside = "" if random is None else f" ({100 * random:.0f} % at random)"
    return (
        f"**{100 * numbers['edge_cut']:.1f} % of the edges cut**{beside}; {numbers['num_parts']:,} parts by {numbers['method']}"
        f"{' (auto)' if 'method_chosen' in numbers else ''}, "
        f"{numbers['replication']:.2f} copies per node"
    )


PARTITIONS_PAGE = Page(
    about="The nodes in parts, one per device or rank. Edges between parts mean rows that have to cross, so the fewer the better; parts of "
    "unequal size mean devices that wait. Look at the cut and the replication beside those of parts at random, and at the balance: the "
    "largest part over the mean, in nodes, edges and training nodes.",
    docs="docs/stages/partitions.md",
    headline=headline,
    first=("edge_cut", "replication", "balance_nodes", "balance_edges", "balance_train_nodes", "num_parts", "method"),
    labels={
        "edge_cut": "share of the edges between parts",
        "replication": "copies per node: nodes and in-neighbours of all parts",
        "balance_nodes": "largest part over the mean, nodes",
        "balance_edges": "largest part over the mean, in-edges",
        "balance_train_nodes": "largest part over the mean, training nodes",
        "edge_cut_random": "share of the edges between parts, at random",
        "replication_random": "copies per node, at random",
        "beside_random": "the method beside parts at random",
        "method_chosen": 'why "auto" chose the method',
    },
    columns={"part_of": "part of node i, in row i"},
)
