"""Dropout whose mask is a function of names, not of a generator's state.

Element (node, column) is dropped by bits that depend on the key, the node's global id and the column only. So a mask is the
same wherever the row lies in a batch, in which chunk it is recomputed, on which rank, after a resume, and forward and backward
need not store it: the backward pass is this function on the gradient.

One 64-bit draw serves four columns, 16 bits each: the drop probability is a multiple of 2^-16. Cost: one draw for four
elements (vectorised), one read and one write per element.

Kept elements are scaled by 1 / (1 - p) (inverted dropout). Not checked: that ids are each given once; equal ids get equal masks.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, as_out, as_rows, check_threads, dtype_name
from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.dropout_cuda import dropout_cuda
from graphmill.kernels.rng import MASK, absorb_ids_reference, draws
from graphmill.kernels.types import Array

LANES = 1 << 16  # values of the 16 bits that decide on one element


def drop_threshold(p: float) -> int:
    """Returns t in 0..65535: an element is dropped when its 16 bits are below t, the multiple of 2^-16 nearest to p."""
    if not 0 <= p < 1:
        raise InputError(f"dropout p = {p}", "give a probability in [0, 1)")
    return min(round(p * LANES), LANES - 1)


def drop_scale(p: float) -> float:
    """Returns the factor of kept elements: 65536 / (65536 - t), t = round(65536 p)."""
    return LANES / (LANES - drop_threshold(p))


def dropout_reference(x: Array, node_ids: Array, key: int, p: float) -> Array:
    """Returns x with elements dropped as `dropout` does (the rule in NumPy)."""
    threshold = drop_threshold(p)
    columns = np.arange(x.shape[1])
    bits = draws(absorb_ids_reference(key, node_ids)[:, None], columns[None, :] >> 2)
    lane = (bits >> (np.uint64(16) * (columns & 3).astype(np.uint64))) & np.uint64(LANES - 1)
    scale = x.dtype.type(LANES) / x.dtype.type(LANES - threshold)
    return np.where(lane < threshold, x.dtype.type(0), x * scale)


def dropout(x: Array, node_ids: Any, key: int, p: float, out: Array | None = None, threads: int = 1) -> Array:
    """Drops elements of rows with probability p and scales the others by 65536 / (65536 - t), t = round(65536 p).

    Args:
        x: f32 or f64 [n, F]; dropped elements become 0 whatever they held.
        node_ids: ids[n] global, the names of the rows.
        key: key that names the mask: graphmill.kernels.rng.key(seed, Stream.DROPOUT, train_epoch, position, layer).
        p: the probability, in [0, 1).
        out: array for the result, or None for a new one; may be x itself.

    Returns:
        The same dtype and shape as x.
    """
    threshold = drop_threshold(p)
    if on_device(x):
        device = device_of(x)
        out = device.empty(tuple(x.shape), dtype_name(x.dtype)) if out is None else out
        return dropout_cuda(x, node_ids, key, threshold, out, device)
    node_ids = as_ids(node_ids, "node_ids")
    x = as_rows(x, "x", len(node_ids))
    out = as_out(out, x.shape, x.dtype)
    if out.ctypes.data != x.ctypes.data and np.may_share_memory(out, x):
        raise InputError("out overlaps x without being x", "give x itself or separate memory")
    _native.dropout(x, node_ids, key & MASK, threshold, out, check_threads(threads))
    return out


def relu_dropout_reference(x: Array, bias: Array | None, node_ids: Array, key: int, p: float) -> Array:
    """Returns x after `relu_dropout` (the rule in NumPy); x itself keeps its values."""
    x = x if bias is None else x + bias
    return dropout_reference(np.where(x < 0, x.dtype.type(0), x), node_ids, key, p)


def relu_dropout(x: Array, bias: Array | None, node_ids: Any, key: int, p: float, threads: int = 1) -> None:
    """Adds a bias to rows, sets negative values to 0 and drops elements as `dropout` does, in place: one read and one write per element.

    Args:
        x: f32 or f64 [n, F] in the processor's memory, overwritten.
        bias: [F] of x's type, or None.
        node_ids: ids[n] global, the names of the rows.
        key: key that names the mask, see `dropout`.
        p: the probability, in [0, 1).
    """
    threshold, node_ids = drop_threshold(p), as_ids(node_ids, "node_ids")
    x = as_out(x, (len(node_ids), x.shape[1]), x.dtype)
    if bias is not None and (bias.shape != x.shape[1:] or bias.dtype != x.dtype):
        raise InputError(f"bias is {bias.dtype}{list(bias.shape)}", f"give {x.dtype}[{x.shape[1]}]")
    _native.relu_dropout(x, bias, node_ids, key & MASK, threshold, check_threads(threads))


def relu_dropout_backward(result: Array, grad: Array, p: float, out: Array, threads: int = 1) -> None:
    """Writes the gradient of `relu_dropout`'s x: what became 0, negative or dropped, has none, the rest is scaled.

    Args:
        result: f32 or f64 [n, F], what `relu_dropout` left; the mask is read from it.
        grad: [n, F] of its type, the gradient of the result.
        out: [n, F] of its type; may be grad.
    """
    threshold = drop_threshold(p)
    result = as_rows(result, "result", len(result))
    grad, out = (as_out(each, result.shape, result.dtype) for each in (grad, out))
    _native.relu_dropout_backward(result, grad, threshold, out, check_threads(threads))
