"""Measures what a visit to a chunk takes apart from its edges and rows: the passes of a training, over chunks of a few nodes each.

A pass goes through the same code for a chunk of 10 nodes and for one of a million: lists, buffers, the booking of memory, the starts of
kernels. That takes some milliseconds, which a plan adds for each chunk; on a small graph they are most of an epoch.
"""

from __future__ import annotations

import time

import numpy as np

from kernels.chunks.steps import chunk_steps
from kernels.types import Array, ChunkStep, Topology
from trainers.batches.batch import DATA_WEIGHTS
from trainers.devices.logical import LogicalDevice
from trainers.devices.torch_threads import torch_threads
from trainers.models.layer import LayeredModel
from trainers.models.loss import Loss
from trainers.models.masks import StepRandom
from trainers.models.precision import kept_dtype
from trainers.recipe.forecast import Outlook
from trainers.record.ledger import Ledger
from trainers.record.timeline import Timeline
from trainers.rows.source import TableSource
from trainers.techniques.fullgraph.buffers import Mover
from trainers.techniques.fullgraph.chunk_gradients import open_gradients
from trainers.techniques.fullgraph.executor import keeps_first
from trainers.techniques.fullgraph.lists import walk
from trainers.techniques.fullgraph.passes import Passes
from trainers.techniques.fullgraph.replicas import Replicas
from trainers.techniques.fullgraph.shares import open_places
from trainers.techniques.fullgraph.supply import ChunkBlocks
from trainers.techniques.fullgraph.whole_pass import InputRows, WholePass

CHUNK_NODES, NEIGHBOURS, STEPS = 16, 4, 2
"""Nodes of a chunk, in-edges of a node, and chunks of a part in the passes that are timed."""
MOST_PASSES, MOST_SECONDS = 6, 1.0
"""Passes that are timed at most after the first one, and seconds after which no further one is."""


class _FewSteps:
    """Chunk steps of a small graph in memory.

    Args:
        topology: the graph.
        num_parts, chunks_per_part: m and n.
    """

    def __init__(self, topology: Topology, num_parts: int, chunks_per_part: int):
        self.num_parts, self.chunks_per_part = num_parts, chunks_per_part
        part_of = np.arange(topology.num_nodes, dtype=np.int32) * num_parts // topology.num_nodes
        self._steps = chunk_steps(
            topology.indptr, topology.indices, part_of, num_parts, chunks_per_part=chunks_per_part
        )

    def step(self, part: int, step: int) -> ChunkStep:
        """Returns step j of part i."""
        return self._steps[step][part]


def visit_seconds(outlook: Outlook, model: LayeredModel) -> dict[int, float]:
    """Returns parts -> seconds of a chunk in both passes of all layers, of the head and of the loss, if it has next to no rows.

    It is empty for a model with running statistics, which cannot be cut. Parts have devices of their own, which takes longer than one
    device for all of them, so 1 and 2 parts are timed.

    Args:
        outlook: the training; of an uncut one the chunks are those that it would have with the mode by default.
        model: its model; its parameters receive gradients, which are taken away again.
    """
    if any(True for _ in model.buffers()):
        return {}
    return {parts: _seconds_of_parts(outlook, model, parts) for parts in (1, 2)}


def _seconds_of_parts(outlook: Outlook, model: LayeredModel, parts: int) -> float:
    train = outlook.case.semantic.train
    topology = _few_nodes(min(outlook.sizes.num_nodes, parts * STEPS * CHUNK_NODES), model)
    threads = outlook.cores if isinstance(train.threads, str) else train.threads
    with torch_threads(threads):
        whole = _whole_pass(outlook, model, topology, parts, threads)
        if keeps_first(train, model):
            whole.summed = whole.first_sums(Ledger(), StepRandom(0))
        seconds, began = [], time.perf_counter()
        while len(seconds) < 2 or (len(seconds) <= MOST_PASSES and time.perf_counter() - began < MOST_SECONDS):
            started = time.perf_counter()
            whole(StepRandom(0))
            seconds.append(time.perf_counter() - started)
    model.zero_grad(set_to_none=True)
    return float(np.median(seconds[1:])) / (parts * STEPS)


def _few_nodes(num_nodes: int, model: LayeredModel) -> Topology:
    """Returns a graph whose nodes are read by the nodes behind them, with what the model reads of edges."""
    ids = np.arange(num_nodes, dtype=np.int32)
    indices = np.sort((ids[:, None] + np.arange(NEIGHBOURS, dtype=np.int32)) % num_nodes, axis=1).ravel()
    degrees = np.full(num_nodes, NEIGHBOURS, np.int32)
    return Topology(
        indptr=np.arange(num_nodes + 1, dtype=np.int64) * NEIGHBOURS,
        indices=indices,
        in_degree=degrees,
        out_degree=degrees,
        weights=np.ones(len(indices), np.float32) if model.edge_weight in DATA_WEIGHTS else None,
        edge_types=np.zeros(len(indices), np.uint8) if model.reads_relations else None,
    )


def _whole_pass(outlook: Outlook, model: LayeredModel, topology: Topology, parts: int, threads: int) -> WholePass:
    """Returns the pass of a training over the small graph, each of whose nodes has a label."""
    train, settings, num_nodes = outlook.case.semantic.train, outlook.settings, topology.num_nodes
    places = open_places(LogicalDevice(), parts, min(settings.devices, 1))
    replicas, steps, ledger = Replicas(model, places), _FewSteps(topology, parts, STEPS), Ledger()
    passes = Passes(
        replicas=replicas,
        walk=walk(steps, "p2p+reuse" if settings.mode == "device" else settings.mode),
        blocks=ChunkBlocks(steps, topology, model, 1 << 30),
        mover=Mover(places, ledger, Timeline(), None, threads, settings.overlap),
        dtype=train.dtype,
        hybrid=settings.hybrid,
        folder=None,
        gradients=open_gradients(replicas, None, ledger),
    )
    features: Array = np.ones((num_nodes, outlook.sizes.width), np.float32)
    inputs = InputRows(TableSource(features, False, threads), replicas, kept_dtype(train.dtype))
    labels, ids = np.zeros(num_nodes, np.int32), np.arange(num_nodes, dtype=np.int32)
    return WholePass(passes, inputs, labels, ids, Loss())
