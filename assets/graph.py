"""The graph stage: from a raw source to topology, features, labels and splits, ready to be mapped by every trainer.

    indptr i64[N+1], indices ids[E]      in-neighbours in compressed columns, rows ascending
    in_degree, out_degree i32[N]         of the whole graph
    features [N, F]                      stored type of the source; labels i32[N], -1 unknown
    train_ids, valid_ids, test_ids       ids[n], ascending, disjoint
    nodes.parquet                        node_id, original_id, name, class
    degree.png, classes.png              figures

Peak memory, with M edges in the source and E stored: the source's own (its docstring), then 8 M bytes of edges beside
those that `build_csc` states, then the node table of about 60 N bytes. Features pass in slices and are never held
whole.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.graph_checks import describe, node_checks, topology_checks
from assets.sources.registry import PLANNED, SOURCES, GraphConfig, RawGraph, config_class, source_module
from assets.splits import checked, stratified
from assets.stage import Progress, Summary, stage_version
from kernels.errors import InputError
from kernels.types import Array, FeatureTable, Topology

if TYPE_CHECKING:
    from assets.artifact import Artifact
    from assets.writer import Writer

__all__ = [
    "GRAPH",
    "PLANNED",
    "SOURCES",
    "Graph",
    "GraphConfig",
    "GraphExecution",
    "GraphStage",
    "config_class",
    "open_graph",
]


@dataclass(frozen=True, kw_only=True)
class GraphExecution:
    """How a graph is built; no byte of it depends on this.

    Raises:
        InputError: a value is outside its range.
    """

    # threads of the kernels, and processes that parse modules
    threads: int = field(default_factory=lambda: min(8, len(os.sched_getaffinity(0))))

    def __post_init__(self) -> None:
        """Checks the range."""
        if self.threads < 1:
            raise InputError(f"threads = {self.threads} is less than 1", "give at least one thread")


class GraphStage:
    """Builds the graph artifact; `GRAPH` is the one instance."""

    name = "graph"
    code_version = 1
    Semantic = GraphConfig
    Execution = GraphExecution

    def inputs(self, semantic: GraphConfig) -> Mapping[str, str]:
        """Returns no inputs: a graph comes from outside."""
        return {}

    def raw(self, semantic: GraphConfig) -> Mapping[str, str]:
        """Returns the content digests of what the source reads.

        Raises:
            InputError: it is missing or unreadable.
        """
        return source_module(semantic.source).raw(semantic)

    def build(
        self,
        inputs: Mapping[str, Artifact],
        semantic: GraphConfig,
        execution: GraphExecution,
        writer: Writer,
        progress: Progress,
    ) -> Summary:
        """Reads the source, compresses the edges, splits, tests and describes the graph.

        Raises:
            InputError: anything wrong with the source, or it changed while it was read.
        """
        raw = source_module(semantic.source).load(semantic, writer, execution, progress)
        if stage_version(self, semantic, inputs) != writer.version:
            raise InputError(f"the files of the {semantic.source} source changed while they were read", "build again")
        parts = _split(raw, semantic)
        topology, dropped = _compress(raw, semantic, execution, progress)
        features = np.load(writer.path("features.npy"), mmap_mode="r")
        for name, array in (
            ("indptr", topology.indptr), ("indices", topology.indices), ("in_degree", topology.in_degree),
            ("out_degree", topology.out_degree), ("labels", raw.labels),
            ("train_ids", parts[0]), ("valid_ids", parts[1]), ("test_ids", parts[2]),
        ):  # fmt: skip
            writer.save(name, array)
        _write_nodes(raw, writer)
        numbers = describe(topology, raw.labels, raw.class_names, parts, features) | dropped | dict(raw.numbers)
        checks = topology_checks(topology, merged=semantic.duplicates == "merge")
        checks += node_checks(raw.labels, len(raw.class_names), parts, features)
        return Summary(numbers=numbers, checks=checks, figures=_draw(topology, numbers, writer))


GRAPH = GraphStage()


def _split(raw: RawGraph, config: GraphConfig) -> tuple[Array, Array, Array]:
    """Returns the source's split, or a stratified one."""
    if raw.splits is not None:
        return checked(raw.splits, raw.labels)
    return stratified(raw.labels, config.seed, config.train_ratio, config.valid_ratio)


def _compress(
    raw: RawGraph, config: GraphConfig, execution: GraphExecution, progress: Progress
) -> tuple[Topology, dict[str, int]]:
    """Returns the topology and the counts of what was found; lets go of the raw edges."""
    from kernels.csc import build_csc

    progress.start("compress edges", len(raw.src), "edges")
    csc = build_csc(
        raw.src,
        raw.dst,
        raw.num_nodes,
        undirected=config.undirected,
        duplicates=config.duplicates,
        self_loops=config.self_loops,
        threads=execution.threads,
    )
    progress.advance(len(raw.src))
    progress.done()
    raw.src = raw.dst = np.zeros(0, raw.src.dtype)
    topology = Topology(indptr=csc.indptr, indices=csc.indices, in_degree=csc.in_degree, out_degree=csc.out_degree)
    return topology, {"num_duplicates": csc.num_duplicates, "num_self_loops": csc.num_self_loops}


def _write_nodes(raw: RawGraph, writer: Writer) -> None:
    """Writes nodes.parquet: what a dense node id was called outside."""
    import polars

    ids = np.arange(raw.num_nodes, dtype=np.int64)
    names = polars.lit(None, dtype=polars.String) if raw.node_names is None else polars.Series(list(raw.node_names))
    classes = polars.Series(list(raw.class_names), dtype=polars.String)
    place = polars.Series(raw.labels).cast(polars.Int64)
    table = polars.DataFrame({"node_id": ids, "original_id": ids}).with_columns(
        names.alias("name"), classes.gather(place.set(place < 0, None)).alias("class")
    )
    table.write_parquet(writer.path("nodes.parquet"), compression="zstd")


def _draw(topology: Topology, numbers: Mapping[str, Any], writer: Writer) -> dict[str, str]:
    """Draws the figures and returns title -> file."""
    from assets.figures import class_balance, degree_histogram

    degree_histogram(writer.path("degree.png"), topology.in_degree, topology.out_degree)
    figures = {"degrees": "degree.png"}
    if numbers["num_classes"]:
        unknown = numbers["num_nodes"] - numbers["num_labelled"]
        counts = np.array(numbers["class_counts"], np.int64)
        class_balance(writer.path("classes.png"), numbers["class_names"], counts, unknown)
        figures["classes"] = "classes.png"
    return figures


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
    """Opens a graph artifact without copying an array; needs NumPy and xxhash only.

    Raises:
        InputError: the artifact is of another stage, or lacks what the graph stage writes.
    """
    from assets.needs import require

    ids = {"dtype": ("int32", "int64"), "ndim": 1}
    arrays = {name: ids for name in ("indices", "train_ids", "valid_ids", "test_ids")}
    arrays |= {name: {"dtype": "int32", "ndim": 1} for name in ("in_degree", "out_degree", "labels")}
    arrays |= {"indptr": {"dtype": "int64", "ndim": 1}, "features": {"ndim": 2}}
    require(artifact, {"stage": "graph", "arrays": arrays})
    array = artifact.array
    names = tuple(artifact.summary["numbers"]["class_names"])
    return Graph(
        topology=Topology(
            indptr=array("indptr"),
            indices=array("indices"),
            in_degree=array("in_degree"),
            out_degree=array("out_degree"),
        ),
        features=artifact.table("features"),
        labels=array("labels"),
        train_ids=array("train_ids"),
        valid_ids=array("valid_ids"),
        test_ids=array("test_ids"),
        num_classes=len(names),
        class_names=names,
    )
