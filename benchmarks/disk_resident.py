"""Training on the partitions that are in memory, as MariusGNN trains from disk: for the benchmarks that compare with it.

MariusGNN (Waleffe et al., EuroSys 2023, section 5.2) keeps the partitions of the training nodes in memory, fills the rest of it with
partitions that are drawn anew for each epoch, and samples neighbours among the nodes in memory alone. An epoch so reads the resident
partitions once, by large reads, and its samples lack all other neighbours.

    partition_nodes     training nodes first, all others at random
    resident_parts      which partitions are in memory in an epoch
    resident_graph      the edges of which both ends are in memory
    resident_training   a context in which trainers sample so

Evaluation uses all neighbours, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from graphmill.assets.sampling.drawing import Drawing
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import key, permutation
from graphmill.kernels.sampling.sample import Sampler, Transposes
from graphmill.kernels.types import Array, BatchKey, Block, Stream, Topology

PARTS = 50
"""Partitions of a graph: each is 2 % of its nodes."""
EDGE_BYTES = 8
"""Bytes of an edge on disk: two 32-bit ids."""


class Parts(NamedTuple):
    """Partitions of the nodes.

    Attributes:
        part: i32[N], the partition of each node.
        kept: number of partitions that hold training nodes: these are 0 to kept - 1.
        count: number of partitions.
    """

    part: Array
    kept: int
    count: int


def partition_nodes(num_nodes: int, train_ids: Array, seed: int, count: int = PARTS) -> Parts:
    """Puts nodes into partitions of nearly equal sizes: training nodes into the first ones, all others at random.

    Args:
        num_nodes: number of nodes.
        train_ids: ids[n], global.
        seed: seed of the order of the others.
        count: number of partitions.
    """
    rank = permutation(key(seed, Stream.SPLITS), num_nodes).astype(np.int64)
    rank[train_ids] -= num_nodes
    place = np.empty(num_nodes, np.int64)
    place[np.argsort(rank, kind="stable")] = np.arange(num_nodes)
    part = (place * count // num_nodes).astype(np.int32)
    return Parts(part, int(part[train_ids].max(initial=-1)) + 1, count)


def resident_parts(parts: Parts, share: float, seed: int, epoch: int) -> Array:
    """Returns the ids of the partitions in memory in an epoch, ascending: those of training nodes, and others that are drawn.

    Args:
        parts: the partitions.
        share: share of the nodes that fits into memory.
        seed, epoch: name the draw.

    Raises:
        InputError: the partitions of the training nodes do not fit.
    """
    room = int(share * parts.count + 1e-9)
    if room < parts.kept:
        raise InputError(
            f"training nodes fill {parts.kept} of {parts.count} partitions, and memory holds {room}",
            "give more memory, or fewer training nodes",
        )
    others = np.random.default_rng([seed, epoch]).permutation(np.arange(parts.kept, parts.count))
    return np.sort(np.concatenate([np.arange(parts.kept), others[: room - parts.kept]]))


def resident_graph(topology: Topology, here: Array) -> Topology:
    """Returns the graph of the edges of which both ends are in memory; nodes keep their ids.

    Args:
        topology: the whole graph.
        here: bool[N], whether a node is in memory.
    """
    counts = np.diff(topology.indptr)
    kept = here[topology.indices] & np.repeat(here, counts)
    ends = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])
    indptr, indices = ends[topology.indptr], np.asarray(topology.indices)[kept]
    degree = topology.in_degree.dtype
    return Topology(
        indptr=indptr,
        indices=indices,
        in_degree=np.diff(indptr).astype(degree),
        out_degree=np.bincount(indices, minlength=len(here)).astype(degree),
    )


class ResidentSampler:
    """Samples each epoch's batches among the nodes that are in memory then.

    Args:
        topology: the whole graph.
        parts: its partitions.
        share: share of the nodes that fits into memory.
        fanouts: one number per layer, from the seeds outwards.
        seed: seed of the run.
        threads: number of threads of a batch.
    """

    def __init__(
        self, topology: Topology, parts: Parts, share: float, fanouts: tuple[int, ...], *, seed: int, threads: int
    ):
        def opened(epoch: int) -> Sampler:
            here = np.isin(parts.part, resident_parts(parts, share, seed, epoch))
            return Sampler(resident_graph(topology, here), fanouts, seed=seed, threads=threads)

        self._opened = lru_cache(2)(opened)

    def sample(self, batch: BatchKey, seeds: Any, *, transpose: Transposes = "hidden") -> tuple[Block, ...]:
        """Samples the blocks under the seeds; see `Sampler.sample`."""
        return self._opened(batch.epoch).sample(batch, seeds, transpose=transpose)


@contextmanager
def resident_training(train_ids: Array, share: float) -> Iterator[None]:
    """Within it, trainers that draw their batches draw them among the nodes in memory.

    The recipe does not tell: models of it belong into a store of their own.

    Args:
        train_ids: ids[n], global: the training nodes of the graph.
        share: share of the nodes that fits into memory.
    """

    def sampler(drawing: Drawing, topology: Topology, *, seed: int, threads: int = 1) -> ResidentSampler:
        parts = partition_nodes(topology.num_nodes, train_ids, seed)
        return ResidentSampler(topology, parts, share, drawing.neighbours.numbers, seed=seed, threads=threads)

    with patch.object(Drawing, "sampler", sampler):
        yield
