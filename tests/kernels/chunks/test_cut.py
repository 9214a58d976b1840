"""Chunks are balanced ranges, and a mistake is one clear error before any work."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels import ranges
from graphmill.kernels.chunks.cut import MOST, NODE_COST, cut_again, cut_chunks, cut_chunks_reference
from graphmill.kernels.errors import InputError
from tests.kernels.chunks.drawn import Drawn, drawn
from tests.kernels.graphs import random_topology


@given(drawn(), st.sampled_from([1, 2, 5, 1000]), st.integers(1, 6))
def test_cutting_equals_the_rule(case: Drawn, at_once: int, again: int) -> None:
    """For any range of nodes that is cut at a time; and when the nodes of the chunks are cut once more."""
    indptr, num_nodes = case.topology.indptr, case.topology.num_nodes
    order = np.arange(num_nodes) if case.order is None else case.order
    expected = cut_chunks_reference(indptr, case.part_of, case.num_parts, case.chunks_per_part, order)
    twice = cut_chunks_reference(indptr, case.part_of, case.num_parts, again, expected.node_ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "NODES_AT_ONCE", at_once)
        found = cut_chunks(indptr, case.part_of, case.num_parts, case.chunks_per_part, case.order)
        assert np.array_equal(cut_again(indptr, found, again).ptr, twice.ptr)
    assert np.array_equal(found.ptr, expected.ptr) and np.array_equal(found.node_ids, expected.node_ids)
    assert found.ptr.dtype == np.int64 and found.node_ids.dtype == np.int32


@given(drawn())
def test_no_chunk_costs_more_than_its_share_and_a_destination(case: Drawn) -> None:
    costs = np.diff(case.topology.indptr) + NODE_COST
    chunks = cut_chunks(case.topology.indptr, case.part_of, case.num_parts, case.chunks_per_part, case.order)
    for part in range(case.num_parts):
        members = costs[case.part_of == part]
        made = [int(costs[chunks.nodes(part, k)].sum()) for k in range(case.chunks_per_part)]
        assert sum(made) == members.sum()
        assert max(made) <= members.sum() / case.chunks_per_part + members.max(initial=0)


def test_a_hub_gets_a_chunk_of_its_own() -> None:
    indptr = np.array([0, 0, 0, 10**9, 10**9, 10**9], np.int64)
    chunks = cut_chunks(indptr, np.zeros(5, np.int32), 1, 4)
    assert [chunks.nodes(0, k).tolist() for k in range(4)].count([2]) == 1


@pytest.mark.parametrize(
    ("part_of", "num_parts", "chunks_per_part", "order", "said"),
    [
        ([0, 1, 2], 2, 1, None, "node 2 is in part 2 of 2"),
        ([0, -1, 1], 2, 1, None, "node 1 is in part -1 of 2"),
        ([0, 0], 1, 1, None, "2 nodes have a part, the graph has 3"),
        ([0, 0, 0], 0, 1, None, "0 parts"),
        ([0, 0, 0], 1, 0, None, "of 0 chunks"),
        ([0, 0, 0], 1, MOST + 1, None, f"of {MOST + 1} chunks"),
        ([0, 0, 0], MOST, MOST, None, "at most 65536 chunks in all"),
        ([0, 0, 0], 1, 1, [0, 1, 1], "not a permutation"),
        ([0, 0, 0], 1, 1, [0, 1], "not a permutation"),
        ([0, 0, 0], 1, 1, [0, 1, 3], "not a permutation"),
    ],
)
def test_mistakes_are_named(
    part_of: list[int], num_parts: int, chunks_per_part: int, order: list[int] | None, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        cut_chunks(np.zeros(4, np.int64), np.array(part_of, np.int32), num_parts, chunks_per_part, order)
    assert said in f"{caught.value.problem} {caught.value.remedy}"


def test_a_real_order_changes_what_is_beside_what() -> None:
    graph = random_topology(500, 4000)
    order = np.random.default_rng(3).permutation(500)
    chunks = cut_chunks(graph.indptr, np.zeros(500, np.int32), 1, 7, order)
    ends = chunks.ptr
    for k in range(7):
        assert np.array_equal(chunks.nodes(0, k), np.sort(order[ends[k] : ends[k + 1]]))
