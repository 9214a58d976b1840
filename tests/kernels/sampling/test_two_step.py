"""The ablation gives the fused sampler's blocks, and the roofline reads and counts what it says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels import _native
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler, TwoStepSampler
from graphmill.kernels.types import BatchKey, Topology
from tests.kernels.graphs import assert_same_blocks, random_topology, topologies, topology

pytestmark = pytest.mark.usefixtures("each_map")

FIELDS = ("start", "end", "indices", "src_ids", "edge_id", "t_start", "t_edge", "t_dst")


def with_edge_ids(graph: Topology) -> Topology:
    parts = {name: getattr(graph, name) for name in ("indptr", "indices", "in_degree", "out_degree")}
    return Topology(**parts, edge_ids=np.arange(graph.num_edges))


@given(
    topologies(),
    st.lists(st.sampled_from([-1, 1, 3, 7]), min_size=1, max_size=3),
    st.booleans(),
    st.integers(1, 3),
    st.data(),
)
def test_two_steps_give_the_fused_blocks(graph, fanouts, replace, threads, data):
    seeds = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True))
    samplers = [
        kind(with_edge_ids(graph), fanouts, seed=5, replace=replace, threads=threads)
        for kind in (Sampler, TwoStepSampler)
    ]
    for step in range(2):
        fused, two_step = (
            sampler.sample(BatchKey(0, 0, step), seeds, transpose="all", edge_ids=True) for sampler in samplers
        )
        assert_same_blocks(two_step, fused, FIELDS)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_many_rows_on_many_threads(dtype):
    graph = random_topology(3000, 60000, dtype=dtype)
    seeds = np.arange(0, 3000, 2)
    fused = Sampler(graph, [15, 10], seed=1).sample(BatchKey(0, 0, 0), seeds)
    for threads in (1, 2, 8):
        assert_same_blocks(
            TwoStepSampler(graph, [15, 10], seed=1, threads=threads).sample(BatchKey(0, 0, 0), seeds), fused
        )


def test_it_refuses_what_the_fused_one_refuses():
    with pytest.raises(InputError, match="more than 2147483647 edges"):
        TwoStepSampler(topology([[0], [1]]), [2**30], seed=0, replace=True).sample(BatchKey(0, 0, 0), [0, 1])
    bad = topology([[0, 0], []])
    bad.indices[1] = 7
    with pytest.raises(InputError, match="node 7, but only 2 nodes"):
        TwoStepSampler(bad, [-1], seed=0).sample(BatchKey(0, 0, 0), [0])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_roofline_visits_every_address(dtype):
    graph = random_topology(500, 9000, dtype=dtype)
    dst_ids = np.arange(0, 500, 3, dtype=dtype)
    positions = np.random.default_rng(0).integers(0, 9000, 5000)
    visits = np.zeros(500, np.uint64)
    degrees = int((graph.indptr[dst_ids + 1] - graph.indptr[dst_ids]).sum())
    counts = np.bincount(graph.indices[positions], minlength=500)
    # Each visit adds what it found, 0, 1, 2, ..., and leaves one more.
    expected = degrees + int((counts * (counts - 1) // 2).sum())
    assert _native.random_gather(graph.indptr, graph.indices, dst_ids, positions, visits, 1) == expected
    assert visits.tolist() == counts.tolist()
