"""Masks of attention weights on a GPU; see `graphmill.kernels.layers.attention.edge_mask`."""

from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import ID_TYPES, address, block_lists, launch
from graphmill.kernels.rng import MASK
from graphmill.kernels.types import Block


def edge_mask_cuda(block: Block, num_heads: int, key: int, threshold: int, device: CudaDevice) -> Any:
    """Returns u8[nnz + num_dst, H] on the device, 0 for a dropped weight; see `graphmill.kernels.layers.attention.edge_mask`."""
    num_edges, ids = len(block.indices), dtype_name(block.src_ids.dtype)
    kept = device.empty((num_edges + block.num_dst, num_heads), np.uint8)
    if num_edges + block.num_dst == 0:
        return kept
    names, how = (
        address(block.src_ids, "src_ids", device, block.num_src, ids),
        (np.uint64(key & MASK), np.uint32(threshold)),
    )
    sizes = np.int32(num_heads), np.int32(block.num_dst), np.int32(num_edges)
    arguments = *block_lists(block, device), names, *how, *sizes, np.uint64(device.pointer(kept, "kept"))
    launch(device, "layers/edge_mask", "edge_mask", num_edges + block.num_dst, arguments, {"ID": ID_TYPES[ids]})
    return kept
