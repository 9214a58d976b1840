"""Small graphs and blocks that the kernel tests draw."""

import numpy as np
from hypothesis import strategies as st

from graphmill.kernels.types import Block, Topology


def topology(rows, dtype=np.int32, **more):
    """The topology whose node v has the in-neighbours rows[v]."""
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    indices = np.array([u for row in rows for u in sorted(row)], dtype)
    out_degree = np.bincount(indices, minlength=len(rows)).astype(np.int32)
    in_degree = np.diff(indptr).astype(np.int32)
    return Topology(indptr=indptr, indices=indices, in_degree=in_degree, out_degree=out_degree, **more)


def random_topology(num_nodes, num_edges, seed=0, dtype=np.int32):
    """A skewed random graph with duplicates, self-loops and isolated nodes."""
    generator = np.random.default_rng(seed)
    dst = (num_nodes * generator.random(num_edges) ** 3).astype(np.int64)
    rows = [[] for _ in range(num_nodes)]
    for v, u in zip(dst, generator.integers(0, num_nodes, num_edges), strict=True):
        rows[v].append(int(u))
    return topology(rows, dtype)


@st.composite
def topologies(draw, max_nodes=12):
    """Any small multigraph: empty rows, self-loops, duplicates, both id types."""
    num_nodes = draw(st.integers(1, max_nodes))
    row = st.lists(st.integers(0, num_nodes - 1), max_size=9)
    rows = draw(st.lists(row, min_size=num_nodes, max_size=num_nodes))
    return topology(rows, draw(st.sampled_from([np.int32, np.int64])))


@st.composite
def blocks(draw, max_src=9):
    """Any small block: rows with gaps between them (removed edges), destinations anywhere among the sources, weights."""
    num_src = draw(st.integers(1, max_src))
    num_dst = draw(st.integers(0, num_src))
    lengths = draw(st.lists(st.integers(0, 5), min_size=num_dst, max_size=num_dst))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = draw(st.lists(st.integers(0, num_src - 1), min_size=int(starts[-1]), max_size=int(starts[-1])))
    removed = np.array(draw(st.lists(st.booleans(), min_size=num_dst, max_size=num_dst)), bool)
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    anywhere = generator.permutation(num_src)[:num_dst].astype(np.int32)
    return Block(
        num_dst=num_dst,
        num_src=num_src,
        start=starts[:-1].copy(),
        end=np.where(removed, starts[:-1], starts[1:]).astype(np.int32),
        indices=np.array(indices, np.int32),
        src_ids=generator.permutation(100)[:num_src].astype(np.int32),
        dst_pos=draw(st.sampled_from([None, anywhere])),
        weight=generator.standard_normal(len(indices)).astype(np.float32),
        self_weight=draw(st.sampled_from([None, generator.standard_normal(num_dst).astype(np.float32)])),
    )


def assert_same_blocks(left, right, fields=("start", "end", "indices", "src_ids")):
    """Both tuples of blocks are equal to the byte in these fields."""
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert (a.num_dst, a.num_src) == (b.num_dst, b.num_src)
        for name in fields:
            x, y = getattr(a, name), getattr(b, name)
            assert (x is None) == (y is None), name
            assert x is None or (x.dtype == y.dtype and x.tobytes() == y.tobytes()), name
