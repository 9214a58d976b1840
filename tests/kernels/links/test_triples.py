"""Numbers of edges, and sets of known edges, against sets of tuples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.links.triples import KnownEdges, Triples
from tests.kernels.links.graphs import REVERSES, edge_lists, reversed_edges


def columns(edges):
    """(source, target, relation) of triples as arrays."""
    source, relation, target = np.array(edges, np.int64).reshape(-1, 3).T
    return source, target, relation


@given(st.data(), st.sampled_from(REVERSES))
def test_numbers_name_edges(data, reverse_of):
    num_nodes, edges = data.draw(edge_lists(len(reverse_of)))
    triples = Triples(num_nodes=num_nodes, reverse_of=reverse_of)
    given_columns = columns(edges)
    numbers = triples.numbers(*given_columns)
    assert all((a == b).all() for a, b in zip(triples.parts(numbers), given_columns, strict=True))
    order = np.argsort(numbers, kind="stable")
    assert [edges[i] for i in order] == sorted(edges, key=lambda edge: (edge[1], edge[0], edge[2]))


@given(st.data(), st.sampled_from(REVERSES))
def test_an_edge_and_its_reverse_are_one_link(data, reverse_of):
    num_nodes, edges = data.draw(edge_lists(len(reverse_of)))
    triples = Triples(num_nodes=num_nodes, reverse_of=reverse_of)
    links = triples.links(*columns(edges))
    for i, one in enumerate(edges):
        for j, other in enumerate(edges):
            same = (
                one == other or other in reversed_edges([one], reverse_of) or one in reversed_edges([other], reverse_of)
            )
            assert (links[i] == links[j]) == same


@given(st.data(), st.sampled_from(REVERSES))
def test_known_edges_are_a_set_of_triples_and_their_reverses(data, reverse_of):
    num_nodes, edges = data.draw(edge_lists(len(reverse_of)))
    known = KnownEdges(Triples(num_nodes=num_nodes, reverse_of=reverse_of), *columns(edges))
    expected = {*edges, *reversed_edges(edges, reverse_of)}
    every = [(u, r, v) for u in range(num_nodes) for r in range(len(reverse_of)) for v in range(num_nodes)]
    assert known.contains(*columns(every)).tolist() == [edge in expected for edge in every]
    for side, kept in (("target", 0), ("source", 2)):
        ends = [(node, relation) for node in range(num_nodes) for relation in range(len(reverse_of))]
        indptr, others = known.others(np.array(ends)[:, 0], np.array(ends)[:, 1], side=side)
        for i, (node, relation) in enumerate(ends):
            found = sorted(edge[2 - kept] for edge in expected if edge[kept] == node and edge[1] == relation)
            assert others[indptr[i] : indptr[i + 1]].tolist() == found


def test_edges_without_relations():
    known = KnownEdges(Triples(num_nodes=4), [0, 1], [1, 3])
    assert known.contains([1, 0, 3, 0], [0, 1, 1, 3]).tolist() == [True, True, True, False]
    assert known.others([1], side="target")[1].tolist() == [0, 3]


def test_the_largest_graphs_have_numbers():
    for num_nodes, relations in ((2**32, 1), (2**28, 256)):
        triples = Triples(num_nodes=num_nodes, reverse_of=(-1,) * relations)
        last = np.array([num_nodes - 1])
        number = triples.numbers(last, last, np.array([relations - 1]))
        assert number[0] == 2**64 - 1
        assert [int(part[0]) for part in triples.parts(number)] == [num_nodes - 1, num_nodes - 1, relations - 1]
    with pytest.raises(InputError, match="more than 2"):
        Triples(num_nodes=2**32, reverse_of=(0, 1))


@pytest.mark.parametrize("reverse_of", [(1,), (1, 1), (2, 0, 1), (-2,), (1, -1), (-1, 0)])
def test_reverses_that_are_not_pairs_are_refused(reverse_of):
    with pytest.raises(InputError, match="reverse"):
        Triples(num_nodes=3, reverse_of=reverse_of)
