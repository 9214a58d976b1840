"""The graph stage's artifact as the trainers read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assets.sources.registry import PLANNED, SOURCES, GraphConfig, config_class
from kernels.types import Array, FeatureTable, Topology

if TYPE_CHECKING:
    from assets.store import Artifact

__all__ = ["PLANNED", "SOURCES", "Graph", "GraphConfig", "config_class", "open_graph"]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A stored graph, memory-mapped.

    Attributes:
        topology: in-neighbours and whole-graph degrees.
        features: the table of N feature rows, in node order.
        labels: i32[N], -1 unknown.
        train_ids, valid_ids, test_ids: ids[n], ascending, disjoint.
        num_classes, class_names: the classes, in label order.
    """

    topology: Topology
    features: FeatureTable
    labels: Array
    train_ids: Array
    valid_ids: Array
    test_ids: Array
    num_classes: int
    class_names: tuple[str, ...]


def open_graph(artifact: Artifact) -> Graph:
    """Opens a graph artifact without copying an array; needs NumPy only.

    Raises:
        InputError: the artifact lacks an array of the graph stage.
    """
    array = artifact.array
    topology = Topology(
        indptr=array("indptr"), indices=array("indices"), in_degree=array("in_degree"), out_degree=array("out_degree")
    )
    names = tuple(artifact.summary["class_names"])
    return Graph(
        topology=topology,
        features=artifact.table("features"),
        labels=array("labels"),
        train_ids=array("train_ids"),
        valid_ids=array("valid_ids"),
        test_ids=array("test_ids"),
        num_classes=len(names),
        class_names=names,
    )
