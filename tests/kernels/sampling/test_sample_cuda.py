"""Sampling on the shim and on a device: the CPU's blocks to the byte, transposes included."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.sampling.sample_cuda import CudaSampler
from graphmill.kernels.types import BatchKey, Topology
from tests.kernels.cuda.shim import ShimDevice
from tests.kernels.graphs import random_topology, topologies, topology

KEY = BatchKey(0, 3, 4)


def sent_topology(device, graph, pinned=False):
    def send(array):
        if array is None:
            return None
        if not pinned:
            return device.upload(array)
        there = device.pinned(array.shape, array.dtype)
        there[...] = array
        return there

    return replace(
        graph,
        indptr=send(graph.indptr),
        indices=send(graph.indices),
        weights=None if graph.weights is None else device.upload(graph.weights),
    )


def assert_samples(machine, graph, fanouts, seeds, *, replace=False, transpose="all", pinned=False, seed=0, batches=1):
    device = machine.device(seed, num_multiprocessors=2) if seed else machine.device()
    ours = CudaSampler(sent_topology(device, graph, pinned), fanouts, seed=5, device=device, replace=replace)
    assert_same_batches(device, ours, Sampler(graph, fanouts, seed=5, replace=replace), seeds, transpose, batches)


def assert_same_batches(device, ours, theirs, seeds, transpose="all", batches=1):
    """Blocks of a sampler on the device are those of one on the CPU, to the byte, also if its launches are recorded and replayed."""
    for step in range(batches):
        assert_same_batch(device, ours, theirs, seeds, transpose, step)
    ours.records = isinstance(device, ShimDevice)  # on a GPU, launches of torch's stream alone are recorded
    for step in range(
        batches, batches + 3
    ):  # each is smaller than the one before: one launch by one, recorded, replayed
        assert_same_batch(device, ours, theirs, seeds[step - batches :], transpose, step)
    replayed = ours.records and len(seeds) > 2 and not any(map(ours.waits, ours.fanouts))
    assert ours.traffic(seeds).sends == (2 if replayed else 1)


def assert_same_batch(device, ours, theirs, seeds, transpose, step):
    """Blocks of one batch."""
    batch = BatchKey(0, 3, step)
    found, expected = (each.sample(batch, seeds, transpose=transpose) for each in (ours, theirs))
    for one, other in zip(found, expected, strict=True):
        for field in fields(other):
            value, wanted = getattr(one, field.name), getattr(other, field.name)
            if isinstance(wanted, np.ndarray):
                value = np.asarray(device.download(value))
                assert value.dtype == wanted.dtype, field.name
                np.testing.assert_array_equal(value, wanted, err_msg=field.name)
            else:
                assert value == wanted, field.name


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    topologies(),
    st.lists(st.sampled_from([-1, 1, 2, 3, 7]), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 99),
    st.booleans(),
)
def test_drawn_graphs(machine, graph, fanouts, replace, seed, pinned):
    generator = np.random.default_rng(seed)
    seeds = generator.permutation(graph.num_nodes)[: generator.integers(0, graph.num_nodes + 1)]
    assert_samples(machine, graph, fanouts, seeds, replace=replace, pinned=pinned, seed=seed)


@pytest.mark.parametrize("replace", [False, True])
def test_rows_of_many_chosen_edges(machine, replace):
    graph = topology([list(range(300)) * 3, [0], [], *[[0, 1]] * 297])
    assert_samples(machine, graph, (100, 2), np.array([1, 0, 2]), replace=replace)


def test_batches_follow_one_another_and_weights_come_along(machine):
    graph = random_topology(200, 1500, dtype=np.int64)
    graph = replace(graph, weights=np.random.default_rng(0).random(1500).astype(np.float32))
    assert_samples(machine, graph, (4, 3), np.arange(0, 60, 3), transpose="hidden", batches=3)


def test_what_does_not_fit_is_refused(machine):
    graph, device = random_topology(20, 60), machine.device()
    there = sent_topology(device, graph)
    with pytest.raises(InputError, match=r"fanouts = \[0\]"):
        CudaSampler(there, (0,), seed=1, device=device)
    sampler = CudaSampler(there, (2,), seed=1, device=device)
    with pytest.raises(InputError, match="seed 20 at position 1 is not a node"):
        sampler.sample(KEY, np.array([3, 20]))
    repeated = (np.array([3, 7, 4, 7]), 3, 7), (np.zeros(40, np.int32), 1, 0), (np.repeat(np.arange(10), 2), 1, 0)
    for seeds, place, node in repeated:  # also more than there are nodes
        with pytest.raises(InputError, match=f"seed at position {place} is repeated: {node}"):
            sampler.sample(KEY, seeds)
    indices = graph.indices.copy()
    indices[:] = 77
    broken = CudaSampler(sent_topology(device, replace(graph, indices=indices)), (2,), seed=1, device=device)
    with pytest.raises(InputError, match="names no node of the graph"):
        broken.sample(KEY, np.arange(20))
    with pytest.raises(InputError, match="local ids are 32 bits wide"):
        CudaSampler(there, (2**30,), seed=1, device=device, replace=True).sample(KEY, np.arange(20))


def beyond_local_ids():
    """A graph whose rows, of which no test reads an edge, have 5 edges in 32 bits."""
    most = 2**31 - 1
    return Topology(
        indptr=np.array([0, most, 2 * most, 2 * most + 7]), indices=np.zeros(64, np.int32),
        in_degree=np.zeros(3, np.int32), out_degree=np.zeros(3, np.int32),
    )  # fmt: skip


def test_more_edges_than_local_ids_are_refused_where_only_the_graph_knows_their_number(machine):
    device = machine.device()
    sampler = CudaSampler(sent_topology(device, beyond_local_ids()), (-1,), seed=1, device=device)
    with pytest.raises(InputError, match=r"(?s)4,294,967,301 neighbours of up to 3 nodes.*local ids are 32 bits wide"):
        sampler.sample(KEY, np.arange(3))


class Counting(ShimDevice):
    """Adds up the bytes that are asked of it."""

    asked_bytes = 0

    def empty(self, shape, dtype):
        made = super().empty(shape, dtype)
        self.asked_bytes += made.nbytes
        return made


def test_layers_below_all_neighbours_have_space_for_what_those_are():
    rows = np.random.default_rng(0).integers(0, 20_000, (20_000, 5))
    graph, asked = topology(rows.tolist()), []
    for fanouts in ((10, 10), (-1, 10), (-1, -1)):
        device = Counting(checked=False)
        sampler = CudaSampler(sent_topology(device, graph), fanouts, seed=1, device=device)
        before = device.asked_bytes
        sampler.sample(KEY, np.arange(10))
        asked.append(device.asked_bytes - before)
    assert max(asked) <= 2 * asked[0]  # not that of all nodes and all edges


def test_a_layer_below_all_neighbours_is_not_refused_for_what_all_nodes_would_need():
    graph = Topology(
        indptr=np.concatenate([[0], np.full(2**20, 2)]), indices=np.array([5, 9], np.int32),
        in_degree=np.zeros(2**20, np.int32), out_degree=np.zeros(2**20, np.int32),
    )  # fmt: skip
    device = ShimDevice(checked=False)
    sampler = CudaSampler(sent_topology(device, graph), (-1, 2048), seed=1, device=device, replace=True)
    assert sampler.sample(KEY, np.arange(3))[0].num_src == 5


def held_bytes(blocks):
    """Bytes that the arrays of blocks keep alive, and bytes that they have."""
    values = [getattr(block, field.name) for block in blocks for field in fields(block)]
    own, memory = {}, {}
    for array in (value for value in values if isinstance(value, np.ndarray)):
        address = array.ctypes.data
        own[address] = max(own.get(address, 0), array.nbytes)
        while array.base is not None:
            array = array.base
        memory[id(array)] = array.nbytes
    return sum(memory.values()), sum(own.values())


@pytest.mark.parametrize("fanouts", [(-1, -1), (10, 10), (-1, 3)])
def test_a_batch_that_waits_holds_about_its_own_bytes(fanouts):
    """All rows name few nodes, so that bounds say far more than there is."""
    graph, device = topology([[i % 7, 3, 4, 5] for i in range(3000)]), ShimDevice(checked=False)
    sampler = CudaSampler(sent_topology(device, graph), fanouts, seed=1, device=device)
    held, own = held_bytes(sampler.sample(KEY, np.arange(100, 400)))
    assert held <= 2 * own
