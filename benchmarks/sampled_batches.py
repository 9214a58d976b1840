"""Batches of one epoch for benchmarks that look at node ids only: sampled from a graph without features, no artifact in between."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.graph.generate import rmat_edges
from graphmill.kernels.rng import key, permutation
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Array, Stream, Topology

LOW_SKEW = (0.3, 0.25, 0.25, 0.2)
"""Quadrants of an R-MAT graph whose degrees differ little."""


class Batches(NamedTuple):
    """Batch b needs node_ids[ptr[b]:ptr[b+1]]; num_nodes and num_edges are the graph's."""

    ptr: Array
    node_ids: Array
    num_nodes: int
    num_edges: int


def sample_batches(
    nodes: int, edges: int, train_ratio: float, batch_size: int, fanouts: tuple[int, ...],
    quadrants: tuple[float, float, float, float] = (0.57, 0.19, 0.19, 0.05), epochs: int = 1, threads: int = 2,
) -> Batches:  # fmt: skip
    """Generates an R-MAT graph with reverse edges and samples whole epochs from it."""
    src, dst = rmat_edges(nodes, edges, 0, quadrants, threads=threads)
    rules = {"undirected": True, "duplicates": "merge", "self_loops": "drop"}
    csc = build_csc(src, dst, nodes, threads=threads, **rules)
    topology = Topology(indptr=csc.indptr, indices=csc.indices, in_degree=csc.in_degree, out_degree=csc.out_degree)
    train_ids = permutation(key(0, Stream.SPLITS), nodes)[: int(train_ratio * nodes)].astype(csc.indices.dtype)
    plan = EpochPlan(np.sort(train_ids), batch_size, seed=0)
    sampler = Sampler(topology, fanouts, seed=0, threads=threads)
    batches = [
        sampler.sample(batch.key, batch.seeds)[0].src_ids for epoch in range(epochs) for batch in plan.batches(epoch)
    ]
    return Batches(np.cumsum([0, *map(len, batches)]), np.concatenate(batches), nodes, len(csc.indices))
