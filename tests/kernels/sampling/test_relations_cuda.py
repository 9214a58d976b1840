"""Fan-outs per relation on the shim and on a device: the CPU's blocks to the byte."""

from dataclasses import replace as changed

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.relations_cuda import CudaRelationSampler
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey
from tests.kernels.sampling.test_relations import NUMBERS, large, typed, typed_topologies
from tests.kernels.sampling.test_sample_cuda import assert_same_batches, sent_topology

KEY = BatchKey(0, 3, 4)


def sent(device, graph):
    return changed(sent_topology(device, graph), edge_types=device.upload(graph.edge_types))


def assert_samples(device, graph, fanouts, seeds, replace):
    ours = CudaRelationSampler(sent(device, graph), fanouts, seed=5, device=device, replace=replace)
    assert_same_batches(device, ours, Sampler(graph, fanouts, seed=5, replace=replace), seeds, batches=2)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.integers(1, 4), st.booleans())
def test_drawn_graphs(machine, data, num_relations, replace):
    graph = data.draw(typed_topologies(num_relations))
    table = st.lists(NUMBERS, min_size=num_relations, max_size=num_relations)
    fanouts = data.draw(st.lists(st.one_of(table, st.sampled_from([-1, 1, 3])), min_size=1, max_size=3))
    seeds = np.array(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True)), np.int64)
    assert_samples(machine.device(), graph, fanouts, seeds, replace)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("num_relations", [1, 256])
def test_many_relations_and_long_rows(machine, num_relations, replace):
    graph = large(num_relations, num_edges=2000, num_nodes=60)
    numbers = [(-1, 0, 1, 2, 40, 5)[r % 6] if r else 70 for r in range(num_relations)]
    bounded = [max(0, number) for number in numbers]
    assert_samples(machine.device(), graph, [numbers, 2, bounded], np.arange(0, 60, 2), replace)


def test_what_does_not_fit_is_refused(machine):
    device, graph = machine.device(), typed([[(0, 0), (2, 0)]])
    with pytest.raises(InputError, match="the edges have no relations"):
        CudaRelationSampler(changed(sent(device, graph), edge_types=None), [(1,)], seed=0, device=device)
    sampler = CudaRelationSampler(sent(device, graph), [(1, 1)], seed=0, device=device)
    with pytest.raises(InputError, match="position 1 of the topology has a relation without a fan-out"):
        sampler.sample(KEY, np.array([0]))
