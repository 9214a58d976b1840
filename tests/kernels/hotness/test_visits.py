"""Counts of nodes in batches: equal to the rule in plain Python, at any number of threads, and whoever counts."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.visits import VisitCounter, count_reference
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import random_topology, topologies

FANOUTS = st.lists(st.sampled_from([1, 2, 5, -1]), min_size=1, max_size=3)


def counts(counter):
    return counter.visits, counter.layer_visits, counter.layer_inputs


@settings(max_examples=150, deadline=None)
@given(graph=topologies(), fanouts=FANOUTS, seed=st.integers(0, 99), data=st.data())
def test_all_versions_count_the_same(graph, fanouts, seed, data):
    sampler, counter = Sampler(graph, fanouts, seed=seed), VisitCounter(graph.num_nodes, len(fanouts), "inputs")
    batches = []
    for step in range(data.draw(st.integers(0, 3))):
        seeds = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True))
        batches.append(sampler.sample(BatchKey(1, 0, step), seeds))
        counter.add(batches[-1])
    expected = count_reference(batches, graph.num_nodes, len(fanouts))
    for ours, theirs in zip(counts(counter), expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.tolist() == theirs.tolist()
    in_the_sampler = np.ones(graph.num_nodes, np.uint32)
    assert sampler.take_visits(in_the_sampler) is in_the_sampler
    assert in_the_sampler.tolist() == (expected[0] + 1).tolist()
    assert not sampler.take_visits(np.zeros(graph.num_nodes, np.uint32)).any(), "they are taken once"


def test_rows_that_were_emptied_have_only_themselves_under_them():
    graph = random_topology(40, 300, seed=1)
    blocks = Sampler(graph, [3, 3], seed=0).sample(BatchKey(1, 0, 0), [1, 2, 3])
    blocks[0].end[:] = blocks[0].start
    counter = VisitCounter(40, 2, "inputs")
    counter.add(blocks)
    assert [a.tolist() for a in counts(counter)] == [a.tolist() for a in count_reference([blocks], 40, 2)]
    assert counter.layer_inputs[0].max() == 1


def test_threads_add_to_one_counter():
    graph = random_topology(300, 6000)
    batches = list(EpochPlan(np.arange(200), 5, seed=1).batches(0))
    alone, shared = (VisitCounter(300, 2, "inputs") for _ in range(2))
    sampled = [Sampler(graph, [4, 4], seed=1).sample(batch.key, batch.seeds) for batch in batches]
    for blocks in sampled:
        alone.add(blocks)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(shared.add, sampled))
    assert [a.tobytes() for a in counts(alone)] == [a.tobytes() for a in counts(shared)]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_sampler_counts_more_batches_than_its_map_has_stamps_for(dtype):
    graph = random_topology(3, 4, dtype=dtype)
    sampler, node_1 = Sampler(graph, [1], seed=0), np.array([1], dtype)
    expected = np.zeros(3, np.int64)
    for step in range(2**16 + 10):
        (block,) = sampler.sample(BatchKey(1, 0, step), node_1 if step % 3 else [0, 2], transpose="none")
        expected[block.src_ids] += 1
    assert sampler.take_visits(np.zeros(3, np.uint32)).tolist() == expected.tolist()
    (block,) = sampler.sample(BatchKey(1, 0, 0), [2])
    assert sampler.take_visits(np.zeros(3, np.uint32)).tolist() == np.bincount(block.src_ids, minlength=3).tolist()


def test_what_is_no_batch_of_this_graph_is_refused():
    blocks = Sampler(random_topology(30, 200), [3, 3], seed=0).sample(BatchKey(1, 0, 0), [1, 2])
    for wrong in (blocks[:1], blocks[::-1], (blocks[0], replace(blocks[1], dst_pos=np.arange(2, dtype=np.int32)))):
        with pytest.raises(InputError, match="as a sampler returns them"):
            VisitCounter(30, 2).add(wrong)
    for layers in ("none", "inputs"):
        small = VisitCounter(5, 2, layers)
        with pytest.raises(InputError, match=r"outside 0\.\.4"):
            small.add(blocks)
        assert not small.visits.any()
    broken = replace(blocks[0], indices=np.full_like(blocks[0].indices, 99))
    with pytest.raises(InputError, match="local source id"):
        VisitCounter(30, 2, "inputs").add((broken, blocks[1]))
    for arguments in ((3, 0, "none"), (-1, 2, "none"), (3, 2, "all")):
        with pytest.raises(InputError):
            VisitCounter(*arguments)
    with pytest.raises(InputError, match="out is"):
        Sampler(random_topology(30, 200), [3], seed=0).take_visits(np.zeros(29, np.uint32))


def test_a_hashed_map_says_that_it_counts_nothing(monkeypatch):
    monkeypatch.setattr(Sampler, "MOST_DIRECT_NODES", 29)
    sampler = Sampler(random_topology(30, 200), [3], seed=0)
    with pytest.raises(InputError, match="counts no visits"):
        sampler.take_visits(np.zeros(30, np.uint32))
