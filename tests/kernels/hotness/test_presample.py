"""Whole epochs for their counts: the same at any number of threads, on a stream that shares no batch with training."""

import threading

import numpy as np
import pytest

from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.presample import Tally, count_batches
from graphmill.kernels.hotness.visits import VisitCounter, count_reference
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.own_sampling import OwnSampler
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Stream
from tests.kernels.graphs import random_topology

GRAPH = random_topology(400, 6000, seed=3)
PLAN = EpochPlan(np.arange(0, 400, 2), 16, seed=5, stream=Stream.PRESAMPLE)


def two_each(topology, node_ids, fanout, random):
    degree = np.diff(topology.indptr)[node_ids]
    counts = np.where(degree, fanout, 0)
    places = random.bits(node_ids, fanout) % np.maximum(degree, 1)[:, None].astype(np.uint64)
    first = topology.indptr[node_ids][:, None] + places.astype(np.int64)
    return counts, topology.indices[first[degree > 0].reshape(-1)]


def make(kind):
    if kind == "own":
        return OwnSampler(GRAPH, [2, 2], two_each, seed=5, name="two_each")
    return Sampler(GRAPH, [3, 2], seed=5)


@pytest.mark.parametrize("kind", ["fused", "hashed", "own"])
def test_counts_are_those_of_the_batches_at_any_number_of_threads(kind, monkeypatch):
    if kind == "hashed":
        monkeypatch.setattr(Sampler, "MOST_DIRECT_NODES", 0)
    sampler = make(kind)
    batches = [sampler.sample(item.key, item.seeds) for epoch in range(2) for item in PLAN.batches(epoch)]
    expected = count_reference(batches, 400, 2)
    edges = sum(len(block.indices) for blocks in batches for block in blocks)
    for threads in (1, 2, 7):
        counter, heard = VisitCounter(400, 2, "inputs"), []
        planned = (item for epoch in range(2) for item in PLAN.batches(epoch))
        tally = count_batches([make(kind) for _ in range(threads)], planned, counter, heard.append)
        assert tally == Tally(len(batches), int(expected[0].sum()), edges) and heard == [1] * len(batches)
        for ours, theirs in zip((counter.visits, counter.layer_visits, counter.layer_inputs), expected, strict=True):
            assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("threads", [1, 4])
def test_a_listener_ends_the_work_and_leaves_no_thread(threads):
    def enough(_):
        raise KeyboardInterrupt

    before = threading.active_count()
    samplers = [Sampler(GRAPH, [3, 2], seed=5) for _ in range(threads)]
    with pytest.raises(KeyboardInterrupt):
        count_batches(samplers, PLAN.batches(0), VisitCounter(400, 2), enough)
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [1, 4])
def test_a_failing_batch_ends_the_work_with_its_error(threads):
    planned = EpochPlan(np.array([1, 2, 3, 4000]), 1, seed=0).batches(0)
    with pytest.raises(InputError, match="seed 4000"):
        count_batches([Sampler(GRAPH, [3, 2], seed=5) for _ in range(threads)], planned, VisitCounter(400, 2))


def test_presampled_epochs_share_no_batch_with_training_epochs():
    """Neither the seeds of any batch nor, where the same seeds are asked for, what is drawn for them."""
    sampler = Sampler(GRAPH, [3, 2], seed=5)

    def contents(stream):
        plan = EpochPlan(PLAN.train_ids, PLAN.batch_size, seed=5, stream=stream)
        return [item for epoch in range(8) for item in plan.batches(epoch)]

    train, presample = contents(Stream.TRAIN), contents(Stream.PRESAMPLE)
    seed_sets = [{frozenset(item.seeds.tolist()) for item in items} for items in (train, presample)]
    assert len(seed_sets[0]) == len(seed_sets[1]) == len(train)
    assert not seed_sets[0] & seed_sets[1]
    for mine, theirs in zip(train, presample, strict=True):
        blocks = [sampler.sample(item.key, mine.seeds) for item in (mine, theirs)]
        assert any(not np.array_equal(a.indices, b.indices) for a, b in zip(*blocks, strict=True))
