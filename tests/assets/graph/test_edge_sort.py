"""The external sort against the compression in memory, with many small ranges and batches."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.building.stage import Silent
from graphmill.assets.graph import edge_sort
from graphmill.assets.graph.edge_sort import EdgePolicy, sort_edges
from graphmill.assets.sources.spool import SORT_BYTES, EdgeColumns, EdgeSpool
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.csc import build_csc_reference
from tests.assets.storage.limits import file_size_limit


def sort(home, src, dst, num_nodes, *, memory_bytes, threads=2, batch=50, **policy):
    with Store(home).writer("graph", "ab" * 32) as writer:
        spool = EdgeSpool(writer.scratch(), num_nodes, EdgeColumns(), undirected=policy["undirected"])
        for low in range(0, len(src), batch):
            spool.append(src[low : low + batch], dst[low : low + batch])
        topology, dropped = sort_edges(spool, EdgePolicy(**policy), memory_bytes, threads, writer, Silent())
        left = os.listdir(spool.folder)
        stored = {name: np.load(writer.path(f"{name}.npy")) for name in ("indptr", "indices")}
    assert left == []  # the scratch files are gone as soon as they were read
    return topology, dropped, stored


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 200), st.integers(0, 400), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from([1, 2000, 2**30]), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_equals_the_compression_in_memory(
    tmp_path_factory, num_nodes, num_edges, undirected, merge, drop, memory_bytes, seed
):
    rng = np.random.default_rng(seed)
    # Half of the edges end at one node: its range is larger than the memory for it.
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    dst[: num_edges // 2] = dst[:1].repeat(num_edges // 2)
    topology, dropped, stored = sort(
        tmp_path_factory.mktemp("home"), src, dst, num_nodes, memory_bytes=memory_bytes,
        undirected=undirected, merge=merge, drop_loops=drop,
    )  # fmt: skip
    wanted = build_csc_reference(
        src, dst, num_nodes, undirected=undirected, duplicates="merge" if merge else "keep",
        self_loops="drop" if drop else "keep",
    )  # fmt: skip
    assert stored["indices"].dtype == wanted.indices.dtype and stored["indptr"].dtype == wanted.indptr.dtype
    assert np.array_equal(stored["indptr"], wanted.indptr) and np.array_equal(stored["indices"], wanted.indices)
    for name in ("in_degree", "out_degree"):
        assert np.array_equal(getattr(topology, name), getattr(wanted, name)), name
        assert getattr(topology, name).dtype == np.int32
    assert dropped == {"num_duplicates": wanted.num_duplicates, "num_self_loops": wanted.num_self_loops}


def test_ranges_follow_the_edges(tmp_path, monkeypatch):
    monkeypatch.setattr("graphmill.assets.sources.spool.COARSE_BINS", 64)
    spool = EdgeSpool(tmp_path, 1000, EdgeColumns(), undirected=False)
    spool.append(np.zeros(500, int), np.full(500, 700))
    spool.append(np.zeros(100, int), np.arange(100))
    bounds = edge_sort._cut(spool, 60 * SORT_BYTES)
    assert bounds[0] == 0 and bounds[-1] == 1000 and (np.diff(bounds) > 0).all()
    held = np.histogram(np.concatenate([np.full(500, 700), np.arange(100)]), bounds)[0]
    assert sorted(held)[-2] <= 60 < max(held)  # only the range of the hub is too full
    spool.close()


def test_a_degree_that_does_not_fit(monkeypatch, tmp_path):
    monkeypatch.setattr(edge_sort, "LARGEST_DEGREE", 3)
    policy = {"undirected": False, "merge": False, "drop_loops": True}
    with pytest.raises(InputError, match="node 2 has 4 in-edges"):
        sort(tmp_path, np.array([0, 1, 3, 3]), np.full(4, 2), 4, memory_bytes=1, **policy)
    with pytest.raises(InputError, match="node 1 has 4 out-edges"):
        sort(tmp_path, np.ones(4, int), np.array([0, 2, 3, 4]), 5, memory_bytes=1, **policy)


def test_a_full_disk_is_an_input_error(tmp_path):
    policy = {"undirected": True, "merge": True, "drop_loops": True}
    with file_size_limit(64 * 1024), pytest.raises(InputError, match="larger than allowed"):
        sort(tmp_path, np.arange(20000), np.arange(20000)[::-1], 20000, memory_bytes=1 << 20, batch=5000, **policy)
    assert os.listdir(tmp_path / "store" / ".staging") == []
