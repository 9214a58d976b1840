"""The transpose of a block on a GPU; see kernels/blocks/transpose.py.

The library's stable sort orders the edges by source; equal sources keep the order of their edges, as in the CPU's counting sort.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import address, launch
from graphmill.kernels.types import Block


def transpose_cuda(block: Block, device: CudaDevice, rows: Any = None) -> Block:
    """Returns the block, on the device with all its edges, with its transpose; `rows`, i32[nnz], are the edges' destinations, if known."""
    num_edges, num_src = len(block.indices), block.num_src
    if rows is None:
        rows = device.empty((num_edges,), np.int32)
        if num_edges:
            ranges = (address(getattr(block, name), name, device, block.num_dst) for name in ("start", "end"))
            arguments = (*ranges, np.int32(block.num_dst), np.uint64(device.pointer(rows, "rows")))
            launch(device, "blocks/transpose", "spell_rows", 32 * block.num_dst, arguments, {})
    order = device.stable_order(block.indices)
    t_start, t_dst = device.empty((num_src + 1,), np.int32), device.empty((num_edges,), np.int32)
    arguments = (
        *(address(array, "edges", device, num_edges) for array in (block.indices, rows, order)),
        np.int32(num_edges),
        np.int32(num_src),
        np.uint64(device.pointer(t_start, "t_start")),
        np.uint64(device.pointer(t_dst, "t_dst")) if num_edges else np.uint64(0),
    )
    launch(device, "blocks/transpose", "transpose", num_edges + 1, arguments, {})
    return replace(block, t_start=t_start, t_edge=order, t_dst=t_dst)
