"""Assigns nodes to parts by each method."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from assets.building.stage import Progress
from assets.graph.read import Graph
from assets.partitions.config import PartitionsConfig
from assets.partitions.metis import metis_parts
from kernels.chunks.ldg import ldg
from kernels.rng import absorb_ids, draws, key
from kernels.types import Array, Stream, Topology

LDG_PASSES = 5
SLACK = 0.05
"""Share by which a part may exceed the mean, in nodes, edges and training nodes."""
PARTS = 7
"""The word of the stream of generators that draws parts."""


def assign(graph: Graph, config: PartitionsConfig, folder: Path, progress: Progress, threads: int) -> Array:
    """Returns i32[N], the part of each node.

    Args:
        graph, config: the graph, and the method and number of parts.
        folder: folder of the unnamed files that METIS reads.
        progress: listener.
        threads: number of threads of the preparation.

    Raises:
        InputError: a library is missing, or METIS failed.
    """
    topology, num_parts = graph.topology, config.parts
    if topology.num_nodes == 0:
        return np.empty(0, np.int32)
    if config.method == "random":
        return random_parts(topology.num_nodes, num_parts, config.seed)
    if config.method == "range":
        return range_parts(topology, num_parts)
    trained = train_mask(graph)
    if config.method == "ldg":
        progress.start("ldg", LDG_PASSES, "passes")
        part_of = None
        for _ in range(LDG_PASSES):
            part_of = balanced_pass(topology, trained, num_parts, part_of)
            progress.advance(1)
        progress.done()
        assert part_of is not None
        return part_of
    part_of = metis_parts(topology, trained, config, folder, progress, threads)
    if config.method == "metis":
        for _ in range(LDG_PASSES):
            if not is_overfull(topology, trained, num_parts, part_of):
                break
            part_of = balanced_pass(topology, trained, num_parts, part_of)
    return part_of


def train_mask(graph: Graph) -> Array:
    """Returns bool[N], the training nodes."""
    trained = np.zeros(graph.topology.num_nodes, bool)
    trained[np.asarray(graph.train_ids)] = True
    return trained


def balanced_pass(topology: Topology, trained: Array, num_parts: int, part_of: Array | None) -> Array:
    """Returns the parts after one more pass of `ldg`, balanced by nodes, edges and training nodes."""
    weights = np.ones((topology.num_nodes, 3), np.int64)
    weights[:, 1], weights[:, 2] = topology.in_degree, trained
    return ldg(topology.indptr, topology.indices, weights, num_parts, slack=SLACK, part_of=part_of)


def is_overfull(topology: Topology, trained: Array, num_parts: int, part_of: Array) -> bool:
    """Tells whether a part is more than the slack over the mean in some measure."""
    return max(balances(topology, trained, num_parts, part_of)) > 1 + SLACK


def balances(topology: Topology, trained: Array, num_parts: int, part_of: Array) -> list[float]:
    """Returns the largest part over the mean, in nodes, in-edges and training nodes; 1 is even."""
    found = []
    for weights in (None, topology.in_degree, trained):
        held = np.bincount(part_of, weights=weights, minlength=num_parts)
        found.append(float(held.max(initial=0) * num_parts / held.sum()) if held.sum() else 1.0)
    return found


def random_parts(num_nodes: int, num_parts: int, seed: int) -> Array:
    """Returns i32[N], random parts: a pure function of seed and node."""
    words = draws(absorb_ids(key(seed, Stream.GENERATORS, PARTS), np.arange(num_nodes)), 0)
    return ((words >> np.uint64(32)) * np.uint64(num_parts) >> np.uint64(32)).astype(np.int32)


def range_parts(topology: Topology, num_parts: int) -> Array:
    """Returns i32[N], ascending: ranges of ids that cost the same in nodes and in-edges, which count half each."""
    nodes = np.arange(topology.num_nodes) * (num_parts / (2 * topology.num_nodes))
    edges = np.asarray(topology.indptr)[:-1] * (num_parts / (2 * max(1, topology.num_edges)))
    return np.minimum(nodes + edges, num_parts - 1).astype(np.int32)
