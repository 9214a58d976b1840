"""Graphs with their features: both artifacts, built in one pass and opened as one object, for tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize_together
from graphmill.assets.features.config import features_config
from graphmill.assets.features.read import open_features
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.sources.interface import GraphConfig
from graphmill.assets.storage.local.artifact import Artifact, read_artifact
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.store import Store


@dataclass(frozen=True, kw_only=True)
class OpenedGraph(Graph):
    """A graph and its features, opened."""

    features: FeatureTable


class GraphArtifacts(NamedTuple):
    """A graph and its features."""

    graph: Artifact
    features: Artifact

    @property
    def inputs(self) -> dict[str, Artifact]:
        """Role -> artifact, as stages that read both take them."""
        return {"graph": self.graph, "features": self.features}

    @property
    def paths(self) -> tuple[Path, Path]:
        """Where both are, for another process."""
        return self.graph.path, self.features.path

    def open(self) -> OpenedGraph:
        """Returns both, opened."""
        graph = open_graph(self.graph)
        found = {each.name: getattr(graph, each.name) for each in fields(graph)}
        return OpenedGraph(**found, features=open_features(self.features))


def build_graph(store: Store, config: GraphConfig, threads: int = 2) -> GraphArtifacts:
    """Builds a graph and its main feature table, as a pipeline does."""
    asked = [(FEATURES, features_config(config)), (GRAPH, config)]
    features, graph = materialize_together(store, asked, Threads(threads=threads))
    return GraphArtifacts(graph, features)


def open_paths(paths: tuple[Path, Path]) -> OpenedGraph:
    """Opens what another process built."""
    return GraphArtifacts(*(read_artifact(path) for path in paths)).open()
