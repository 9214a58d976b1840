"""Splits of edges: shares, reverses, times; and the topology without what is held out, against one that is built without it."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.links import splits
from graphmill.kernels.links.splits import TEST, TRAIN, VALID, check_split, split_edges, stored_edges
from graphmill.kernels.links.triples import KnownEdges, Triples
from tests.kernels.links.graphs import REVERSES, edge_lists, reversed_edges, topology_of

HALF = {"train_ratio": 0.5, "valid_ratio": 0.25}


def columns(edges):
    """(source, target, relation) of triples as arrays."""
    source, relation, target = np.array(edges, np.int64).reshape(-1, 3).T
    return source, target, relation


@given(st.data(), st.sampled_from(REVERSES), st.booleans())
def test_no_reverse_and_no_copy_crosses_a_split(data, reverse_of, by_time):
    num_nodes, edges = data.draw(edge_lists(len(reverse_of)))
    triples = Triples(num_nodes=num_nodes, reverse_of=reverse_of)
    times = np.array(data.draw(st.lists(st.integers(0, 5), min_size=len(edges), max_size=len(edges))), np.int64)
    split = split_edges(triples, *columns(edges), seed=1, times=times if by_time else None, **HALF)
    check_split(triples, columns(edges)[0], columns(edges)[1], split, columns(edges)[2])
    for i, one in enumerate(edges):
        for j, other in enumerate(edges):
            if one == other or other in reversed_edges([one], reverse_of):
                assert split[i] == split[j]


@given(st.data(), st.sampled_from(REVERSES))
def test_a_drawn_split_does_not_depend_on_the_order_of_edges(data, reverse_of):
    num_nodes, edges = data.draw(edge_lists(len(reverse_of)))
    triples, order = Triples(num_nodes=num_nodes, reverse_of=reverse_of), data.draw(st.permutations(range(len(edges))))
    split = split_edges(triples, *columns(edges), seed=1, **HALF)
    moved = split_edges(triples, *columns([edges[i] for i in order]), seed=1, **HALF)
    assert moved.tolist() == split[order].tolist()


def test_each_relation_keeps_its_shares():
    pairs = [(u, v) for u in range(40) for v in range(u + 1, 40)]  # 780 links
    edges = [(u, 0, v) for u, v in pairs] + [(v, 0, u) for u, v in pairs] + [(u, 1, v) for u, v in pairs[:100]]
    triples = Triples(num_nodes=40, reverse_of=(0, -1))
    split = split_edges(triples, *columns(edges), seed=1, train_ratio=0.85, valid_ratio=0.05)
    assert np.bincount(split[:1560]).tolist() == [2 * 663, 2 * 39, 2 * 78]
    assert np.bincount(split[1560:]).tolist() == [85, 5, 10]
    other = split_edges(triples, *columns(edges), seed=2, train_ratio=0.85, valid_ratio=0.05)
    assert (other != split).any()
    few = split_edges(triples, *columns(edges[:2]), seed=1, train_ratio=0.0, valid_ratio=0.5)
    assert sorted(few.tolist()) == [TRAIN, TEST]


def test_the_newest_links_are_tested_and_a_repeat_is_no_new_link():
    edges = [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 0, 4), (1, 0, 0)]
    triples = Triples(num_nodes=5, reverse_of=(0,))
    split = split_edges(triples, *columns(edges), seed=1, times=np.array([1, 4, 3, 2, 9]), **HALF)
    assert split.tolist() == [TRAIN, TEST, VALID, TRAIN, TRAIN]


def test_a_split_that_was_given_is_checked():
    triples = Triples(num_nodes=5, reverse_of=(0,))
    source, target = np.array([0, 1, 2, 0]), np.array([1, 2, 1, 1])
    check_split(triples, source, target, np.array([0, 2, 2, 0]))
    with pytest.raises(
        InputError, match=r"row 2: the edge 2 -> 1 is in train, and row 1 has it or its reverse in test"
    ):
        check_split(triples, source, target, np.array([0, 2, 0, 0]))
    with pytest.raises(InputError, match=r"row 3: the edge 0 -> 1 is in valid, and row 0 .* in train"):
        check_split(triples, source, target, np.array([0, 2, 2, 1]))
    with pytest.raises(InputError, match="row 1: 3 is not a part"):
        check_split(triples, source, target, np.array([0, 3, 2, 1]))


@given(st.data(), st.sampled_from(REVERSES), st.sampled_from([1, 3, 1 << 22]))
def test_known_edges_of_a_topology_are_found_by_ranges(data, reverse_of, at_once):
    num_nodes, edges = data.draw(edge_lists(len(reverse_of)))
    triples = Triples(num_nodes=num_nodes, reverse_of=reverse_of)
    split = split_edges(triples, *columns(edges), seed=1, **HALF)
    graph = topology_of(num_nodes, edges)
    for held_out in ([VALID, TEST], [TEST]):
        gone = np.isin(split, held_out)
        known = KnownEdges(triples, *(each[gone] for each in columns(edges)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(splits, "EDGES_AT_ONCE", at_once)
            parts = list(stored_edges(graph, known))
        target = np.repeat(np.arange(num_nodes), np.diff(graph.indptr))
        assert np.concatenate([each for _, each, _ in parts] or [[]]).tolist() == target.tolist()
        kept = topology_of(num_nodes, [edge for edge, each in zip(edges, gone, strict=True) if not each])
        stays = ~np.concatenate([np.zeros(0, bool), *(each for *_, each in parts)])
        assert graph.indices[stays].tolist() == kept.indices.tolist()
        assert np.bincount(target[stays], minlength=num_nodes).tolist() == kept.in_degree.tolist()


def test_relations_that_a_graph_lacks_are_refused():
    graph = dataclasses.replace(topology_of(2, [(0, 0, 1)]), edge_types=None)
    with pytest.raises(InputError, match="relations"):
        next(stored_edges(graph, KnownEdges(Triples(num_nodes=2, reverse_of=(0, 1)), [0], [1], [1])))
    ((_, _, gone),) = stored_edges(graph, KnownEdges(Triples(num_nodes=2), [1], [0]))
    assert gone.all()
