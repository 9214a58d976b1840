"""Graphs whose edges have times, as lists of edges and as the topologies that are made of them."""

import numpy as np
from hypothesis import strategies as st

from graphmill.kernels.types import Topology


def timed_topology(num_nodes, source, target, time, relation=None, dtype=np.int32):
    """The topology of these edges, rows in the order of (relation, time, source), with the numbers of the edges as ids."""
    relation_of = np.zeros(len(source), np.uint8) if relation is None else np.asarray(relation, np.uint8)
    order = np.lexsort((source, time, relation_of, target))
    degree = np.bincount(np.asarray(target, np.int64), minlength=num_nodes)
    return Topology(
        indptr=np.concatenate([[0], np.cumsum(degree)]).astype(np.int64),
        indices=np.asarray(source, dtype)[order],
        in_degree=degree.astype(np.int32),
        out_degree=np.bincount(np.asarray(source, np.int64), minlength=num_nodes).astype(np.int32),
        edge_types=None if relation is None else relation_of[order],
        edge_ids=order.astype(np.int64),
        edge_times=np.asarray(time, np.float64)[order],
    )


def random_edges(seed, *, most_nodes=12, most_edges=60, times=10):
    """Draws a multigraph with equal times: (number of nodes, source, target, time)."""
    generator = np.random.default_rng(seed)
    num_nodes, num_edges = int(generator.integers(1, most_nodes + 1)), int(generator.integers(0, most_edges + 1))
    source, target = (generator.integers(0, num_nodes, num_edges) for _ in range(2))
    return num_nodes, source, target, generator.integers(0, times, num_edges).astype(np.float64)


@st.composite
def timed_graphs(draw):
    """Any small multigraph with times, many of them equal; relations or none, both id types."""
    num_nodes, source, target, time = random_edges(draw(st.integers(0, 10**6)))
    relation = draw(st.sampled_from([None, np.random.default_rng(len(source)).integers(0, 3, len(source))]))
    return timed_topology(num_nodes, source, target, time, relation, draw(st.sampled_from([np.int32, np.int64])))
