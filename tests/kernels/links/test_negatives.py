"""Negatives: their distributions, what is left out, and that a draw depends on its key alone."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.links.negatives import DrawnNegatives, GivenNegatives, degree_candidates, uniform_candidates
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.types import BatchKey
from tests.kernels.links.graphs import REVERSES, edge_lists
from tests.kernels.sampling.chi_square import assert_fits

KEY = BatchKey(0, 1, 2)


def drawn(negatives, source, target, relation=None, edges=None, batch=KEY):
    """(sources, targets) of the negatives of edges, which are numbered from 0 on."""
    source, target = np.asarray(source, np.int32), np.asarray(target, np.int32)
    edges = np.arange(len(source)) if edges is None else np.asarray(edges)
    relation = None if relation is None else np.asarray(relation, np.uint8)
    return negatives.draw(batch, edges, source, target, relation)


def uniform(low, high, **more):
    """Negatives of targets low to high - 1 of one relation."""
    return DrawnNegatives(seed=1, candidates={"target": [uniform_candidates(low, high)]}, **{"per_positive": 1, **more})


def counted(targets, num_nodes):
    return np.bincount(targets.reshape(-1), minlength=num_nodes)


def test_uniform_negatives_are_uniform_over_the_type_and_never_the_edge_itself():
    sources, targets = drawn(uniform(3, 10, per_positive=50), [1] * 200, [4] * 200)
    assert (sources == 1).all()
    chances = np.array([0, 0, 0, 1, 0, 1, 1, 1, 1, 1]) / 6
    assert_fits(counted(targets, 10), chances)


def test_negatives_by_degree_follow_three_quarters():
    degrees = np.array([0, 1, 5, 40, 300, 2])
    negatives = dataclasses.replace(
        uniform(0, 6, per_positive=50), candidates={"target": [degree_candidates(4, degrees)]}
    )
    _, targets = drawn(negatives, [0] * 400, [0] * 400)
    mass = np.concatenate([np.zeros(4), degrees**0.75])
    assert_fits(counted(targets, 10), mass / mass.sum())
    assert degree_candidates(0, np.array([1, 16, 81])).ends.tolist() == [256, 256 * 9, 256 * 36]


@pytest.mark.parametrize("by_degree", [False, True])
def test_what_is_drawn_when_most_candidates_are_known_has_the_same_distribution(by_degree):
    num_nodes, degrees = 400, np.arange(400)
    known = KnownEdges(Triples(num_nodes=num_nodes, reverse_of=(-1,)), np.zeros(396, np.int32), np.arange(4, 400))
    candidates = degree_candidates(0, degrees) if by_degree else uniform_candidates(0, num_nodes)
    negatives = DrawnNegatives(seed=1, per_positive=4, candidates={"target": [candidates]}, known=known)
    _, targets = drawn(negatives, [0] * 200, [5] * 200)
    mass = degrees[:4] ** 0.75 if by_degree else np.ones(4)
    assert_fits(counted(targets, num_nodes)[:4], mass / mass.sum())
    assert targets.max() < 4


@given(
    st.data(),
    st.sampled_from(REVERSES),
    st.booleans(),
    st.sampled_from([("target",), ("source",), ("target", "source")]),
)
def test_no_negative_is_a_known_edge(data, reverse_of, in_batch, sides):
    num_nodes, edges = data.draw(edge_lists(len(reverse_of)).filter(lambda found: bool(found[1])))
    source, relation, target = np.array(edges).reshape(-1, 3).T
    known = KnownEdges(Triples(num_nodes=num_nodes, reverse_of=reverse_of), source, target, relation)
    ranges = [uniform_candidates(0, num_nodes)] * len(reverse_of)
    negatives = DrawnNegatives(
        seed=1,
        per_positive=3,
        candidates={"target": ranges, "source": ranges},
        sides=sides,
        in_batch=in_batch,
        known=known,
    )
    every = np.arange(num_nodes)
    free = {
        "target": [not known.contains(np.full(num_nodes, u), every, np.full(num_nodes, r)).all() for u, r, _ in edges],
        "source": [not known.contains(every, np.full(num_nodes, v), np.full(num_nodes, r)).all() for _, r, v in edges],
    }
    if not all(all(free[side]) for side in sides):
        with pytest.raises(InputError, match="there is no negative"):
            drawn(negatives, source, target, relation)
        for side in sides:
            partial = dataclasses.replace(negatives, sides=(side,), partial=True)
            missing = drawn(partial, source, target, relation)[side == "target"] == -1
            assert (missing == ~np.array(free[side])[:, None]).all()
        return
    sources, targets = drawn(negatives, source, target, relation)
    assert not known.contains(sources.reshape(-1), targets.reshape(-1), np.repeat(relation, 3)).any()
    kept = [(sources == source[:, None]), (targets == target[:, None])]
    for column in range(3):
        assert kept[0 if sides[column % len(sides)] == "target" else 1][:, column].all()


def test_in_batch_negatives_are_ends_of_other_edges_of_the_relation():
    target, relation = [3, 3, 4, 5, 6, 7], [0, 0, 0, 0, 1, 1]
    ranges = [uniform_candidates(0, 100)] * 2
    negatives = DrawnNegatives(seed=1, per_positive=300, candidates={"target": ranges}, in_batch=True)
    _, targets = drawn(negatives, range(10, 16), target, relation)
    assert_fits(counted(targets[0], 8), np.array([0, 0, 0, 0, 1, 1, 0, 0]) / 2)
    assert_fits(counted(targets[2], 8), np.array([0, 0, 0, 2, 0, 1, 0, 0]) / 3)
    assert set(targets[4].tolist()) == {7}


def test_an_edge_alone_in_its_batch_draws_uniformly():
    _, targets = drawn(uniform(0, 20, in_batch=True, per_positive=1000), [1], [3])
    assert_fits(counted(targets, 20), np.where(np.arange(20) == 3, 0, 1) / 19)


@given(st.permutations(range(6)), st.integers(1, 4))
def test_a_draw_depends_on_key_edge_and_number_alone(order, per_positive):
    negatives, target = uniform(0, 9, per_positive=4), np.arange(6)
    _, whole = drawn(negatives, target, target)
    _, moved = drawn(negatives, target[order], target[order], edges=order)
    assert (moved == whole[order]).all()
    for changed in (BatchKey(1, 1, 2), BatchKey(0, 0, 2), BatchKey(0, 1, 3)):
        assert (drawn(negatives, target, target, batch=changed)[1] != whole).any()
    assert (drawn(dataclasses.replace(negatives, seed=2), target, target)[1] != whole).any()


def test_given_negatives_are_those_of_the_edges():
    table = np.arange(12).reshape(6, 2)
    sources, targets = drawn(GivenNegatives(targets=table), [7, 8], [1, 1], edges=[4, 0])
    assert targets.tolist() == [[8, 9], [0, 1]]
    assert sources.tolist() == [[7, 7], [8, 8]]


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(InputError, match="1 or more"):
        uniform(0, 3, per_positive=0)
    with pytest.raises(InputError, match="relation 0 has no candidate target"):
        uniform(3, 3)
    with pytest.raises(InputError, match="no candidate has an edge"):
        degree_candidates(0, np.zeros(4, np.int32))
    with pytest.raises(InputError, match="the source 9: there is no negative"):
        drawn(uniform(3, 4), [9], [3])
