"""Euclidean norms of rows, for gradients of embeddings (FreshGNN, 4.1.1), in a fixed order of additions.

Squares are added in float64, so that neither tiny nor huge float32 gradients lose their rank: column c is added to lane c modulo 32, from
left to right, then the lanes are folded, the upper half onto the lower one, five times. The root is rounded to float32. The order is
that of a warp that reads a row by neighbouring lanes, and of 32 numbers in vector registers; so NumPy, the CPU and a GPU agree to the
bit, at any thread count. Nothing is contracted to a fused multiply-add.

Cost: each row is read once; the bound is memory. Other names: row-wise L2 norm. A NaN in a row makes its norm NaN.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_out, as_rows, check_threads
from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.history.row_norms_cuda import row_norms_cuda
from graphmill.kernels.types import Array

LANES = 32


def row_norms_reference(rows: Array) -> Array:
    """Returns f32[n], the norms of rows (the rule in NumPy)."""
    num_rows, width = rows.shape
    tiles = -(-width // LANES)
    padded = np.zeros((num_rows, tiles * LANES), np.float64)
    padded[:, :width] = rows
    sums = np.zeros((num_rows, LANES), np.float64)
    with np.errstate(all="ignore"):
        for tile in range(tiles):
            part = padded[:, tile * LANES : (tile + 1) * LANES]
            sums += part * part
        for half in (16, 8, 4, 2, 1):
            sums = sums[:, :half] + sums[:, half : 2 * half]
        return np.sqrt(sums[:, 0]).astype(np.float32)


def row_norms(rows: Any, out: Any = None, threads: int = 1) -> Any:
    """Returns the Euclidean norm of every row, by native code or, if `rows` is on a device, by the CUDA kernel.

    Args:
        rows: f32 or f64 [n, F], C-contiguous.
        out: f32[n], or None for a new array.

    Returns:
        f32[n]; a norm above float32's range is infinite.
    """
    if on_device(rows):
        return row_norms_cuda(rows, out, device_of(rows))
    rows = as_rows(rows, "rows")
    out = as_out(out, (len(rows),), np.float32)
    _native.row_norms(rows, out, check_threads(threads))
    return out
