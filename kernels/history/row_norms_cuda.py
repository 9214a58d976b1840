"""Norms of rows on a GPU; see kernels/history/row_norms.py for the rule."""

from typing import Any

import numpy as np

from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import C_TYPES, address, launch, matrix
from graphmill.kernels.errors import InputError


def row_norms_cuda(rows: Any, out: Any, device: CudaDevice) -> Any:
    """Writes f32[n], the norm of every row, to `out`; see `graphmill.kernels.history.row_norms.row_norms`."""
    num_rows, width = (int(size) for size in rows.shape)
    source, dtype = matrix(rows, "rows", device, num_rows)
    if dtype not in ("float32", "float64"):
        raise InputError(f"rows are {dtype}", "give float32 or float64")
    out = device.empty((num_rows,), np.float32) if out is None else out
    target = address(out, "out", device, num_rows, "float32")
    if num_rows:
        arguments = source, np.int64(num_rows), np.int32(width), target
        launch(device, "history/row_norms", "row_norms", 32 * num_rows, arguments, {"ELEMENT": C_TYPES[dtype][0]})
    return out
