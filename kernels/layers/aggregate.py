"""Aggregation over a block: every destination's sum, mean or weighted sum of its sources' rows, and the gradient.

Forward: out[i] = sum over the edges e of i of c(e) h[indices[e]]. Backward: grad_h[s] = sum over the edges e that use s of
c(e) grad_out[dst(e)], over the block's transpose. Both write each output row once, from rows taken in edge order: no atomics,
no zero-filling, the same bits at any thread count, and equal to a plain sequential sum. Columns stay in registers while the
edges of a row go by. Cost: nnz rows read, num_dst (num_src) rows written, F multiply-adds per edge; nothing is allocated
when `out` is given, which matters: fresh memory costs a page fault every 4 KiB.

`self_weight` is the destination's own term of a weighted sum (GCN); it is added last.

Rows are float32, float64, float16 or bfloat16 (uint16 holds its bits). The result has their type; sums of the last two are kept in float32
and rounded once, to nearest even. The bound is memory: a loop that only reads the rows and streams as many bytes out as there are results
is the roofline of `benchmarks/aggregate.py`. Outputs of 4 MiB and more are written past the caches (kernels/native/rows/row_stream.h).
Indices are checked piece by piece, just before their rows are read, so a block that is refused may have written some rows of `out`.

This is the product of a sparse and a dense matrix (SpMM), in compressed rows. Not checked: that values are finite.

Threads take pieces of 512 to 4,096 edges. A row with more than 8,192 edges is shared by 32 columns at a time (16 of float64; a row of less
than two such parts is not shared), which leaves the order of its sums alone.
"""

from typing import Literal

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import (
    STORED_FLOATS,
    as_out,
    as_rows,
    as_weights,
    block_rows,
    block_transpose,
    check_threads,
    dtype_name,
    narrow,
    widen,
)
from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.aggregate_cuda import REDUCTIONS, aggregate_backward_cuda, aggregate_cuda, is_weighted
from graphmill.kernels.types import Array, Block

Reduce = Literal["sum", "mean", "weighted"]


def aggregate_reference(block: Block, h: Array, reduce: Reduce) -> Array:
    """Returns [num_dst, F] as `aggregate` does (the rule in NumPy)."""
    dtype, h = h.dtype, widen(h)
    out = np.zeros((block.num_dst, h.shape[1]), h.dtype)
    for i in range(block.num_dst):
        for e in range(block.start[i], block.end[i]):
            row = h[block.indices[e]]
            out[i] += row * h.dtype.type(block.weight[e]) if reduce == "weighted" else row  # type: ignore[index]
        if reduce == "mean" and block.end[i] > block.start[i]:
            out[i] /= h.dtype.type(block.end[i] - block.start[i])
        if reduce == "weighted" and block.self_weight is not None:
            own = i if block.dst_pos is None else block.dst_pos[i]
            out[i] += h[own] * h.dtype.type(block.self_weight[i])
    return narrow(out, dtype)


def aggregate_backward_reference(block: Block, grad_out: Array, reduce: Reduce) -> Array:
    """Returns [num_src, F] as `aggregate_backward` does, from the block's rows alone (the rule in NumPy)."""
    dtype, grad_out = grad_out.dtype, widen(grad_out)
    out = np.zeros((block.num_src, grad_out.shape[1]), grad_out.dtype)
    kind = grad_out.dtype.type
    for i in range(block.num_dst):
        for e in range(block.start[i], block.end[i]):
            scale = kind(1)
            if reduce == "mean":
                scale = kind(1) / kind(block.end[i] - block.start[i])
            elif reduce == "weighted":
                scale = kind(block.weight[e])  # type: ignore[index]
            out[block.indices[e]] += grad_out[i] * scale
    if reduce == "weighted" and block.self_weight is not None:
        own = np.arange(block.num_dst) if block.dst_pos is None else block.dst_pos
        out[own] += grad_out * block.self_weight[:, None].astype(kind)
    return narrow(out, dtype)


def aggregate(block: Block, h: Array, reduce: Reduce, out: Array | None = None, threads: int = 1) -> Array:
    """Sums the sources' rows of every destination, by native code or, if `h` is on a device, by the CUDA kernel.

    Args:
        block: the block; `weighted` needs block.weight.
        h: f32, f64, f16 or bfloat16 (as u16) [num_src, F], the sources' rows.
        reduce: "sum"; "mean", by end - start; or "weighted", by block.weight, with self_weight times the destination's own row.
        out: [num_dst, F] of h's dtype, apart from h, or None.

    Returns:
        [num_dst, F]. A destination without edges gets zeros (its own term in a weighted sum with self_weight).
    """
    if on_device(h):
        device = device_of(h)
        out = device.empty((block.num_dst, h.shape[1]), dtype_name(h.dtype)) if out is None else out
        return aggregate_cuda(block, h, reduce, out, device)
    weight, self_weight = _weights(block, reduce)
    start, end, indices, dst_pos = block_rows(block)
    h = as_rows(h, "h", block.num_src, STORED_FLOATS)
    out = as_out(out, (block.num_dst, h.shape[1]), h.dtype)
    _apart(out, h)
    _native.aggregate(
        start, end, indices, dst_pos, weight, self_weight, h, out, REDUCTIONS[reduce], check_threads(threads)
    )
    return out


def aggregate_backward(
    block: Block, grad_out: Array, reduce: Reduce, out: Array | None = None, threads: int = 1
) -> Array:
    """Sends the gradient of an aggregation back to the sources, over the block's transpose.

    Args:
        block: a block with its transpose, built after its last edge was removed.
        grad_out: f32, f64, f16 or bfloat16 (as u16) [num_dst, F].
        out: [num_src, F] of grad_out's dtype, apart from it, or None; every row is written.

    Returns:
        [num_src, F], the self term included. A source without edges gets zeros.

    Raises:
        InputError: the transpose is missing or older than the block's rows, or a shape, dtype or reduction does not fit.
    """
    if on_device(grad_out):
        device = device_of(grad_out)
        out = device.empty((block.num_src, grad_out.shape[1]), dtype_name(grad_out.dtype)) if out is None else out
        return aggregate_backward_cuda(block, grad_out, reduce, out, device)
    weight, self_weight = _weights(block, reduce)
    start, end, _, dst_pos = block_rows(block)
    turned = block_transpose(block)
    kept = None if weight is None or block.t_weight is None else as_weights(block.t_weight, "t_weight", len(turned[1]))
    grad_out = as_rows(grad_out, "grad_out", block.num_dst, STORED_FLOATS)
    out = as_out(out, (block.num_src, grad_out.shape[1]), grad_out.dtype)
    _apart(out, grad_out)
    code, threads = REDUCTIONS[reduce], check_threads(threads)
    _native.aggregate_backward(start, end, dst_pos, weight, self_weight, *turned, kept, grad_out, out, code, threads)
    return out


def _weights(block: Block, reduce: str) -> tuple[Array | None, Array | None]:
    """Checks the reduction; returns the weights of edges and of own rows, None for those that it does not take."""
    if not is_weighted(block, reduce):
        return None, None
    given = ("weight", len(block.indices)), ("self_weight", block.num_dst)
    found = ((getattr(block, name), name, length) for name, length in given)
    weight, own = (None if each is None else as_weights(each, name, length) for each, name, length in found)
    return weight, own


def _apart(out: Array, h: Array) -> None:
    if np.may_share_memory(out, h):
        raise InputError("out shares memory with the rows it is made from", "give separate memory")
