"""The transpose of a block: for every source, the edges that use it.

The backward pass of an aggregation sends gradients from destinations to sources. Over the transpose every source pulls its
own gradient, so nothing is added to one row by two threads: no atomics, and the order of additions is fixed. It is built by a
counting sort over the sources: O(num_src + nnz) time, 8 nnz + 4 num_src bytes written, edges of a source in ascending order.

Build it after pruning: edges outside start[i]..end[i] are left out, and `aggregate_backward` refuses a transpose that has
another number of edges than its block.
"""

from dataclasses import replace

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import block_edges
from graphmill.kernels.types import Array, Block


def transpose_reference(block: Block) -> tuple[Array, Array, Array]:
    """Returns (t_start, t_edge, t_dst) of a block (the rule in NumPy)."""
    edges = [np.arange(low, high) for low, high in zip(block.start, block.end, strict=True)]
    edge = np.concatenate([*edges, np.empty(0, np.int64)]).astype(np.int64)
    dst = np.repeat(np.arange(block.num_dst), block.end - block.start)
    order = np.lexsort((edge, block.indices[edge]))
    starts = np.concatenate([[0], np.cumsum(np.bincount(block.indices[edge], minlength=block.num_src))])
    return tuple(array.astype(np.int32) for array in (starts, edge[order], dst[order]))  # type: ignore[return-value]


def transpose(block: Block) -> Block:
    """Returns the block with its transpose filled: t_start i32[num_src+1], t_edge and t_dst i32[edges that are left]."""
    t_start, t_edge, t_dst = _native.transpose(block.num_src, *block_edges(block))
    return replace(block, t_start=t_start, t_edge=t_edge, t_dst=t_dst, t_weight=None)


def order_weights(block: Block) -> None:
    """Keeps a block's weights in the order of its transpose, too, in place: for a block of this machine that serves many passes.

    A gradient that looks weights up by edge takes twice as long where rows have 16 columns; the copy takes about as long as one gradient.

    Args:
        block: a block with its transpose; nothing is done to one without weights.
    """
    if block.weight is not None:
        block.t_weight = block.weight[block.t_edge]
