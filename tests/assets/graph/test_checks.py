"""The checks find what they are for, and the slices cover everything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.graph import checks
from graphmill.assets.graph.checks import homophily, node_checks, row_slices, topology_checks
from graphmill.kernels.types import Topology


def topology(indptr, indices):
    degree = np.diff(indptr).astype(np.int32)
    return Topology(indptr=np.array(indptr), indices=np.array(indices), in_degree=degree, out_degree=degree)


def failed(checks):
    return {check.name for check in checks if not check.passed}


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 12))
def test_slices_cover_all_rows_once(degrees, size):
    indptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
    ranges = list(row_slices(indptr, size))
    assert [node for low, high in ranges for node in range(low, high)] == list(range(len(degrees)))
    assert all(indptr[high] - indptr[low] <= size or high == low + 1 for low, high in ranges)


@pytest.mark.parametrize(
    ("indptr", "indices", "merged", "expected"),
    [
        ([0, 2, 2, 3], [1, 2, 0], True, set()),
        ([0, 0, 0], [], True, {"has edges"}),
        ([0, 2, 1, 3], [1, 2, 0], True, {"indptr is monotone"}),
        ([0, 1, 2], [1, 0, 0], True, {"indptr is monotone"}),
        ([0, 2, 3], [1, 5, 0], True, {"ids are in range"}),
        ([0, 2, 3], [-1, 1, 0], True, {"ids are in range"}),
        ([0, 2, 3], [1, 0, 0], True, {"rows are sorted"}),
        ([0, 2, 3], [1, 1, 0], True, {"rows are sorted"}),
        ([0, 2, 3], [1, 1, 0], False, set()),
        ([0, 0, 2, 2], [2, 0], True, {"rows are sorted"}),
    ],
)
@pytest.mark.parametrize("slice_edges", [1, 100])
def test_topology_checks(monkeypatch, indptr, indices, merged, expected, slice_edges):
    monkeypatch.setattr(checks.row_slices, "__defaults__", (slice_edges,))
    assert failed(topology_checks(topology(indptr, np.array(indices, np.int32)), merged=merged)) == expected


def test_node_checks():
    labels = np.array([0, 1, -1, 3], np.int32)
    parts = (np.array([0]), np.array([0, 1]), np.array([2]))
    assert failed(node_checks(labels, 2, parts)) == {"labels are in range", "splits are disjoint"}
    good = node_checks(np.array([0, 1, -1], np.int32), 2, (np.array([0]), np.array([1]), parts[0][:0]))
    assert failed(good) == set()


def test_homophily_counts_known_edges_only(monkeypatch):
    monkeypatch.setattr(checks.row_slices, "__defaults__", (1,))
    found = homophily(topology([0, 2, 4, 5], [1, 2, 0, 2, 0]), np.array([0, 0, -1], np.int32))
    assert found == (2, 2)
    assert homophily(topology([0, 1, 2], [1, 0]), np.array([0, 1], np.int32)) == (0, 2)


def test_checks_say_what_they_found_in_numbers():
    whole = {
        check.name: check
        for check in topology_checks(topology([0, 2, 2, 3], np.array([1, 2, 0], np.int32)), merged=True)
    }
    assert whole["ids are in range"].numbers == {"largest id": 2, "number of nodes": 3, "ids outside": 0}
    assert whole["ids are in range"].detail == (
        "every one of 3 neighbour ids is below 3, the number of nodes; the largest is 2"
    )
    assert whole["has edges"].numbers == {"edges": 3, "fewest allowed, edges": 1}
    broken = {
        check.name: check for check in topology_checks(topology([0, 2, 3], np.array([7, -1, 0], np.int32)), merged=True)
    }
    assert broken["ids are in range"].detail == "2 of 3 neighbour ids are outside [0, 2): they go from -1 to 7"
    assert broken["rows are sorted"].numbers == {"entries out of order": 1, "allowed out of order": 0}
    assert broken["rows are sorted"].detail.startswith("1 of 3 entries out of order")
    labels, split, _ = node_checks(np.array([0, 1, -1], np.int32), 2, (np.array([0]), np.array([1]), np.array([1])))
    assert labels.numbers == {"largest label": 1, "number of classes": 2, "labels outside": 0}
    assert split.numbers == {"nodes of all parts": 3, "different nodes of all parts": 2}
    assert split.detail == "valid and test overlap in 1 nodes: 1"


@pytest.mark.parametrize(
    ("num_classes", "num_labelled", "shared"), [(20, 3, True), (21, 210, True), (21, 209, False), (7500, 7500, False)]
)
def test_labels_that_no_two_nodes_share_are_a_warning(num_classes, num_labelled, shared):
    labels = np.concatenate([np.arange(num_labelled) % num_classes, np.full(50, -1)]).astype(np.int32)
    check = node_checks(labels, num_classes, (np.array([0]), np.array([1]), np.array([2])))[-1]
    assert check.passed == shared and not check.blocking
    assert ("without [task] a node has one class" in check.detail) == (not shared)


def test_weights_that_overflow_are_counted():
    weighted = topology([0, 1, 2], np.array([1, 0], np.int32))
    object.__setattr__(weighted, "weights", np.array([1.0, np.inf], np.float32))
    (check,) = [each for each in topology_checks(weighted, merged=True) if each.name == "weights are finite"]
    assert not check.passed and check.numbers == {"weights not finite": 1, "allowed not finite": 0}
