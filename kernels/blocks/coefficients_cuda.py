"""Edge weights of a block on a GPU; see kernels/blocks/coefficients.py."""

from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import ID_TYPES, address, block_lists, launch
from graphmill.kernels.types import Block


def gcn_weights_cuda(
    block: Block, in_degree: Any, out_degree: Any, device: CudaDevice, sampled: bool = True
) -> tuple[Any, Any]:
    """Returns (weight f32[nnz], self_weight f32[num_dst]) on the device; see `graphmill.kernels.blocks.coefficients.gcn_weights`."""
    weight, own = device.zeros((len(block.indices),), np.float32), device.empty((block.num_dst,), np.float32)
    _launch(block, in_degree, out_degree, (1, int(sampled)), weight, own, device)
    return weight, own


def sum_weights_cuda(block: Block, in_degree: Any, device: CudaDevice) -> Any:
    """Returns f32[nnz] on the device; see `graphmill.kernels.blocks.coefficients.sum_weights`."""
    weight = device.zeros((len(block.indices),), np.float32)
    _launch(block, in_degree, None, (0, 1), weight, None, device)
    return weight


def _launch(
    block: Block, in_degree: Any, out_degree: Any, how: tuple[int, int], weight: Any, own: Any, device: CudaDevice
) -> None:
    if not block.num_dst:
        return
    ids = dtype_name(block.src_ids.dtype)
    arguments = (
        *block_lists(block, device),
        address(block.src_ids, "src_ids", device, block.num_src, ids),
        address(in_degree, "in_degree", device),
        address(out_degree, "out_degree", device),
        *(np.int32(value) for value in how),
        np.int32(block.num_dst),
        address(block.share if how[1] else None, "share", device, len(block.indices), "float32"),
        address(weight, "weight", device, dtype="float32"),
        address(own, "self_weight", device, dtype="float32"),
    )
    launch(device, "blocks/coefficients", "coefficients", 32 * block.num_dst, arguments, {"ID": ID_TYPES[ids]})
