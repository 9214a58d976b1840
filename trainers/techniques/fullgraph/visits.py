"""Measures what a visit to a chunk takes apart from its edges and rows: the passes of a training, over a few chunks.

A pass goes through the same code for a chunk of 10 nodes and for one of a million: lists, buffers, the booking of memory, the starts of
kernels and of their threads. That takes some milliseconds, which a plan adds for each chunk; on a small graph they are most of an epoch.
Threads start for loops over many rows alone, and rows of new tensors take longer to write than others. So the passes are timed over chunks
of a few nodes, and over chunks as large as those of the training, up to some thousand nodes, less the seconds that their edges and rows are
planned with; the larger of the two counts.
"""

from __future__ import annotations

import time
from math import ceil
from typing import NamedTuple

import numpy as np

from graphmill.assets.chunks.read import open_chunks
from graphmill.kernels.chunks.steps import chunk_steps
from graphmill.kernels.types import Array, ChunkStep, Topology
from graphmill.trainers.batches.batch import DATA_WEIGHTS
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.torch_threads import torch_threads
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.loss import CrossEntropy
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.products import kept_dtype
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.record.ledger import Ledger, Timeline
from graphmill.trainers.rows.source import TableSource
from graphmill.trainers.techniques.fullgraph.costs import ROW_COPIES, volumes
from graphmill.trainers.techniques.fullgraph.executor import keeps_first
from graphmill.trainers.techniques.fullgraph.passes.chunk_pass import Passes
from graphmill.trainers.techniques.fullgraph.passes.replicas import Replicas, open_gradients
from graphmill.trainers.techniques.fullgraph.passes.row_passes import InputRows
from graphmill.trainers.techniques.fullgraph.passes.whole_pass import NodeLosses, WholePass
from graphmill.trainers.techniques.fullgraph.rows.buffers import Mover
from graphmill.trainers.techniques.fullgraph.rows.host_rows import consecutive
from graphmill.trainers.techniques.fullgraph.rows.lists import walk
from graphmill.trainers.techniques.fullgraph.rows.supply import ChunkBlocks
from graphmill.trainers.techniques.fullgraph.shares import open_places

CHUNK_NODES, NEIGHBOURS, STEPS = 16, 4, 2
"""Nodes of a small chunk, in-edges of each, and chunks of a part in the passes that are timed."""
MOST_NODES, MOST_EDGES = 2048, 65_536
"""Nodes and edges of a large chunk at most."""
MOST_PASSES, MOST_SECONDS = 6, 1.0
"""Passes that are timed at most after the first one, and seconds after which no further one is."""


class _Shape(NamedTuple):
    """The chunks of a pass that is timed.

    Attributes:
        parts: number of parts, each with a device of its own.
        neighbours: in-edges of each node.
        scattered: whether the nodes of a chunk have no consecutive ids, so that their rows are copied.
    """

    parts: int
    nodes: int = CHUNK_NODES
    neighbours: int = NEIGHBOURS
    scattered: bool = False


class _FewSteps:
    """Chunk steps of a small graph in memory; those of scattered nodes have every other id of their part."""

    def __init__(self, topology: Topology, shape: _Shape):
        self.num_parts, self.chunks_per_part = shape.parts, STEPS
        ids = np.arange(topology.num_nodes)
        self._steps = chunk_steps(
            topology.indptr,
            topology.indices,
            (ids * shape.parts // topology.num_nodes).astype(np.int32),
            shape.parts,
            chunks_per_part=STEPS,
            order=np.concatenate([ids[::2], ids[1::2]]).astype(topology.indices.dtype) if shape.scattered else None,
        )

    def step(self, part: int, step: int) -> ChunkStep:
        """Returns step j of part i."""
        return self._steps[step][part]


def visit_seconds(case: Case, model: LayeredModel, layer_seconds: float, most_bytes: int) -> dict[int, float]:
    """Returns parts -> seconds of a chunk in both passes of all layers, of the head and of the loss, apart from its edges and rows.

    It is empty for a training that is not cut. Parts have devices of their own, which takes longer than one device for all of them; more
    than 2 take as long as 2.

    Args:
        case: the training; its speeds, if it has some, tell the rate at which rows are copied.
        model: its model; its parameters receive gradients, which are taken away again.
        layer_seconds: seconds that both passes of all layers are planned with, over all nodes and edges.
        most_bytes: bytes that the features of the nodes may take.
    """
    if case.settings.mode == "device":
        return {}
    parts = min(2, volumes(case).parts)
    return {parts: _visit(case, model, parts, layer_seconds, most_bytes)}


def _visit(case: Case, model: LayeredModel, parts: int, layer_seconds: float, most_bytes: int) -> float:
    few, _ = _seconds_and_bytes(case, model, _Shape(parts))
    large = _large_chunks(case, parts, most_bytes)
    if large.nodes <= CHUNK_NODES:
        return few
    seconds, moved = _seconds_and_bytes(case, model, large)
    rate = 0.0 if case.speeds is None else case.speeds.copy_rate
    copying = ROW_COPIES * moved / rate if rate else 0.0
    return max(few, seconds - copying - layer_seconds * large.nodes / case.sizes.num_nodes)


def _large_chunks(case: Case, parts: int, most_bytes: int) -> _Shape:
    """Returns chunks like those of the training, of as many edges per node; of few nodes if these have many edges or columns."""
    sizes, found = case.sizes, volumes(case)
    neighbours = max(1, round(sizes.num_edges / sizes.num_nodes))
    row_bytes = 4 * max(sizes.width, case.semantic.train.hidden)
    nodes = min(
        ceil(sizes.num_nodes / (found.parts * found.steps)),
        sizes.num_nodes // (parts * STEPS),
        MOST_NODES,
        MOST_EDGES // neighbours,
        most_bytes // (row_bytes * parts * STEPS),
    )
    return _Shape(parts, nodes, min(neighbours, nodes * parts * STEPS), _scattered(case))


def _scattered(case: Case) -> bool:
    """Returns whether the nodes of a chunk have no consecutive ids, by the first nodes of the first part; unbuilt chunks have none."""
    if "chunks" not in case.sizes.artifacts:
        return True
    first = open_chunks(case.sizes.artifacts["chunks"]).nodes_of(0)[:MOST_NODES]
    return not consecutive(first)


def _seconds_and_bytes(case: Case, model: LayeredModel, shape: _Shape) -> tuple[float, float]:
    """Returns (seconds of a chunk, bytes of its rows that move), from passes over a small graph."""
    train = case.semantic.train
    # Nodes may have types by their ids, so there are no further ones.
    topology = _small_graph(min(case.sizes.num_nodes, shape.parts * STEPS * shape.nodes), shape.neighbours, model)
    with torch_threads(case.threads):
        whole = _whole_pass(case, model, topology, shape)
        if keeps_first(train, model):
            whole.summed = whole.first_sums(Ledger(), StepRandom(0))
        seconds, began = [], time.perf_counter()
        while len(seconds) < 2 or (len(seconds) <= MOST_PASSES and time.perf_counter() - began < MOST_SECONDS):
            started = time.perf_counter()
            whole(StepRandom(0))
            seconds.append(time.perf_counter() - started)
    model.zero_grad(set_to_none=True)
    moved = sum(whole.passes.mover.ledger.moved_bytes(link) for link in ("h2d", "d2h", "d2d")) / len(seconds)
    chunks = shape.parts * STEPS
    return float(np.median(seconds[1:])) / chunks, moved / chunks


def _small_graph(num_nodes: int, neighbours: int, model: LayeredModel) -> Topology:
    """Returns a graph whose nodes are read by the nodes behind them, with what the model reads of edges."""
    ids = np.arange(num_nodes, dtype=np.int32)
    indices = np.sort((ids[:, None] + np.arange(neighbours, dtype=np.int32)) % num_nodes, axis=1).ravel()
    degrees = np.full(num_nodes, neighbours, np.int32)
    return Topology(
        indptr=np.arange(num_nodes + 1, dtype=np.int64) * neighbours,
        indices=indices,
        in_degree=degrees,
        out_degree=degrees,
        weights=np.ones(len(indices), np.float32) if model.edge_weight in DATA_WEIGHTS else None,
        edge_types=np.zeros(len(indices), np.uint8) if model.reads_relations else None,
    )


def _whole_pass(case: Case, model: LayeredModel, topology: Topology, shape: _Shape) -> WholePass:
    """Returns the pass of a training over the small graph, each of whose nodes has a label."""
    train, settings, num_nodes = case.semantic.train, case.settings, topology.num_nodes
    threads = case.threads
    places = open_places(LogicalDevice(), shape.parts, min(settings.devices, 1))
    replicas, steps, ledger = Replicas(model, places), _FewSteps(topology, shape), Ledger()
    passes = Passes(
        replicas=replicas,
        walk=walk(steps, settings.mode),
        blocks=ChunkBlocks(steps, topology, model, 1 << 30),
        mover=Mover(places, ledger, Timeline(), None, threads, settings.overlap),
        dtype=train.dtype,
        hybrid=settings.hybrid,
        folder=None,
        gradients=open_gradients(replicas, None, ledger),
    )
    features: Array = np.ones((num_nodes, case.sizes.width), np.float32)
    inputs = InputRows(TableSource(features, False, threads), replicas, kept_dtype(train.dtype))
    labels, ids = np.zeros(num_nodes, np.int32), np.arange(num_nodes, dtype=np.int32)
    return WholePass(passes, inputs, NodeLosses(passes, labels, ids, CrossEntropy()))
