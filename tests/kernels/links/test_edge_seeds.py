"""Batches of edges: their nodes in the order of first appearance, and pairs of places."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.links import edge_seeds as edge_seeds_module
from graphmill.kernels.links.edge_seeds import EdgeSeeds, distinct, distinct_reference
from graphmill.kernels.links.negatives import DrawnNegatives, uniform_candidates
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.types import BatchKey


@given(st.lists(st.integers(0, 30)), st.sampled_from([np.int32, np.int64]))
def test_distinct_ids_are_those_of_the_reference(ids, dtype):
    found, expected = distinct(np.array(ids, dtype)), distinct_reference(np.array(ids, dtype))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


def edge_seeds(num_edges, per_positive, num_nodes=12):
    generator = np.random.default_rng(num_edges)
    negatives = DrawnNegatives(
        seed=3, per_positive=max(1, per_positive), candidates={"target": [uniform_candidates(0, num_nodes)]}
    )
    return EdgeSeeds(
        source=generator.integers(0, num_nodes, num_edges).astype(np.int32),
        target=generator.integers(0, num_nodes, num_edges).astype(np.int32),
        negatives=negatives if per_positive else None,
    )


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 3))
def test_an_epoch_has_every_edge_once_and_places_lead_back_to_the_ends(num_edges, batch_size, per_positive):
    seeds = edge_seeds(num_edges, per_positive)
    plan = EpochPlan(np.arange(num_edges), batch_size, seed=1)
    taken = []
    for planned in plan.batches(2):
        batch, edges = seeds.batch(planned.key, planned.seeds), planned.seeds
        taken += edges.tolist()
        ends = np.stack([seeds.source[edges], seeds.target[edges]], axis=1)
        assert (batch.nodes[batch.pairs] == ends).all()
        assert batch.num_ends == len(set(ends.reshape(-1).tolist()))
        assert sorted({*batch.pairs.reshape(-1).tolist()}) == [*range(batch.num_ends)]
        assert batch.negatives.shape == (len(edges), per_positive, 2)
        assert batch.pairs.dtype == batch.negatives.dtype == np.int32
        assert (batch.nodes[batch.negatives[..., 0]] == ends[:, :1]).all()
        drawn = batch.nodes[batch.negatives].reshape(-1).tolist()
        assert batch.nodes.tolist() == [*dict.fromkeys([*ends.reshape(-1).tolist(), *drawn])]
        assert batch.scored.dtype == np.int32
        assert (batch.scored[:, 0, :2] == batch.pairs).all()
        assert (batch.scored[:, 1:, :2] == batch.negatives).all()
    assert sorted(taken) == [*range(num_edges)]


def test_relations_stand_beside_the_places_of_each_pair():
    seeds = edge_seeds(9, 2)
    relation = np.arange(9).astype(np.uint8)
    two = DrawnNegatives(seed=1, per_positive=2, candidates={"target": [uniform_candidates(0, 12)] * 9})
    typed = EdgeSeeds(source=seeds.source, target=seeds.target, relation=relation, negatives=two)
    for planned in EpochPlan(np.arange(9), 4, seed=1).batches(0):
        found = typed.batch(planned.key, planned.seeds).scored
        assert found.shape == (len(planned.seeds), 3, 3)
        assert (found[..., 2] == relation[planned.seeds][:, None]).all()


def test_a_batch_is_the_same_after_a_resume_and_with_parts():
    seeds = edge_seeds(50, 2)
    plan = EpochPlan(np.arange(50), 7, seed=1, reuse=2)
    parts = PartPlan(np.arange(50), np.zeros(50, np.int64), 1, 7, seed=1, reuse=2)
    whole = [seeds.batch(planned.key, planned.seeds) for planned in plan.batches(3)]
    for found in ([*plan.batches(3, 4)], [*parts.batches(3, 4)]):
        for one, other in zip(whole[4:], [seeds.batch(planned.key, planned.seeds) for planned in found], strict=True):
            assert one.nodes.tobytes() == other.nodes.tobytes()
            assert one.negatives.tobytes() == other.negatives.tobytes()


def test_parts_have_the_edges_of_their_targets_and_empty_batches_are_sound():
    seeds = edge_seeds(40, 1)
    part_of = (seeds.target > 8).astype(np.int64)
    plan = PartPlan(np.arange(40), part_of, 2, 3, seed=1)
    found = [(planned.key.step % 2, planned) for planned in plan.batches(0)]
    assert min(len(planned.seeds) for _, planned in found) == 0
    for part, planned in found:
        batch = seeds.batch(planned.key, planned.seeds)
        assert (part_of[planned.seeds] == part).all()
        assert batch.pairs.shape == (len(planned.seeds), 2)
        assert len(batch.nodes) or not len(planned.seeds)


def test_edges_of_different_lengths_are_refused():
    with pytest.raises(InputError, match="one of each per edge"):
        EdgeSeeds(source=np.arange(3), target=np.arange(2))


def test_a_thread_draws_the_negatives_of_a_batch_once(monkeypatch):
    seeds, drawn = edge_seeds(40, 2), []
    assert isinstance(seeds.negatives, DrawnNegatives)
    draw = seeds.negatives.draw

    class Counted:
        def draw(self, batch, *rest):
            drawn.append(batch)
            return draw(batch, *rest)

    counted = EdgeSeeds(source=seeds.source, target=seeds.target, negatives=Counted())
    keys, edges = [BatchKey(0, 0, step) for step in range(3)], np.arange(10)
    for key in keys:
        one, other = counted.batch(key, edges), counted.batch(key, edges)
        assert one is other and one.negatives.tobytes() == seeds.batch(key, edges).negatives.tobytes()
    assert drawn == keys
    given = edges.copy()
    counted.batch(keys[2], given)
    given[:] = given[::-1].copy()  # what was asked for is copied
    assert counted.batch(keys[2], given).pairs.tolist() != other.pairs.tolist() and len(drawn) == 4
    monkeypatch.setattr(edge_seeds_module, "MOST_THREADS", 3)
    for _ in range(9):
        thread = threading.Thread(target=counted.batch, args=(keys[0], edges))
        thread.start()
        thread.join()
        assert len(counted._last) <= 3


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 3), st.integers(1, 5))
def test_edges_with_times_make_seeds_of_nodes_as_of_them(num_edges, batch_size, per_positive, moments):
    plain = edge_seeds(num_edges, per_positive)
    times = np.random.default_rng(num_edges).integers(0, moments, num_edges) / 2 - 1
    seeds = replace(plain, times=times)
    for planned in EpochPlan(np.arange(num_edges), batch_size, seed=1).batches(2):
        batch, bare = seeds.batch(planned.key, planned.seeds), plain.batch(planned.key, planned.seeds)
        own = times[planned.seeds]
        assert (batch.nodes[batch.pairs] == bare.nodes[bare.pairs]).all()
        assert (batch.nodes[batch.negatives] == bare.nodes[bare.negatives]).all()  # a time changes no draw
        assert (batch.times[batch.pairs] == own[:, None]).all()
        assert (batch.times[batch.negatives] == own[:, None, None]).all()
        places = np.concatenate([batch.pairs.reshape(-1), batch.negatives.reshape(-1)])
        assert [*dict.fromkeys(places.tolist())] == [*range(len(batch.nodes))]
        assert len({*zip(batch.nodes.tolist(), batch.times.tolist(), strict=True)}) == len(batch.nodes)
        assert batch.nodes.dtype == bare.nodes.dtype and batch.pairs.dtype == np.int32
        assert batch.when["times"] is batch.times and bare.when == {}
