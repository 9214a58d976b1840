"""Small graphs with relations, and their edges, that tests of links draw."""

from hypothesis import strategies as st

from tests.kernels.sampling.test_relations import typed

REVERSES = [(0,), (-1,), (0, 1), (1, 0), (-1, -1), (2, 1, 0), (0, 2, 1), (-1, 2, 1)]
"""Relations and their reverses: the same, another one, or none."""


@st.composite
def edge_lists(draw, num_relations, max_nodes=8, max_edges=20):
    """(number of nodes, edges as triples of source, relation, target), with repeats, loops and reverses."""
    num_nodes = draw(st.integers(1, max_nodes))
    node = st.integers(0, num_nodes - 1)
    return num_nodes, draw(st.lists(st.tuples(node, st.integers(0, num_relations - 1), node), max_size=max_edges))


def topology_of(num_nodes, edges):
    """The topology of triples, whose edges have relations."""
    rows = [[] for _ in range(num_nodes)]
    for source, relation, target in edges:
        rows[target].append((relation, source))
    return typed(rows)


def reversed_edges(edges, reverse_of):
    """The reverses of triples whose relation has one."""
    return [(target, reverse_of[relation], source) for source, relation, target in edges if reverse_of[relation] >= 0]
