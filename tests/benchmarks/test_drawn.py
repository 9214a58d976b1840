"""The benchmark of drawn neighbours looks at the edges of both sides: neighbours, or nodes within reach of a walk."""

import numpy as np
import pytest

from benchmarks.drawn import check_edges, reached
from graphmill.kernels.types import Topology

LINE = 7


@pytest.fixture
def line() -> Topology:
    """Seven nodes in a row; the in-neighbour of each is the one before it."""
    indptr = np.concatenate([[0], np.arange(LINE)]).astype(np.int64)
    indices, degrees = np.arange(LINE - 1, dtype=np.int32), np.empty(0, np.int32)
    return Topology(indptr=indptr, indices=indices, in_degree=degrees, out_degree=degrees)


def test_a_node_is_reached_along_its_in_edges(line: Topology) -> None:
    assert np.flatnonzero(reached(line, 6, 1)).tolist() == [5]
    assert np.flatnonzero(reached(line, 6, 3)).tolist() == [3, 4, 5]
    assert np.flatnonzero(reached(line, 1, 3)).tolist() == [0]
    assert not reached(line, 0, 3).any()


def test_a_node_with_a_way_back_reaches_itself() -> None:
    degrees = np.empty(0, np.int32)
    pair = Topology(
        indptr=np.array([0, 1, 2]), indices=np.array([1, 0], np.int32), in_degree=degrees, out_degree=degrees
    )
    assert reached(pair, 0, 1).tolist() == [False, True]
    assert reached(pair, 0, 2).tolist() == [True, True]


@pytest.mark.parametrize("steps", [1, 3])
def test_a_source_out_of_reach_is_refused(line: Topology, steps: int) -> None:
    dst_ids = np.array([5, 6])
    check_edges(line, dst_ids - steps, dst_ids, steps)
    with pytest.raises(AssertionError, match=f"a source of 6 is not within {steps} steps"):
        check_edges(line, dst_ids - np.array([steps, steps + 1]), dst_ids, steps)
