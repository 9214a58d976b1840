"""Random walks on the shim and on a device: the CPU's blocks to the byte, shares included."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.walk import Walks, WalkSampler
from graphmill.kernels.sampling.walk_cuda import CudaWalkSampler
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import random_topology, topologies, topology
from tests.kernels.sampling.test_sample_cuda import assert_same_batches, sent_topology


def assert_samples(machine, graph, walks, fanouts, seeds, *, pinned=False, seed=0, batches=1):
    device = machine.device(seed, num_multiprocessors=2) if seed else machine.device()
    ours = CudaWalkSampler(sent_topology(device, graph, pinned), walks, fanouts, seed=5, device=device)
    assert_same_batches(device, ours, WalkSampler(graph, walks, fanouts, seed=5), seeds, batches=batches)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    topologies(),
    st.lists(st.sampled_from([-1, 1, 2, 5]), min_size=1, max_size=3),
    st.builds(
        Walks, paths=st.integers(1, 5), length=st.integers(1, 4), restart=st.sampled_from([2.0**-32, 0.5, 0.9, 1.0])
    ),
    st.integers(0, 99),
    st.booleans(),
)
def test_drawn_graphs(machine, graph, fanouts, walks, seed, pinned):
    generator = np.random.default_rng(seed)
    seeds = generator.permutation(graph.num_nodes)[: generator.integers(0, graph.num_nodes + 1)]
    assert_samples(machine, graph, walks, fanouts, seeds, pinned=pinned, seed=seed)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_hubs_and_dead_ends_and_batches_that_follow_one_another(machine, dtype):
    graph = topology([list(range(300)), [0], [], *[[0, 1]] * 297], dtype)
    assert_samples(machine, graph, Walks(paths=9, length=5, restart=0.2), (10, 3), np.array([1, 0, 2]), batches=2)


def test_what_does_not_fit_is_refused(machine):
    graph, device = random_topology(40_000, 60), machine.device()
    many = Walks(paths=1 << 14, length=4)
    with pytest.raises(InputError, match="local ids are 32 bits wide"):
        CudaWalkSampler(sent_topology(device, graph), many, (-1,), seed=1, device=device).sample(
            BatchKey(0, 0, 0), np.arange(40_000)
        )
    graph = random_topology(20, 60)
    graph.indices[:] = 77
    broken = CudaWalkSampler(sent_topology(device, graph), Walks(), (2,), seed=1, device=device)
    with pytest.raises(InputError, match="names no node of the graph"):
        broken.sample(BatchKey(0, 0, 0), np.arange(20))
