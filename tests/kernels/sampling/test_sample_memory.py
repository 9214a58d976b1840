"""What a sampler keeps, by its own account and by the system's: at most 8 bytes a node, or 32 a source, and 16 bytes a sampled edge."""

import os
from pathlib import Path

import numpy as np
import pytest

from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Topology
from tests.kernels.graphs import random_topology


def bound(graph, edges):
    return 8 * graph.num_nodes + 16 * edges


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("fanouts", [(15, 10, 5), (25, 10), (3, 3), (-1, 2)])
def test_scratch_stays_within_its_bound(dtype, fanouts):
    graph = random_topology(20_000, 400_000, dtype=dtype)
    sampler = Sampler(graph, fanouts, seed=0)
    seeds = np.flatnonzero(np.diff(graph.indptr))
    largest = 0
    for step, size in enumerate((100, 2000, 300)):
        blocks = sampler.sample(BatchKey(0, 0, step), seeds[:size])
        largest = max(largest, sum(len(block.indices) for block in blocks))
        assert sampler.scratch_bytes <= bound(graph, largest)
    kept = sampler.scratch_bytes
    sampler.sample(BatchKey(0, 0, 9), seeds[:50])
    assert sampler.scratch_bytes == kept


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_hashed_map_grows_with_batches_and_not_with_the_graph(dtype, monkeypatch):
    monkeypatch.setattr(Sampler, "MOST_DIRECT_NODES", 19_999)
    least = None
    for num_nodes in (20_000, 200_000):
        sampler = Sampler(random_topology(num_nodes, 400_000, dtype=dtype), (4, 4), seed=0)
        assert not sampler.counts_visits and sampler.scratch_bytes == (least or sampler.scratch_bytes)
        least = sampler.scratch_bytes
        for step, size in enumerate((10, 100, 5000, 300)):
            blocks = sampler.sample(BatchKey(0, 0, step), np.arange(size, dtype=dtype))
            if size < 5000:
                continue
            # Half of the slots are free, and there are a power of two of them; an edge too many may have asked for space.
            assert sampler.scratch_bytes <= least + 32 * (blocks[0].num_src + 2**14) + 8 * blocks[0].num_src
    monkeypatch.setattr(Sampler, "MOST_DIRECT_NODES", 20_000)
    assert Sampler(random_topology(20_000, 400_000), (4, 4), seed=0).counts_visits


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_resident_scratch_seen_from_outside():
    num_nodes, slack = 6_000_000, 6 << 20
    nodes = np.arange(num_nodes, dtype=np.int32)
    indices = np.maximum(np.stack([nodes - 2, nodes - 1], axis=1), 0).ravel()
    empty = np.empty(0, np.int32)
    indptr = np.arange(0, 2 * num_nodes + 1, 2)
    graph = Topology(indptr=indptr, indices=indices, in_degree=empty, out_degree=empty)
    before = resident_bytes()
    sampler = Sampler(graph, (2, 2), seed=0)
    sampler.sample(BatchKey(0, 0, 0), nodes[:1000])
    assert resident_bytes() - before < slack  # of a map of 48 MB only the pages that were touched
    largest = 0
    for step, first in enumerate(range(0, num_nodes, 400_000)):
        blocks = sampler.sample(BatchKey(0, 0, step), nodes[first : first + 100_000])
        largest = max(largest, sum(len(block.indices) for block in blocks))
        del blocks
    grown = resident_bytes() - before
    assert grown <= bound(graph, largest) + slack
    assert grown > 8 * num_nodes // 8  # the measurement sees the map at all
