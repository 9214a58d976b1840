"""Counter-based dropout on a GPU; see kernels/layers/dropout.py. Each element is read and written once."""

from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import C_TYPES, ID_TYPES, address, launch, matrix
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import MASK

LANES = 1 << 16


def dropout_cuda(x: Any, node_ids: Any, key: int, threshold: int, out: Any, device: CudaDevice) -> Any:
    """Drops elements whose 16 bits are below the threshold; see `graphmill.kernels.layers.dropout.dropout`."""
    num_rows, width, ids = len(node_ids), x.shape[1], dtype_name(node_ids.dtype)
    rows, dtype = matrix(x, "x", device, num_rows)
    target, out_dtype = matrix(out, "out", device, num_rows, width)
    if dtype not in ("float32", "float64") or out_dtype != dtype or ids not in ID_TYPES:
        problem = f"x is {dtype}, out {out_dtype}, node_ids {ids}"
        raise InputError(problem, "give float32 or float64 twice, and int32 or int64")
    if num_rows * width == 0:
        return out
    scale = np.dtype(dtype).type(LANES) / np.dtype(dtype).type(LANES - threshold)
    defines, names = (
        {"ELEMENT": C_TYPES[dtype][0], "ID": ID_TYPES[ids]},
        address(node_ids, "node_ids", device, num_rows, ids),
    )
    how, sizes = (np.uint64(key & MASK), np.uint32(threshold), scale), (np.int64(num_rows), np.int32(width))
    launch(device, "layers/dropout", "dropout", num_rows * -(-width // 4), (rows, names, *how, target, *sizes), defines)
    return out
