"""Texts of the page of a graph."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.storage.artifact import Artifact


def headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the size of a graph, its split, and the share of edges that join nodes of one class."""
    numbers = artifacts[0].summary["numbers"]
    split = " / ".join(f"{numbers[f'num_{part}']:,}" for part in ("train", "valid", "test"))
    same = numbers["homophily_ratio"]
    alike = f", {100 * same:.1f} % of the edges inside a class" if same >= 0 else ""
    size = f"**{numbers['num_nodes']:,} nodes, {numbers['num_edges']:,} edges**"
    return f"{size}, {numbers['num_classes']:,} classes{alike}, {split} nodes to train, validate and test"


GRAPH_PAGE = Page(
    about="The nodes and edges of the graph, sorted by target, with labels and the split into training, validation and test nodes. "
    "All that samples or trains reads this one artifact, so the source is parsed once. "
    "Look at the numbers of nodes and edges, at the balance of the classes, and at the checks where the source is your own.",
    docs="docs/stages/graph.md",
    headline=headline,
    first=("num_nodes", "num_edges", "num_classes", "num_train", "num_valid", "num_test", "homophily_ratio"),
    labels={
        "num_train": "training nodes",
        "num_valid": "validation nodes",
        "num_test": "test nodes",
        "num_isolated": "nodes without edges",
        "num_labelled": "labelled nodes",
        "num_duplicates": "duplicate edges in the source",
        "num_self_loops": "self loops in the source",
        "num_ids_of_both_ends": "ids in both columns of the edge tables",
        "homophily_ratio": "edges inside a class (%)",
    },
    columns={
        "in_degree": "edges that end in the node",
        "out_degree": "edges that begin in the node",
        "labels": "class of the node, -1 where it is not known",
        "node_id": "number of the node, from 0: its place in every array",
        "original_id": "what the source calls the node",
        "name": "text of the node, where the source has one",
        "class": "name of the class, empty where it is not known",
    },
    file="nodes.parquet",
)
