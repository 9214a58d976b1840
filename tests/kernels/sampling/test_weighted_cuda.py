"""Weighted sampling on the shim and on a device: the CPU's blocks to the byte, shares included."""

from dataclasses import replace as changed

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling import weighted_cuda
from graphmill.kernels.sampling.alias import AliasTables, build_alias
from graphmill.kernels.sampling.weighted import WeightedSampler
from graphmill.kernels.sampling.weighted_cuda import CudaWeightedSampler
from tests.kernels.graphs import random_topology, topologies, topology
from tests.kernels.sampling.test_sample_cuda import KEY, assert_same_batches, beyond_local_ids, sent_topology
from tests.kernels.sampling.test_weighted import DAMAGES, WEIGHTS, any_damage, damaged_tables


def sent_tables(device, tables, pinned=False):
    table = device.pinned(tables.table.shape, np.uint32) if pinned else device.upload(tables.table)
    if pinned:
        table[...] = tables.table
    return AliasTables(table=table, support=None if tables.support is None else device.upload(tables.support))


def assert_samples(machine, graph, tables, fanouts, seeds, *, replace=False, pinned=False, seed=0, batches=1):
    device = machine.device(seed, num_multiprocessors=2) if seed else machine.device()
    longest = int(np.diff(graph.indptr).max(initial=0))
    ours = CudaWeightedSampler(
        sent_topology(device, graph, pinned), sent_tables(device, tables, pinned), fanouts,
        seed=5, device=device, longest=longest, replace=replace,
    )  # fmt: skip
    theirs = WeightedSampler(graph, tables, fanouts, seed=5, replace=replace)
    assert_same_batches(device, ours, theirs, seeds, batches=batches)
    return ours


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    topologies(),
    st.lists(st.sampled_from([-1, 1, 2, 3, 7]), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 99),
    st.booleans(),
    st.data(),
)
def test_drawn_graphs(machine, graph, fanouts, replace, seed, pinned, data):
    generator = np.random.default_rng(seed)
    weights = np.array(data.draw(st.lists(WEIGHTS, min_size=graph.num_edges, max_size=graph.num_edges)), float)
    tables = build_alias(graph, weights, empty=data.draw(st.sampled_from(["uniform", "none"])))
    seeds = generator.permutation(graph.num_nodes)[: generator.integers(0, graph.num_nodes + 1)]
    assert_samples(machine, graph, tables, fanouts, seeds, replace=replace, pinned=pinned, seed=seed)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("fanout", [3, 65, 199, -1])
def test_rows_that_reject_for_too_long(machine, monkeypatch, dtype, fanout):
    """Dominant weights, nearly all neighbours drawn, neighbours without weight; scratch for one block of warps."""
    monkeypatch.setattr(weighted_cuda, "MASS_BYTES", 0)
    graph = topology([list(range(200)), list(range(200)), [0, 1], [], *[[5]] * 196], dtype)
    generator = np.random.default_rng(3)
    weights = np.concatenate([generator.random(200), 10.0 ** generator.integers(-12, 12, 200), np.ones(198)])
    weights[200:240] = 0
    for replace in (False, True):
        ours = assert_samples(
            machine, graph, build_alias(graph, weights), (fanout, 2), np.arange(4), replace=replace, batches=2
        )
        assert ours.table_reads > 0


def test_weights_of_edges_come_along_and_other_tables_are_refused(machine):
    graph = random_topology(100, 700)
    weights = np.random.default_rng(0).pareto(1.2, 700).astype(np.float32)
    graph = changed(graph, weights=weights)
    assert_samples(machine, graph, build_alias(graph, weights), (4, 3), np.arange(30), batches=3)
    device, tables = machine.device(), build_alias(random_topology(100, 600), np.ones(600))
    with pytest.raises(InputError, match="the graph has 700 edges"):
        CudaWeightedSampler(
            sent_topology(device, graph), sent_tables(device, tables), (2,), seed=1, device=device, longest=9
        )


def sampled(machine, graph, tables, fanouts, seeds, **options):
    device = machine.device()
    there = sent_topology(device, graph), sent_tables(device, tables)
    longest = int(np.diff(graph.indptr).max(initial=0))
    sampler = CudaWeightedSampler(*there, fanouts, seed=1, device=device, longest=longest, **options)
    return device, sampler.sample(KEY, seeds)


@pytest.mark.parametrize(("damage", "fanout", "replace"), DAMAGES)
def test_a_damaged_table_is_refused_where_it_is_read(machine, damage, fanout, replace):
    graph, tables = damaged_tables(damage)
    with pytest.raises(InputError, match=r"the alias table of node \d does not fit its row"):
        sampled(machine, graph, tables, (fanout,), np.arange(3), replace=replace)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(any_damage(), st.booleans())
def test_whatever_a_table_holds_a_batch_is_whole_or_refused(machine, drawn, replace):
    graph, tables, fanouts = drawn
    try:
        device, blocks = sampled(machine, graph, tables, fanouts, np.arange(graph.num_nodes), replace=replace)
    except InputError as error:
        assert "does not fit its row" in error.problem
        return
    for block in blocks:
        assert all(0 <= source < block.num_src for source in device.download(block.indices).tolist())


def test_more_edges_than_local_ids_are_refused_where_only_the_graph_knows_their_number(machine):
    device, tables = machine.device(), AliasTables(table=np.zeros((64, 2), np.uint32))
    there = sent_topology(device, beyond_local_ids()), sent_tables(device, tables)
    sampler = CudaWeightedSampler(*there, (-1,), seed=1, device=device, longest=9)
    with pytest.raises(InputError, match=r"(?s)4,294,967,301 neighbours of up to 3 nodes.*local ids are 32 bits wide"):
        sampler.sample(KEY, np.arange(3))
