"""The checks find what they are for, and the slices cover everything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.figures.graph import class_balance, degree_histogram
from assets.graph import checks
from assets.graph.checks import homophily, node_checks, row_slices, topology_checks
from kernels.types import Topology


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


@pytest.mark.parametrize("classes", [1, 12, 400])
def test_figures_are_small_pngs(tmp_path, classes):
    rng = np.random.default_rng(0)
    degree = rng.zipf(1.5, 100_000).clip(max=50_000).astype(np.int32)
    degree_histogram(tmp_path / "degree.png", degree, degree[::-1])
    names = ["$cost of a long name that goes on and on", *map(str, range(1, classes))]
    class_balance(tmp_path / "classes.png", names, rng.integers(1, 900, classes), 3)
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) < 100_000
    again = tmp_path / "again.png"
    degree_histogram(again, degree, degree[::-1])
    assert again.read_bytes() == (tmp_path / "degree.png").read_bytes()


def test_a_graph_without_edges_can_be_drawn(tmp_path):
    degree_histogram(tmp_path / "degree.png", np.zeros(3, np.int32), np.zeros(3, np.int32))
