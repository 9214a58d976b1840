"""Graphs and parts that full-graph passes are measured on, in memory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from graphmill.assets.building.stage import Silent
from graphmill.assets.partitions.assign import range_parts
from graphmill.assets.partitions.config import PartitionsConfig
from graphmill.assets.partitions.metis import metis_parts
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.graph.generate import rmat_edges, sbm_edges
from graphmill.kernels.types import Array, Topology
from tests.graphs import build_graph

DATA = "GRAPHMILL_TEST_DATA"


def made_topology(src: Array, dst: Array, num_nodes: int, *, undirected: bool = False) -> Topology:
    """Returns the graph of an edge list, duplicates merged, without self-loops."""
    built = build_csc(src, dst, num_nodes, undirected=undirected, duplicates="merge", self_loops="drop", threads=2)
    return Topology(indptr=built.indptr, indices=built.indices, in_degree=built.in_degree, out_degree=built.out_degree)


def rmat(scale: int, degree: int = 16) -> Topology:
    """Returns an R-MAT graph of 2^scale nodes."""
    return made_topology(*rmat_edges(1 << scale, degree << scale, 1), 1 << scale)


def grid(side: int) -> Topology:
    """Returns a square grid, four neighbours per node, ids row by row."""
    ids = np.arange(side * side, dtype=np.int32).reshape(side, side)
    pairs = [(ids[:, :-1], ids[:, 1:]), (ids[:-1], ids[1:])]
    src, dst = (np.concatenate([pair[end].reshape(-1) for pair in pairs]) for end in (0, 1))
    return made_topology(src, dst, side * side, undirected=True)


def sbm(num_nodes: int) -> Topology:
    """Returns a planted partition with 64 classes, nine edges of ten inside, ids shuffled."""
    return made_topology(*sbm_edges(num_nodes, 8 * num_nodes, 64, 0.9, 1), num_nodes, undirected=True)


def nested(num_nodes: int, num_edges: int) -> Topology:
    """Returns communities of 16 nodes in communities of 64, 256 and so on: an edge leaves each with a probability of 0.65; ids shuffled."""
    draw = np.random.default_rng(0)
    src = draw.integers(0, num_nodes, num_edges)
    size = np.minimum(num_nodes, 16 * 4 ** (draw.geometric(0.35, num_edges) - 1))
    dst = np.minimum(src // size * size + draw.integers(0, 1 << 40, num_edges) % size, num_nodes - 1)
    ids = draw.permutation(num_nodes).astype(np.int32)
    return made_topology(ids[src], ids[dst], num_nodes, undirected=True)


def stored(name: str, home: Path) -> Topology | None:
    """Returns a graph from GRAPHMILL_TEST_DATA, or this environment's modules; None where the data is not there."""
    if name == "python-environment":
        installed = Path(np.__file__).parents[1]  # a virtual environment may lend its packages from elsewhere
        return build_graph(Store(home), config_class(name)(source=name, path=installed)).open().topology
    found = sorted(Path(os.environ.get(DATA, "/nowhere")).glob(f"{name}*.npz"))
    return build_graph(Store(home), config_class("npz")(source="npz", path=found[0])).open().topology if found else None


def parts_of(topology: Topology, num_parts: int, method: str, folder: Path) -> Array:
    """Returns i32[N] by "metis" or "range"."""
    if method == "range":
        return range_parts(topology, num_parts)
    config = PartitionsConfig(method="metis", parts=num_parts, seed=1)
    return metis_parts(topology, np.zeros(topology.num_nodes, bool), config, folder, Silent(), 2)
