"""Compressed columns have canonical bytes, whatever the order of the edges, their id type and the team."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels import _native
from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.csc import build_csc, build_csc_reference

POLICIES = list(product((True, False), ("merge", "keep"), ("drop", "keep")))


def assert_same(left, right):
    for name, a, b in zip(left._fields, left, right, strict=True):
        assert np.array_equal(a, b), name
        assert getattr(a, "dtype", int) == getattr(b, "dtype", int), name


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=30),
    st.sampled_from(POLICIES),
    st.sampled_from([np.int32, np.int64]),
)
def test_small_graphs_equal_the_reference(num_nodes, edges, policy, dtype):
    src, dst = (np.array([edge[end] % num_nodes for edge in edges], dtype) for end in (0, 1))
    rules = dict(zip(("undirected", "duplicates", "self_loops"), policy, strict=True))
    assert_same(build_csc(src, dst, num_nodes, **rules), build_csc_reference(src, dst, num_nodes, **rules))


@pytest.mark.parametrize("policy", POLICIES)
def test_any_team_order_and_id_type_gives_the_same_bytes(policy):
    generator = np.random.default_rng(3)
    num_nodes, num_edges = 5000, 300_000
    src = generator.integers(0, num_nodes, num_edges).astype(np.int32)
    dst = (num_nodes * generator.random(num_edges) ** 4).astype(np.int32)  # hubs
    rules = dict(zip(("undirected", "duplicates", "self_loops"), policy, strict=True))
    expected = build_csc_reference(src, dst, num_nodes, **rules)
    order = generator.permutation(num_edges)
    for threads in (1, 2, 8):
        assert_same(build_csc(src, dst, num_nodes, threads=threads, **rules), expected)
        assert_same(build_csc(src[order], dst[order].astype(np.int64), num_nodes, threads=threads, **rules), expected)


def test_wide_ids_hold_the_same_graph():
    src, dst = np.random.default_rng(0).integers(0, 50, (2, 900))
    narrow = build_csc(src, dst, 50, undirected=True, duplicates="merge", self_loops="drop")
    wide = _native.build_csc64(src, dst, 50, True, True, True, 2)
    assert wide[1].dtype == np.int64
    assert all(np.array_equal(a, b) for a, b in zip(narrow, wide, strict=True))


def test_more_nodes_than_buckets_and_no_edges():
    src, dst = np.array([3_000_000, 5]), np.array([5, 2_999_999])
    csc = build_csc(src, dst, 3_000_001, undirected=False, duplicates="merge", self_loops="drop", threads=2)
    assert csc.indices.tolist() == [3_000_000, 5] and np.flatnonzero(csc.in_degree).tolist() == [5, 2_999_999]
    for num_nodes in (0, 3):
        empty = build_csc([], [], num_nodes, undirected=True, duplicates="keep", self_loops="keep")
        assert empty.indptr.tolist() == [0] * (num_nodes + 1) and empty.indices.dtype == np.int32


def test_counts_are_those_of_the_input():
    edges = [(0, 1), (1, 0), (0, 1), (2, 2), (2, 2)]
    src, dst = np.array(edges).T
    merged = build_csc(src, dst, 3, undirected=True, duplicates="merge", self_loops="drop")
    assert (merged.num_duplicates, merged.num_self_loops, merged.indices.tolist()) == (4, 2, [1, 0])
    kept = build_csc(src, dst, 3, undirected=False, duplicates="keep", self_loops="keep")
    assert (kept.num_duplicates, kept.num_self_loops) == (2, 2)
    assert (kept.in_degree.tolist(), kept.out_degree.tolist()) == ([1, 2, 2], [2, 1, 2])


def test_bad_edges_are_refused_with_examples():
    rules = {"undirected": True, "duplicates": "merge", "self_loops": "drop"}
    with pytest.raises(InputError, match=r"4 of 5 edges .* 0..2 \(edge 1: 9 -> 1, edge 2: 1 -> -2, edge 3: 3 -> 0\)"):
        build_csc([0, 9, 1, 3, -5], [1, 1, -2, 0, 0], 3, **rules)
    with pytest.raises(InputError, match="2 sources and 1 destinations"):
        build_csc([0, 1], [0], 3, **rules)
    with pytest.raises(InputError, match="src is float64"):
        build_csc([0.5], [0], 3, **rules)
    with pytest.raises(InputError, match="'no'"):
        build_csc([0], [0], 3, **{**rules, "duplicates": "no"})
