"""Orders inside a part equal their rules, and help where they should."""

import itertools

import numpy as np
from hypothesis import given

from graphmill.kernels import _native
from graphmill.kernels.chunks.cut import cut_chunks
from graphmill.kernels.chunks.order import part_graph_reference, part_graphs, rcm_order, rcm_reference, sub_part_order
from graphmill.kernels.chunks.sets import neighbour_sets, set_sizes
from tests.kernels.chunks.drawn import Drawn, drawn


@given(drawn())
def test_the_graph_inside_and_its_order_equal_their_rules(case: Drawn) -> None:
    graph, order = case.topology, []
    for nodes, xadj, adjacency in part_graphs(graph.indptr, graph.indices, case.part_of, case.num_parts, threads=2):
        rule = part_graph_reference(graph.indptr, graph.indices, nodes)
        assert [adjacency[low:high].tolist() for low, high in itertools.pairwise(xadj)] == rule
        found = _native.reverse_cuthill_mckee(xadj, adjacency).tolist()
        assert found == rcm_reference(rule)
        order += nodes[found].tolist()
    assert rcm_order(graph.indptr, graph.indices, case.part_of, case.num_parts, threads=2).tolist() == order


def test_sub_parts_stand_together() -> None:
    part_of, sub = np.array([1, 0, 1, 0, 1], np.int32), np.array([1, 1, 0, 0, 1], np.int32)
    assert sub_part_order(part_of, sub).tolist() == [3, 1, 2, 0, 4]


def test_rcm_finds_the_band_of_a_shuffled_path() -> None:
    """On a path whose ids were shuffled, chunks of ids need nearly every node; chunks of the order only two more each."""
    num_nodes = 4000
    shuffled = np.random.default_rng(2).permutation(num_nodes)
    rows: list[list[int]] = [[] for _ in range(num_nodes)]
    for a, b in itertools.pairwise(shuffled):
        rows[a].append(b)
        rows[b].append(a)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    indices = np.concatenate([np.sort(row) for row in rows]).astype(np.int32)
    part_of = np.zeros(num_nodes, np.int32)
    order = rcm_order(indptr, indices, part_of, 1)
    by_id, by_rcm = (
        int(set_sizes(neighbour_sets(indptr, indices, cut_chunks(indptr, part_of, 1, 10, each))).sum())
        for each in (None, order)
    )
    assert by_rcm == num_nodes + 2 * 9 and by_id > 2 * num_nodes
