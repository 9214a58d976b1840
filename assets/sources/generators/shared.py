"""What the generators share: the sizes they accept, and features that are written range by range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from assets.sources.features import divide_rows
from assets.sources.readers.archive import SLICE_BYTES
from assets.sources.registry import GraphConfig, RawGraph
from assets.sources.survey import Survey, in_memory_bytes
from kernels.errors import InputError
from kernels.graph.generate import LARGEST_NOISE, class_features
from kernels.types import Array

if TYPE_CHECKING:
    from assets.building.stage import Progress
    from assets.storage.writer import Writer


@dataclass(frozen=True, kw_only=True)
class GeneratedConfig(GraphConfig):
    """Keys of `[graph]` that all generators have.

    Raises:
        InputError: a value is outside its range.
    """

    # number of nodes
    nodes: int
    # edges drawn, before reverse edges are added and duplicates merged
    edges: int
    # feature columns
    features: int = 32
    # number of classes, of nearly equal size
    classes: int = 8
    # deviation of the feature noise, relative to that between the class centroids
    noise: float = 4.0

    def __post_init__(self) -> None:
        """Checks the ranges."""
        super().__post_init__()
        for key in ("nodes", "edges", "features"):
            if getattr(self, key) < 1:
                raise InputError(f"{key} = {getattr(self, key)} is less than 1", "give a positive count")
        if not 1 <= self.classes <= self.nodes:
            raise InputError(
                f"classes = {self.classes} is outside [1, nodes = {self.nodes}]", "give at most one class per node"
            )
        if not 0 <= self.noise <= LARGEST_NOISE:
            raise InputError(f"noise = {self.noise} is outside [0, {LARGEST_NOISE}]", "give a ratio, for example 4.0")


def raw_generated(config: GeneratedConfig) -> dict[str, str]:
    """Returns no digests: everything comes from the configuration."""
    return {}


def load_generated(
    config: GeneratedConfig,
    labels: Array,
    edges: Callable[[], tuple[Array, Array]],
    threads: int,
    writer: Writer,
    progress: Progress,
) -> RawGraph:
    """Writes features by class, then draws the edges.

    Args:
        config: configuration of the source: sizes, noise, normalisation and seed.
        labels: i32[N].
        edges: function that draws (src, dst), ids[edges] each.
        threads, writer, progress: number of native threads, writer and listener of the stage.
    """
    write_class_features(config, labels, threads, writer, progress)
    progress.start("generate edges", config.edges, "edges")
    src, dst = edges()
    progress.advance(config.edges)
    progress.done()
    return RawGraph(num_nodes=config.nodes, src=src, dst=dst, labels=labels, class_names=numbered(config.classes))


def write_class_features(
    config: GeneratedConfig, labels: Array, threads: int, writer: Writer, progress: Progress
) -> None:
    """Writes `features` f32[N, F]: the centroid of the node's class plus noise, in ranges of 8 MiB.

    Args:
        config: configuration of the source: sizes, noise, normalisation and seed.
        labels: i32[N].
        threads: number of native threads; the bytes do not depend on it.
        writer: writer of the artifact, which receives the array.
        progress: listener, which is told of every row.
    """
    shape = (config.nodes, config.features)
    table = writer.create("features", shape, np.float32)
    step = max(1, SLICE_BYTES // (4 * config.features))
    progress.start("features", config.nodes, "rows")
    for low in range(0, config.nodes, step):
        high = min(low + step, config.nodes)
        class_features(labels, config.features, config.seed, config.noise, table, low, high, threads=threads)
        if config.normalize == "row":
            table[low:high] = divide_rows(table[low:high])
        progress.advance(high - low)
    progress.done()


def numbered(classes: int) -> tuple[str, ...]:
    """Returns the names of classes that have none: their numbers."""
    return tuple(str(label) for label in range(classes))


def survey_generated(config: GeneratedConfig) -> Survey:
    """Describes what a generator would make."""
    stored = config.edges * (2 if config.undirected else 1)
    return Survey(
        title=f"{config.source}: generated from seed {config.seed}",
        contents=[f"{config.nodes:,} nodes, {config.edges:,} edges, {config.classes} classes, noise {config.noise}"],
        num_nodes=config.nodes,
        num_edges=stored,
        num_features=config.features,
        value_bytes=4,
        memory_bytes=in_memory_bytes(config.edges, config.nodes, stored),
    )
