"""Training on resident partitions keeps training nodes in memory, and draws neighbours there alone."""

import numpy as np
import pytest

from benchmarks.disk_resident import PARTS, ResidentSampler, partition_nodes, resident_graph, resident_parts
from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.graph.generate import rmat_edges
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Topology

NUM_NODES = 1_000
TRAIN_IDS = np.sort(np.random.default_rng(3).permutation(NUM_NODES)[:50])


@pytest.fixture(scope="module")
def topology():
    csc = build_csc(
        *rmat_edges(NUM_NODES, 8_000, 1, threads=1), NUM_NODES, undirected=True, duplicates="merge", self_loops="drop"
    )
    return Topology(indptr=csc.indptr, indices=csc.indices, in_degree=csc.in_degree, out_degree=csc.out_degree)


def test_partitions_are_equal_and_the_first_ones_hold_the_training_nodes():
    parts = partition_nodes(NUM_NODES, TRAIN_IDS, 0)
    assert (np.bincount(parts.part) == NUM_NODES // PARTS).all()
    assert parts.kept == 3 and set(parts.part[TRAIN_IDS]) == {0, 1, 2}
    others = np.setdiff1d(np.arange(NUM_NODES), TRAIN_IDS)
    assert (np.diff(parts.part[others]) < 0).any()  # at random, not by id
    assert not np.array_equal(parts.part, partition_nodes(NUM_NODES, TRAIN_IDS, 1).part)


def test_an_epoch_has_the_training_partitions_and_others_of_its_own():
    parts = partition_nodes(NUM_NODES, TRAIN_IDS, 0)
    epochs = [resident_parts(parts, 0.1, 0, epoch).tolist() for epoch in range(20)]
    assert all(len(set(each)) == 5 and each[:3] == [0, 1, 2] for each in epochs)
    assert len({tuple(each) for each in epochs}) > 10
    assert resident_parts(parts, 1.0, 0, 4).tolist() == list(range(PARTS))
    with pytest.raises(InputError, match="training nodes fill 3 of 50 partitions, and memory holds 2"):
        resident_parts(parts, 0.04, 0, 0)


def test_the_resident_graph_has_the_edges_with_both_ends_in_memory(topology):
    here = np.random.default_rng(1).random(NUM_NODES) < 0.3
    found = resident_graph(topology, here)
    ends = [
        (src, dst)
        for dst in range(NUM_NODES)
        for src in topology.indices[topology.indptr[dst] : topology.indptr[dst + 1]]
    ]
    expected = [(src, dst) for src, dst in ends if here[src] and here[dst]]
    assert list(zip(found.indices, np.repeat(np.arange(NUM_NODES), found.in_degree), strict=True)) == expected
    assert np.array_equal(found.out_degree, np.bincount([src for src, _ in expected], minlength=NUM_NODES))


def test_samples_are_of_the_epochs_nodes_and_of_all_if_all_fit(topology):
    parts, fanouts = partition_nodes(NUM_NODES, TRAIN_IDS, 0), (10, 10)
    some = ResidentSampler(topology, parts, 0.2, fanouts, seed=5, threads=1)
    for epoch in (0, 1, 0):
        here = np.isin(parts.part, resident_parts(parts, 0.2, 5, epoch))
        ids = some.sample(BatchKey(1, epoch, 0), TRAIN_IDS)[0].src_ids
        assert here[ids].all() and len(ids) > len(TRAIN_IDS)
    everything = ResidentSampler(topology, parts, 1.0, fanouts, seed=5, threads=1)
    for ours, theirs in zip(
        everything.sample(BatchKey(1, 2, 0), TRAIN_IDS),
        Sampler(topology, fanouts, seed=5).sample(BatchKey(1, 2, 0), TRAIN_IDS),
        strict=True,
    ):
        assert np.array_equal(ours.src_ids, theirs.src_ids) and np.array_equal(ours.indices, theirs.indices)
