"""Sums of messages ReLU(h_u + W e_uv + b) over a block's edges, with a deterministic gradient: the aggregation of GINE.

    out[i] = sum over the edges e of i of c(e) ReLU(h[indices[e]] + W rows[edge_place[e]] + b)      c(e): block.weight or 1

Source: Hu et al., "Strategies for Pre-training Graph Neural Networks", 2020, section 5.2. A message is computed in registers and added to
its row's sum, so nothing has F values for each edge. It is b, plus the columns of W times the edge's values one after the other, plus the
source's row; rows add their messages in edge order. So a row's bits depend neither on threads nor on the rows beside it.

What the backward pass needs of a message is which of its values ReLU let through: one bit each, which the forward pass writes if it is
asked to. Then grad_h is pulled over the transpose, in edge order, and the gradient of W is the sum of the outer products of gradients of
messages and rows of edges. It is summed in at most 64 shares of consecutive edges, edge by edge, and then share by share. The shares
depend on the block alone, so the bits are the same at any thread count. Rows of edges have no gradient.

Cost: each direction reads an edge's row and its source's row once, and makes F K multiply-adds per edge, for F columns of a message and K
columns of an edge's row. The bits take F / 8 bytes per edge. Rows are float32, float64, float16 or bfloat16 (uint16 holds its bits); of the
last two, messages and sums are float32 and each result is rounded once. Not checked: that values are finite. What is not a number goes
through ReLU, as in torch. On the host alone.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import (
    STORED_FLOATS,
    as_int32,
    as_out,
    as_rows,
    as_weights,
    block_edges,
    block_transpose,
    check_threads,
    narrow,
    sum_dtype,
    widen,
)
from graphmill.kernels.cuda.device import on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Block


def edge_messages_reference(
    block: Block, h: Array, rows: Array, matrix: Array, bias: Array, weight: Array | None = None
) -> tuple[Array, Array]:
    """Returns (out, which values ReLU let through: bool[nnz, F]) as `edge_messages` does (the rule in NumPy)."""
    dtype, h = h.dtype, widen(h)
    assert block.edge_place is not None
    out, active = np.zeros((block.num_dst, h.shape[1]), h.dtype), np.zeros((len(block.indices), h.shape[1]), bool)
    for i in range(block.num_dst):
        for e in range(block.start[i], block.end[i]):
            message = bias.copy()
            for k, value in enumerate(rows[block.edge_place[e]]):
                message += matrix[:, k] * value
            message += h[block.indices[e]]
            active[e] = ~(message <= 0)
            out[i] += np.where(active[e], message, 0) * h.dtype.type(1 if weight is None else weight[e])
    return narrow(out, dtype), active


def edge_messages_backward_reference(
    block: Block, rows: Array, active: Array, grad_out: Array, weight: Array | None = None
) -> tuple[Array, Array, Array]:
    """Returns (grad_h, grad_matrix, grad_bias) as `edge_messages_backward` does, in float64 (the rule in NumPy).

    Args:
        active: bool[nnz, F] of `edge_messages_reference`.
    """
    assert block.edge_place is not None
    grad_out, width = widen(grad_out).astype(np.float64), grad_out.shape[1]
    of_h, of_matrix, of_bias = np.zeros((block.num_src, width)), np.zeros((width, rows.shape[1])), np.zeros(width)
    for i in range(block.num_dst):
        for e in range(block.start[i], block.end[i]):
            grad = np.where(active[e], grad_out[i], 0) * (1 if weight is None else weight[e])
            of_h[block.indices[e]] += grad
            of_matrix += grad[:, None] * rows[block.edge_place[e]]
            of_bias += grad
    return of_h, of_matrix, of_bias


def empty_active(block: Block, width: int) -> Array:
    """Returns uninitialised memory for a bit of each value of the block's messages: u8[nnz, width / 8, rounded up to whole pairs]."""
    return np.empty((len(block.indices), (width + 15) // 16 * 2), np.uint8)


def edge_messages(
    block: Block,
    h: Array,
    rows: Array,
    matrix: Array,
    bias: Array,
    *,
    weight: Array | None = None,
    out: Array | None = None,
    active: Array | None = None,
    threads: int = 1,
) -> Array:
    """Sums the messages of every destination's edges.

    Args:
        block: the block, with `edge_place`.
        h: f32, f64, f16 or bfloat16 (as u16) [num_src, F], the sources' rows.
        rows: [U, K], the rows of edges; matrix: [F, K]; bias: [F]. They are f64 if h is, else f32.
        weight: f32[nnz], factors of messages, or None.
        out: [num_dst, F] of h's dtype, or None.
        active: of `empty_active`, written for the backward pass; None if there is none. What belongs to removed edges is not written.

    Returns:
        [num_dst, F]; zeros for a destination without edges.

    Raises:
        InputError: a shape or dtype does not fit, an edge's row is not there, or the rows are on a device.
    """
    if on_device(h):
        raise InputError("messages with features of edges are computed on the host alone", 'set device = "cpu"')
    h = as_rows(h, "h", block.num_src, STORED_FLOATS)
    width, floats = h.shape[1], (sum_dtype(h.dtype),)
    rows, matrix = as_rows(rows, "rows", None, floats), as_rows(matrix, "matrix", width, floats)
    if matrix.shape[1] != rows.shape[1] or bias.shape != (width,) or bias.dtype != floats[0]:
        given = f"matrix {matrix.dtype}{list(matrix.shape)}, bias {bias.dtype}{list(bias.shape)}"
        raise InputError(
            f"a map of {given} for rows of {rows.shape[1]} columns", f"give {floats[0]}[{width}, K] and [{width}]"
        )
    out = as_out(out, (block.num_dst, width), h.dtype)
    bits = None if active is None else as_out(active, empty_active(block, width).shape, np.uint8)
    given = *block_edges(block), _place(block), _weight(weight, block)
    _native.edge_messages(*given, h, rows, matrix, np.ascontiguousarray(bias), bits, out, check_threads(threads))
    return out


def edge_messages_backward(
    block: Block,
    rows: Array,
    active: Array,
    grad_out: Array,
    *,
    weight: Array | None = None,
    grad_h: Array | None = None,
    threads: int = 1,
) -> tuple[Array, Array]:
    """Sends the gradient of `edge_messages` back.

    Args:
        rows, active, weight: as of the forward pass, which wrote `active`.
        grad_out: [num_dst, F] of h's dtype.
        grad_h: [num_src, F] of grad_out's dtype, every row of which is written, over the block's transpose; None if it is not needed.

    Returns:
        The gradients of matrix [F, K] and of bias [F], of the type of rows.

    Raises:
        InputError: `grad_h` is given and the transpose is missing or stale, or a shape or dtype does not fit.
    """
    grad_out = as_rows(grad_out, "grad_out", block.num_dst, STORED_FLOATS)
    width, floats = grad_out.shape[1], sum_dtype(grad_out.dtype)
    rows = as_rows(rows, "rows", None, (floats,))
    bits = as_out(active, empty_active(block, width).shape, np.uint8)
    transposed: tuple[Any, ...] = (None, None, None)
    if grad_h is not None:
        grad_h, transposed = as_out(grad_h, (block.num_src, width), grad_out.dtype), block_transpose(block)
    of_map = np.empty((rows.shape[1] + 1, width), floats)
    start, end, _ = block_edges(block)
    t_start, t_edge, t_dst = transposed
    _native.edge_messages_backward(
        start, end, _place(block), _weight(weight, block), t_start, t_edge, t_dst, rows, bits, grad_out, grad_h, of_map,
        check_threads(threads),
    )  # fmt: skip
    return np.ascontiguousarray(of_map[:-1].T), of_map[-1]


def _weight(weight: Array | None, block: Block) -> Array | None:
    return None if weight is None else as_weights(weight, "weight", len(block.indices))


def _place(block: Block) -> Array:
    if block.edge_place is None:
        raise InputError("the block's edges have no places among rows of edges", "call place_edges")
    return as_int32(block.edge_place, "edge_place", len(block.indices))
