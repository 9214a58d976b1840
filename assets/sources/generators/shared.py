"""Common code of the generators: the sizes they accept, and features that are made range by range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.building.keys import KeyProblem, within
from assets.sources.feature_blocks import FeatureBlock
from assets.sources.readers.archive import SLICE_BYTES
from assets.sources.registry import FEATURES_ONLY, FEATURES_TOO, GraphConfig, RawGraph, TableConfig
from assets.sources.survey import Survey, in_memory_bytes
from assets.storage.machine import require_memory
from kernels.graph.generate import LARGEST_NOISE, class_features
from kernels.types import Array, id_dtype

if TYPE_CHECKING:
    from assets.building.stage import Progress


@dataclass(frozen=True, kw_only=True)
class GeneratedConfig(GraphConfig):
    """Keys of `[graph]` that all generators have.

    Raises:
        InputError: a value is outside its range.
    """

    # number of nodes
    nodes: int = field(metadata=within(1, **FEATURES_TOO))
    # number of drawn edges, before reverse edges are added and duplicates merged
    edges: int = field(metadata=within(1))
    # feature columns
    features: int = field(default=32, metadata=within(1, **FEATURES_ONLY))
    # number of classes, of nearly equal size
    classes: int = field(default=8, metadata=FEATURES_TOO)
    # deviation of the feature noise, relative to that between the class centroids
    noise: float = field(default=4.0, metadata=within(0, LARGEST_NOISE, **FEATURES_ONLY))

    def problems(self) -> Iterator[KeyProblem]:
        """Yields more classes than nodes."""
        yield from super().problems()
        if not 1 <= self.classes <= self.nodes:
            text = f"classes = {self.classes} is outside [1, nodes = {self.nodes}]: give at most one class per node"
            yield KeyProblem("classes nodes", text)

    def feature_keys(self, table: TableConfig) -> dict[str, Any]:
        """Returns the values that decide the rows, with the pipeline's seed, which draws labels and noise."""
        return super().feature_keys(table) | {"seed": self.seed}


def raw_generated(config: GeneratedConfig) -> dict[str, str]:
    """Returns no digests: everything comes from the configuration."""
    return {}


def raw_generated_features(config: GeneratedConfig, table: TableConfig) -> dict[str, str]:
    """Returns no digests: everything comes from the configuration."""
    return {}


Labels = Callable[[Any, int], Array]
"""(configuration, number of native threads) -> labels i32[N]."""

Edges = Callable[[Any, int], tuple[Array, Array]]
"""(configuration, number of native threads) -> src, dst, ids[edges] each."""


class GeneratedSource:
    """A graph that is generated; see `OpenSource`.

    Args:
        config: configuration of the source: sizes, noise, normalisation and seed.
        labels, edges: functions that draw labels and edges.
        threads: number of native threads; no byte depends on it.
    """

    node_of_row = None

    def __init__(self, config: GeneratedConfig, labels: Labels, edges: Edges, threads: int):
        self.config, self.threads = config, threads
        self._labels, self._edges = labels, edges
        self.num_nodes = config.nodes
        self.node_types: Mapping[str, int] = {}

    @cached_property
    def labels(self) -> Array:
        """The classes i32[N]: edges and features follow them."""
        return self._labels(self.config, self.threads)

    def blocks(self, table: TableConfig) -> Sequence[FeatureBlock]:
        """Returns the rows f32[N, F]: the centroid of the node's class plus noise, made in ranges of 8 MiB."""
        config = self.config

        def slices() -> Iterator[tuple[int, Array]]:
            step = min(config.nodes, max(1, SLICE_BYTES // (4 * config.features)))
            rows = np.empty((step, config.features), np.float32)
            for low in range(0, config.nodes, step):
                high = min(low + step, config.nodes)
                part = rows[: high - low]
                class_features(
                    self.labels, config.features, config.seed, config.noise, part, low, high, threads=self.threads
                )
                yield low, part

        block = FeatureBlock(
            where=config.source,
            first=0,
            num_rows=config.nodes,
            width=config.features,
            dtype=np.dtype(np.float32),
            slices=slices,
            place=lambda row, column: f"{config.source}: row {row} column {column}",
        )
        return [block]

    def graph(self, progress: Progress) -> RawGraph:
        """Draws the edges."""
        config = self.config
        progress.start("generate edges", config.edges, "edges")
        src, dst = self._edges(config, self.threads)
        progress.advance(config.edges)
        progress.done()
        return RawGraph(
            num_nodes=config.nodes, src=src, dst=dst, labels=self.labels, class_names=numbered(config.classes)
        )


def opened_generated(labels: Labels, edges: Edges) -> Callable[..., Any]:
    """Returns the function `opened` of a generator (assets/sources/registry.py)."""

    @contextmanager
    def opened(
        config: GeneratedConfig, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
    ) -> Iterator[GeneratedSource]:
        """Generates with `execution.threads` threads; reads nothing."""
        require_memory(
            2 * id_dtype(config.nodes).itemsize * config.edges, f"drawing {config.edges:,} edges", "ask for fewer edges"
        )
        yield GeneratedSource(config, labels, edges, execution.threads)

    return opened


def numbered(classes: int) -> tuple[str, ...]:
    """Returns the names of unnamed classes: their numbers."""
    return tuple(str(label) for label in range(classes))


def survey_generated(config: GeneratedConfig) -> Survey:
    """Describes the graph that a generator would make."""
    stored = config.edges * (2 if config.undirected else 1)
    return Survey(
        title=f"{config.source}: generated from seed {config.seed}",
        contents=[f"{config.nodes:,} nodes, {config.edges:,} edges, {config.classes} classes, noise {config.noise}"],
        num_nodes=config.nodes,
        num_edges=stored,
        num_features=config.features,
        dtype="float32",
        memory_bytes=in_memory_bytes(config.edges, config.nodes, stored),
    )
