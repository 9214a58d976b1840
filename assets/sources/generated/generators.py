"""Graphs of any size that are generated: stochastic block model, R-MAT, and a citation-like model.

Features are the centroid of the node's class plus noise. The default noise leaves one row ambiguous, while the mean over a
neighbourhood is not. `kernels/graph/generate.py` draws all of it, and names the models' sources.

Every edge is a function of its number, so more than `HELD_EDGES` edges, or those that take more than half of the memory, are drawn in
batches to a file and sorted out of core (assets/graph/edge_sort.py), with the same result.

Peak memory: 4 bytes per node for the classes (twice that if some are hidden) and one slice of 8 MiB of features; beside it what `survey`
adds up for edges in memory, or for the sort of a file of edges in ranges of at most `SORT_BYTES`.
"""

from __future__ import annotations

import errno
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graphmill.assets.building.keys import KeyProblem, within
from graphmill.assets.costs.needs import STEP_BYTES, Term
from graphmill.assets.sources.features.blocks import FeatureBlock, row_ranges
from graphmill.assets.sources.generated.drawn_labels import task_labels
from graphmill.assets.sources.interface import (
    FEATURES_ONLY,
    FEATURES_TOO,
    GraphConfig,
    OpenSource,
    RawGraph,
    TableConfig,
)
from graphmill.assets.sources.spool import BATCH_EDGES, EdgeColumns, EdgeSpool, range_edges, record_dtype
from graphmill.assets.sources.survey import Survey
from graphmill.assets.storage.system.filesystem import full_disk
from graphmill.assets.storage.system.machine import memory_bytes
from graphmill.kernels.graph.generate import (
    LARGEST_NOISE,
    citation_edges,
    citation_labels,
    class_features,
    rmat_edges,
    rmat_labels,
    sbm_edges,
    sbm_labels,
)
from graphmill.kernels.rng import absorb_ids, draws, key
from graphmill.kernels.types import Array, Stream, id_dtype

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress

MOST_FEATURES, MOST_ROWS = 1 << 24, 1 << 48
"""More than any machine stores; sums of sizes stay below 2^63."""
HELD_EDGES = 1 << 25
"""Most drawn edges of a graph that is built in memory, if that has room."""
SORT_BYTES = 512 << 20
"""Memory of the sort of more edges."""
EXAMPLE: Mapping[str, Any] = {"nodes": 20000, "edges": 160000, "features": 32, "classes": 8, "p_in": 0.6}
"""Keys of a new pipeline file."""
HIDDEN = 6
"""The word after the stream for nodes without a label; kernels/graph/generate.py has the others."""


@dataclass(frozen=True, kw_only=True)
class GeneratedConfig(GraphConfig):
    """Keys of `[graph]` that all generators have."""

    # number of nodes
    nodes: int = field(metadata=within(1, MOST_ROWS, **FEATURES_TOO))
    # number of drawn edges, before reverse edges are added and duplicates merged
    edges: int = field(metadata=within(1, MOST_ROWS))
    # feature columns
    features: int = field(default=32, metadata=within(1, MOST_FEATURES, **FEATURES_ONLY))
    # number of classes, of nearly equal size
    classes: int = field(default=8, metadata=FEATURES_TOO)
    # share of the nodes whose class is known; the others have no label, and are in no split
    labelled: float = field(default=1.0, metadata=within(0, 1, hashed="unless default"))
    # deviation of the feature noise, relative to that between the class centroids
    noise: float = field(default=4.0, metadata=within(0, LARGEST_NOISE, **FEATURES_ONLY))

    generated, inspected = True, False
    tasks = ("classes", "multilabel", "regression")
    example: ClassVar[Mapping[str, Any]] = EXAMPLE

    def problems(self) -> Iterator[KeyProblem]:
        """Yields more classes than nodes."""
        yield from super().problems()
        if not 1 <= self.classes <= self.nodes:
            text = f"classes = {self.classes} is outside [1, nodes = {self.nodes}]: give at most one class per node"
            yield KeyProblem("classes nodes", text)

    def feature_keys(self, table: TableConfig) -> dict[str, Any]:
        """Returns the values that decide the rows, with the pipeline's seed, which draws labels and noise."""
        return super().feature_keys(table) | {"seed": self.seed}

    @abstractmethod
    def draw_labels(self, threads: int) -> Array:
        """Returns the classes i32[N]; no byte depends on the number of native threads."""

    @abstractmethod
    def draw_edges(self, threads: int, lo: int, hi: int) -> tuple[Array, Array]:
        """Returns src, dst, ids[hi - lo] each, of edges lo to hi - 1; no byte depends on the number of native threads."""

    @contextmanager
    def opened(
        self, tables: Sequence[TableConfig], folder: Path, execution: Any, progress: Progress
    ) -> Iterator[OpenSource]:
        """Generates with `execution.threads` threads; reads nothing."""
        scratch = self.survey().scratch_bytes
        if scratch > shutil.disk_usage(folder).free:
            raise full_disk(errno.ENOSPC, folder / "edges.spool", scratch)
        yield self.drawn(folder, execution.threads)

    def drawn(self, folder: Path, threads: int) -> OpenSource:
        """Returns the graph, which is drawn when it is asked for."""
        return GeneratedSource(self, threads, folder)

    @property
    def num_stored(self) -> int:
        """The most edges of the graph, with the reverse ones that are added."""
        return self.edges * (2 if self.undirected else 1)

    @property
    def sorts_a_file(self) -> bool:
        """Whether edges are drawn to a file and sorted; no byte of the graph depends on it."""
        if self.edges > HELD_EDGES:
            return True
        held, sorting = (_most(phases(self, self.num_stored)[0]) for phases in (_held_phases, _spooled_phases))
        return held > max(sorting, memory_bytes() // 2)

    def survey(self) -> Survey:
        """Describes the graph that would be made."""
        stored = self.num_stored
        scratch, (phases, held) = 0, _held_phases(self, stored)
        if self.sorts_a_file:
            scratch = (self.edges + stored) * record_dtype(self.nodes, EdgeColumns()).itemsize
            phases, held = _spooled_phases(self, stored)
        return Survey(
            title=f"{self.source}: generated from seed {self.seed}",
            contents=[f"{self.nodes:,} nodes, {self.edges:,} edges, {self.classes} classes, noise {self.noise}"],
            num_nodes=self.nodes,
            num_edges=stored,
            num_features=self.features,
            dtype="float32",
            memory_bytes=STEP_BYTES + _most(phases),
            scratch_bytes=scratch,
            num_classes=1 if self.task == "regression" else self.classes,
            num_split=split_sizes(self, self.nodes),
            phases=phases,
            held_after=held,
            features_memory=(_labels(replace(self, labelled=1.0)),),
        )


@dataclass(frozen=True, kw_only=True)
class SbmConfig(GeneratedConfig):
    """`[graph]` with `source = "sbm"`: equal classes, and edges that prefer their own class.

    Holland, Laskey, Leinhardt, "Stochastic blockmodels: first steps", Social Networks 1983, with a fixed number of edges.
    An edge stays inside its class with probability `p_in`; otherwise it joins two classes at random.
    """

    # names this kind of source
    source: str = field(default="sbm", metadata=FEATURES_TOO)
    # probability that an edge stays inside its class
    p_in: float = field(default=0.6, metadata=within(0, 1))

    def draw_labels(self, threads: int) -> Array:
        """Returns the classes i32[N]."""
        return sbm_labels(self.nodes, self.classes, self.seed, threads=threads)

    def draw_edges(self, threads: int, lo: int, hi: int) -> tuple[Array, Array]:
        """Returns src, dst, ids[hi - lo] each."""
        return sbm_edges(self.nodes, self.edges, self.classes, self.p_in, self.seed, threads, lo, hi)


@dataclass(frozen=True, kw_only=True)
class RmatConfig(GeneratedConfig):
    """`[graph]` with `source = "rmat"`: skewed degrees, nested communities, labels that neighbours predict.

    R-MAT (Chakrabarti, Zhan, Faloutsos, "R-MAT: A recursive model for graph mining", SDM 2004) drops each edge into the adjacency matrix by
    choosing one quadrant at each of log2(N) levels. A class is a range of the unscrambled ids, the leading levels, so an edge joins equal
    classes more often than chance exactly when a*d > b*c. Graph500's corner (0.57, 0.19, 0.19, 0.05) has a*d < b*c: there the neighbours do
    not predict the class. The default here keeps the skew and has communities: a = 0.5, b = c = 0.1, d = 0.3.
    """

    # names this kind of source
    source: str = field(default="rmat", metadata=FEATURES_TOO)
    # probabilities of the upper left, upper right and lower left quadrant; the lower right one takes the rest
    a: float = 0.5
    b: float = 0.1
    c: float = 0.1

    example: ClassVar[Mapping[str, Any]] = {key: value for key, value in EXAMPLE.items() if key != "p_in"}

    def problems(self) -> Iterator[KeyProblem]:
        """Yields shares that are not probabilities."""
        yield from super().problems()
        if min(self.a, self.b, self.c) < 0 or self.a + self.b + self.c > 1:
            text = f"a = {self.a}, b = {self.b}, c = {self.c} are not probabilities: give values of 0 or more with a sum of at most 1"
            yield KeyProblem("a b c", text)

    def draw_labels(self, threads: int) -> Array:
        """Returns the classes i32[N]."""
        return rmat_labels(self.nodes, self.classes, self.seed, threads=threads)

    def draw_edges(self, threads: int, lo: int, hi: int) -> tuple[Array, Array]:
        """Returns src, dst, ids[hi - lo] each."""
        quadrants = (self.a, self.b, self.c, max(0.0, 1 - self.a - self.b - self.c))
        return rmat_edges(self.nodes, self.edges, self.seed, quadrants, threads=threads, lo=lo, hi=hi)


@dataclass(frozen=True, kw_only=True)
class CitationConfig(GeneratedConfig):
    """`[graph]` with `source = "citation"`: communities, and a preference for papers that are cited often already.

    Nodes come one after the other and cite earlier ones, mostly of their own class; some citations are copied from the
    cited papers. In-degrees have a heavy tail whose weight `p_copy` sets.
    """

    # names this kind of source
    source: str = field(default="citation", metadata=FEATURES_TOO)
    # probability that a node looks for a paper to cite in its own class
    p_in: float = field(default=0.8, metadata=within(0, 1))
    # probability that it copies a citation of the paper it found: the preference for papers that are cited often
    p_copy: float = field(default=0.3, metadata=within(0, 1))

    def draw_labels(self, threads: int) -> Array:
        """Returns the classes i32[N]."""
        return citation_labels(self.nodes, self.classes, self.seed, threads=threads)

    def draw_edges(self, threads: int, lo: int, hi: int) -> tuple[Array, Array]:
        """Returns src, dst, ids[hi - lo] each."""
        shares = self.p_in, self.p_copy
        return citation_edges(self.nodes, self.edges, self.classes, *shares, self.seed, threads=threads, lo=lo, hi=hi)


class GeneratedSource:
    """A graph that is generated, its edges in a scratch folder if there are many; see `OpenSource`."""

    node_of_row = None

    def __init__(self, config: GeneratedConfig, threads: int, folder: Path):
        self.config, self.threads, self.folder = config, threads, folder
        self.num_nodes = config.nodes
        self.node_types: Mapping[str, int] = {}

    @cached_property
    def labels(self) -> Array:
        """The classes i32[N]: edges and features follow them."""
        return self.config.draw_labels(self.threads)

    def blocks(self, table: TableConfig) -> Sequence[FeatureBlock]:
        """Returns the rows f32[N, F]: the centroid of the node's class plus noise, made in ranges of 8 MiB."""
        return [class_block(self.config, self.labels, self.threads)]

    def graph(self, progress: Progress) -> RawGraph:
        """Draws the edges."""
        config = self.config
        # Drawn for themselves if some are hidden, since a graph is mostly opened without its features.
        labels = self.labels if config.labelled == 1 else with_hidden(config, config.draw_labels(self.threads))
        labels, names, best = task_labels(config.task, self.labels, labels, config.classes, config.seed)
        known = RawGraph(num_nodes=config.nodes, labels=labels, class_names=names, numbers=best)
        progress.start("generate edges", config.edges, "edges")
        if config.sorts_a_file:
            graph = replace(known, spool=self._spooled(progress), memory_bytes=SORT_BYTES)
        else:
            src, dst = config.draw_edges(self.threads, 0, config.edges)
            progress.advance(config.edges)
            graph = replace(known, src=src, dst=dst)
        progress.done()
        return graph

    def _spooled(self, progress: Progress) -> EdgeSpool:
        config = self.config
        watched = config.counts_reverses(0)
        spool = EdgeSpool(self.folder, config.nodes, EdgeColumns(), undirected=config.undirected, watched=watched)
        for lo in range(0, config.edges, BATCH_EDGES):
            hi = min(config.edges, lo + BATCH_EDGES)
            spool.append(*config.draw_edges(self.threads, lo, hi))
            progress.advance(hi - lo)
        return spool


def class_block(config: GeneratedConfig, classes: Array, threads: int) -> FeatureBlock:
    """Returns the rows f32[n, F] of nodes with classes i32[n]: the centroid of each one's class plus noise, made in ranges of 8 MiB."""

    def slices() -> Iterator[tuple[int, Array]]:
        for low, high in row_ranges(len(classes), 4 * config.features):
            part = np.empty((high - low, config.features), np.float32)
            class_features(classes, config.features, config.seed, config.noise, part, low, high, threads=threads)
            yield low, part

    return FeatureBlock(
        where=config.source,
        num_rows=len(classes),
        width=config.features,
        dtype=np.dtype(np.float32),
        slices=slices,
        place=lambda row, column: f"{config.source}: row {row} column {column}",
    )


def with_hidden(config: GeneratedConfig, labels: Array) -> Array:
    """Returns the array i32[n] of classes, with -1 put in for nodes whose label is hidden."""
    if config.labelled < 1:
        name, most = key(config.seed, Stream.GENERATORS, HIDDEN), np.uint64(round(config.labelled * 2**32))
        for low, high in row_ranges(len(labels), 8):
            drawn = draws(absorb_ids(name, np.arange(low, high)), 0) >> np.uint64(32)
            labels[low:high][drawn >= most] = -1
    return labels


def split_sizes(config: GeneratedConfig, num_nodes: int) -> tuple[int, int, int]:
    """Returns the most nodes that each part of a drawn split has, of `num_nodes` with a class."""
    shares = config.train_ratio, config.valid_ratio, 1 - config.train_ratio - config.valid_ratio
    drawn = (num_nodes * config.labelled * share for share in shares)
    train, valid, test = (ceil(each + config.classes) if each else 0 for each in drawn)
    return train, valid, test


Phases = tuple[tuple[tuple[Term, ...], ...], tuple[Term, ...]]
"""What the phases of a build hold, and what is held at its end."""


def _labels(config: GeneratedConfig) -> Term:
    several = {"multilabel": config.classes, "regression": 4}.get(config.task, 0)
    return Term("classes and labels", config.nodes * ((4 if config.labelled == 1 else 8) + several))


def _most(phases: Sequence[tuple[Term, ...]]) -> int:
    """Returns the bytes of the phase that holds most."""
    return max(sum(term.most for term in phase) for phase in phases)


def _held_phases(config: GeneratedConfig, stored: int) -> Phases:
    """Returns the memory while edges are compressed in memory (kernels/graph/csc.py): their ends, both by bucket, and the result."""
    nodes, ids = config.nodes, id_dtype(config.nodes).itemsize
    columns = Term("neighbours", ids * stored, "[graph] edges", bound=config.duplicates == "merge")
    drawn = (
        _labels(config),
        Term("drawn edges", 2 * ids * config.edges, "[graph] edges"),
        Term("edges by bucket", 2 * ids * stored, "[graph] edges"),
        Term("starts and degrees", 12 * nodes),
        columns,
    )
    return (drawn,), (_labels(config), Term("starts and degrees", 16 * nodes), columns)


def _spooled_phases(config: GeneratedConfig, stored: int) -> Phases:
    """Returns the memory while edges are sorted out of core (assets/graph/edge_sort.py): degrees, and a range of edges."""
    nodes, ids = config.nodes, id_dtype(config.nodes).itemsize
    most, labels = range_edges(SORT_BYTES, stored), _labels(config)
    degrees = Term("degrees", nodes * (4 if config.undirected else 8))
    batch = Term("batch of edges", 12 * BATCH_EDGES)
    sorting = Term("edges of a range, in order", (2 * ids + 36) * most)
    return ((labels, degrees, batch, sorting),), (labels, degrees, batch)
