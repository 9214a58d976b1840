"""Assigns nodes to parts by each method."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Progress, Silent
from graphmill.assets.graph.read import Graph
from graphmill.assets.partitions.config import PartitionsConfig
from graphmill.assets.partitions.method import contracted_sizes
from graphmill.assets.partitions.metis import metis_parts, node_weights, run_metis
from graphmill.assets.storage.files.arrays import scratch_arrays
from graphmill.kernels.chunks.clusters import contract
from graphmill.kernels.chunks.ldg import ldg
from graphmill.kernels.ranges import Allocate, node_ranges
from graphmill.kernels.rng import absorb_ids, draws, key
from graphmill.kernels.types import Array, Stream, Topology

LDG_PASSES = 5
SLACK = 0.05
"""Share by which a part may exceed the mean, in nodes, edges and training nodes."""
PARTS = 7
"""The word of the stream of generators that draws parts."""


def assign(
    graph: Graph, config: PartitionsConfig, folder: Path, progress: Progress, threads: int, *, undirected: bool = False
) -> Array:
    """Returns i32[N], the part of each node.

    Args:
        undirected: whether the graph has the reverse of each edge.

    Raises:
        InputError: a library is missing, or METIS failed.
    """
    topology, num_parts = graph.topology, config.parts
    if num_parts == 1 or topology.num_nodes == 0:
        return np.zeros(topology.num_nodes, np.int32)
    if config.method == "random":
        return random_parts(topology.num_nodes, num_parts, config.seed)
    if config.method == "range":
        return range_parts(topology, num_parts)
    trained = train_mask(graph)
    if config.method in ("ldg", "metis-contracted"):
        part_of = None
        if config.method != "ldg":
            part_of = contracted_parts(topology, trained, undirected, config, folder, progress)
        return streamed_parts(topology, trained, num_parts, part_of, scratch_arrays(folder), progress)
    part_of = metis_parts(topology, trained, config, folder, progress, threads)
    if config.method == "metis":
        weights = measures(topology, trained, scratch_arrays(folder))
        for _ in range(LDG_PASSES):
            if not is_overfull(topology, trained, num_parts, part_of):
                break
            part_of = balanced_pass(topology, weights, num_parts, part_of)
    return part_of


def streamed_parts(
    topology: Topology,
    trained: Array,
    num_parts: int,
    part_of: Array | None = None,
    allocate: Allocate = np.zeros,
    progress: Progress | None = None,
) -> Array:
    """Returns i32[N], the parts after all passes of `ldg`, from none or from given ones; `trained` is bool[N]."""
    progress = progress or Silent()
    progress.start("ldg", LDG_PASSES, "passes")
    weights = measures(topology, trained, allocate)
    means: Any = {"slack": SLACK, "part_of": part_of, "passes": LDG_PASSES, "advance": progress.advance}
    part_of = ldg(topology.indptr, topology.indices, weights, num_parts, **means)
    progress.done()
    return part_of


def train_mask(graph: Graph) -> Array:
    """Returns bool[N], the training nodes."""
    trained = np.zeros(graph.topology.num_nodes, bool)
    trained[np.asarray(graph.train_ids)] = True
    return trained


def measures(topology: Topology, trained: Array, allocate: Allocate = np.zeros) -> Array:
    """Returns i64[N, 3], what each node adds to a part: itself, its in-edges, and 1 for a training node; `ldg` reads it in order."""
    weights = allocate(3 * topology.num_nodes, np.int64).reshape(-1, 3)
    for low, high in node_ranges(topology.num_nodes):
        weights[low:high, 0] = 1
        weights[low:high, 1], weights[low:high, 2] = topology.in_degree[low:high], trained[low:high]
    return weights


def balanced_pass(topology: Topology, weights: Array, num_parts: int, part_of: Array | None) -> Array:
    """Returns the parts after one more pass of `ldg`, balanced by the `measures` of the nodes."""
    return ldg(topology.indptr, topology.indices, weights, num_parts, slack=SLACK, part_of=part_of)


def is_overfull(topology: Topology, trained: Array, num_parts: int, part_of: Array) -> bool:
    """Tells whether a part is more than the slack over the mean in some measure."""
    return max(balances(topology, trained, num_parts, part_of)) > 1 + SLACK


def balances(topology: Topology, trained: Array, num_parts: int, part_of: Array) -> list[float]:
    """Returns the largest part over the mean, in nodes, in-edges and training nodes; 1 is even."""
    found = []
    for weights in (None, topology.in_degree, trained):
        held = np.zeros(num_parts)
        for low, high in node_ranges(len(part_of)):
            part = None if weights is None else weights[low:high]
            held += np.bincount(part_of[low:high], weights=part, minlength=num_parts)
        found.append(float(held.max(initial=0) * num_parts / held.sum()) if held.sum() else 1.0)
    return found


def random_parts(num_nodes: int, num_parts: int, seed: int) -> Array:
    """Returns i32[N], random parts: a pure function of seed and node."""
    part_of, stream = np.empty(num_nodes, np.int32), key(seed, Stream.GENERATORS, PARTS)
    for low, high in node_ranges(num_nodes):
        words = draws(absorb_ids(stream, np.arange(low, high)), 0)
        part_of[low:high] = (words >> np.uint64(32)) * np.uint64(num_parts) >> np.uint64(32)
    return part_of


def range_parts(topology: Topology, num_parts: int) -> Array:
    """Returns i32[N], ascending: ranges of ids that cost the same in nodes and in-edges, which count half each."""
    part_of = np.empty(topology.num_nodes, np.int32)
    for low, high in node_ranges(topology.num_nodes):
        nodes = np.arange(low, high) * (num_parts / (2 * topology.num_nodes))
        edges = np.asarray(topology.indptr[low:high]) * (num_parts / (2 * max(1, topology.num_edges)))
        part_of[low:high] = np.minimum(nodes + edges, num_parts - 1)
    return part_of


CLUSTERS_PER_PART, TIMES_THE_MEAN = 16, 2
"""A cluster weighs at most one of so many shares of a part, and with `contract_to` at most so many times the mean of the clusters."""


def contracted_parts(
    topology: Topology, trained: Array, undirected: bool, config: PartitionsConfig, folder: Path, progress: Progress
) -> Array:
    """Returns i32[N], the parts of METIS on clusters of nodes, before streams refine them.

    Args:
        topology: the graph, of any kind.
        trained: bool[N], training nodes.
        undirected: whether the graph has the reverse of each edge.
    """
    weights = node_weights(topology, trained)
    clusters, edges = contracted_sizes(topology.num_nodes, config.parts, config.contract_to)
    most = int(weights.sum()) // (CLUSTERS_PER_PART * config.parts)
    if config.contract_to is not None:
        most = min(most, TIMES_THE_MEAN * int(weights.sum()) // clusters)
    progress.start("clusters", None, "seconds")
    found = contract(
        topology.indptr,
        topology.indices,
        weights,
        clusters=clusters,
        edges=edges,
        most=max(1, most),
        undirected=undirected,
        seed=config.seed,
        allocate=scratch_arrays(folder),
        advance=lambda _: progress.advance(0),  # a cancelled run is noticed here
    )
    del weights
    progress.done()
    progress.start(config.method, None, "seconds")
    arrays = {"weights": found.weights, "edge_weights": found.edge_weights}
    part_of = run_metis(found.indptr, found.indices, arrays, replace(config, method="metis"), folder, progress)
    progress.done()
    return np.ascontiguousarray(part_of[found.cluster_of])
