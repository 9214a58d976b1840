"""Edges that a batch predicts, and their reverses, are in none of its blocks; everything else is."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.blocks.transpose import transpose_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.exclusion import exclude, exclude_reference
from graphmill.kernels.links.negatives import DrawnNegatives, uniform_candidates
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.sampling.alias import build_alias
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.sampling.weighted import WeightedSampler
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import assert_same_blocks
from tests.kernels.links.graphs import REVERSES, edge_lists, topology_of

FIELDS = ("start", "end", "indices", "src_ids", "weight", "edge_type", "edge_id")
KEY = BatchKey(0, 1, 2)


def edge_batches(num_nodes, edges, typed, per_positive=1):
    """The triples as seeds, with negatives."""
    source, relation, target = np.array(edges, np.int32).reshape(-1, 3).T
    ranges = [uniform_candidates(0, num_nodes)] * (1 + int(relation.max()))
    negatives = DrawnNegatives(seed=1, per_positive=per_positive, candidates={"target": ranges})
    return EdgeSeeds(
        source=source, target=target, relation=relation.astype(np.uint8) if typed else None, negatives=negatives
    )


@given(st.data(), st.sampled_from(REVERSES), st.sampled_from([[-1, -1], [2, 3], [1]]), st.booleans())
def test_blocks_equal_the_reference(data, reverse_of, fanouts, ids):
    num_nodes, edges = data.draw(edge_lists(len(reverse_of)).filter(lambda drawn: drawn[0] > 1 and drawn[1]))
    graph = topology_of(num_nodes, edges)
    weights = np.arange(graph.num_edges, dtype=np.float32)
    graph = dataclasses.replace(graph, weights=weights, edge_ids=np.arange(graph.num_edges))
    sampler = Sampler(graph, fanouts, seed=4)
    seeds = edge_batches(num_nodes, edges, typed=True)
    for planned in EpochPlan(np.arange(len(edges)), 3, seed=1).batches(0):
        batch = seeds.batch(planned.key, planned.seeds)
        blocks = sampler.sample(planned.key, batch.nodes, transpose="all", edge_ids=ids)
        before = [array.copy() for block in blocks for array in vars(block).values() if isinstance(array, np.ndarray)]
        found = exclude(blocks, batch.pairs, batch.relation, reverse_of)
        after = [array for block in blocks for array in vars(block).values() if isinstance(array, np.ndarray)]
        assert all((one == other).all() for one, other in zip(before, after, strict=True))
        assert_same_blocks(found, exclude_reference(blocks, batch.pairs, batch.relation, reverse_of), FIELDS)
        for block in found:
            expected = transpose_reference(block)
            assert [block.t_start.tolist(), block.t_edge.tolist(), block.t_dst.tolist()] == [
                array.tolist() for array in expected
            ]


def test_an_edge_in_all_its_places_and_directions():
    edges = [(1, 0, 0), (2, 0, 0), (0, 1, 1), (2, 0, 1), (1, 1, 0), (1, 0, 0)]
    graph = topology_of(3, edges)
    sampler = Sampler(graph, [-1], seed=1)
    (block,) = sampler.sample(KEY, np.array([1, 0]))
    pairs, relation = np.array([[0, 1]], np.int32), np.zeros(1, np.uint8)

    def left(reverse_of):
        (found,) = exclude((block,), pairs, relation, reverse_of)
        rows = np.repeat(found.dst_ids, found.end - found.start)
        return sorted(zip(found.src_ids[found.indices].tolist(), found.edge_type.tolist(), rows.tolist(), strict=True))

    assert left((1, 0)) == [(1, 1, 0), (2, 0, 0), (2, 0, 1)]
    assert left((-1, -1)) == [(0, 1, 1), (1, 1, 0), (2, 0, 0), (2, 0, 1)]


@given(st.data())
def test_shares_of_a_row_that_lost_edges_still_sum_to_one(data):
    num_nodes, edges = data.draw(edge_lists(1).filter(lambda drawn: drawn[0] > 1 and drawn[1]))
    graph = dataclasses.replace(topology_of(num_nodes, edges), edge_types=None)
    table = build_alias(graph, 1 + np.arange(graph.num_edges, dtype=np.float64) % 5)
    sampler = WeightedSampler(graph, table, [-1], seed=1)
    seeds = edge_batches(num_nodes, edges, typed=False)
    for planned in EpochPlan(np.arange(len(edges)), 2, seed=1).batches(0):
        batch = seeds.batch(planned.key, planned.seeds)
        (block,) = sampler.sample(planned.key, batch.nodes)
        (found,) = exclude((block,), batch.pairs)
        for i in range(found.num_dst):
            share = found.share[found.start[i] : found.end[i]]
            if found.end[i] - found.start[i] == block.end[i] - block.start[i]:
                assert share.tobytes() == block.share[block.start[i] : block.end[i]].tobytes()
            elif len(share):
                assert abs(share.astype(np.float64).sum() - 1) < 1e-6


def test_nothing_to_take_out_leaves_the_blocks_as_they_are():
    graph = topology_of(4, [(1, 0, 0), (2, 0, 1), (3, 0, 2)])
    blocks = Sampler(graph, [-1, -1], seed=1).sample(KEY, np.array([0, 3]))
    found = exclude(blocks, np.array([[0, 1]], np.int32))
    assert all(one is other for one, other in zip(blocks, found, strict=True))
    assert exclude(blocks, np.empty((0, 2), np.int32)) == blocks


def test_relations_that_a_block_lacks_are_refused():
    graph = dataclasses.replace(topology_of(2, [(1, 0, 0)]), edge_types=None)
    blocks = Sampler(graph, [-1], seed=1).sample(KEY, np.array([0, 1]))
    with pytest.raises(InputError, match="relations"):
        exclude(blocks, np.array([[0, 1]], np.int32), np.zeros(1, np.uint8))


@pytest.mark.parametrize("reverse_of", [(0,), (1, 0)])
def test_ten_thousand_batches_have_no_target_and_no_reverse_in_their_blocks(reverse_of):
    num_nodes, generator = 60, np.random.default_rng(1)
    drawn = generator.integers(0, num_nodes, (400, 2))
    both = [(int(u), 0, int(v)) for u, v in drawn] + [(int(v), reverse_of[0], int(u)) for u, v in drawn]
    graph = topology_of(num_nodes, both)
    triples = Triples(num_nodes=num_nodes, reverse_of=reverse_of)
    seeds = edge_batches(num_nodes, both[:400], typed=True)
    plan, sampler = EpochPlan(np.arange(400), 8, seed=1), Sampler(graph, [4, 3], seed=1)
    batches = edges = taken_out = 0
    for epoch in range(10_000 // plan.num_batches):
        for planned in plan.batches(epoch):
            batch = seeds.batch(planned.key, planned.seeds)
            own = planned.seeds
            targets = KnownEdges(triples, seeds.source[own], seeds.target[own], seeds.relation[own])
            blocks = sampler.sample(planned.key, batch.nodes, transpose="none")
            for before, block in zip(blocks, exclude(blocks, batch.pairs, batch.relation, reverse_of), strict=True):
                row = np.repeat(block.dst_ids, block.end - block.start)
                assert not targets.contains(block.src_ids[block.indices], row, block.edge_type).any()
                row = np.repeat(before.dst_ids, before.end - before.start)
                taken_out += int(targets.contains(before.src_ids[before.indices], row, before.edge_type).sum())
                taken_out -= len(before.indices) - len(block.indices)
                edges += len(block.indices)
            batches += 1
    assert (batches, taken_out) == (10_000, 0)
    assert edges > 10**6
