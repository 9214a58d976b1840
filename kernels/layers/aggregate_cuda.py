"""Aggregation over a block on a GPU; see kernels/layers/aggregate.py for the rule and kernels/cuda/layers/aggregate.cu for the kernel.

Bytes moved: each edge's row once, the list of edges once per tile of 32 lanes' columns, each result once. Nothing is downloaded and nothing
waits. Not checked, since that would wait for the device: that local ids are in range.
"""

from typing import Any

import numpy as np

from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import C_TYPES, address, block_lists, launch, matrix, pack_and_team
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Block

REDUCTIONS = {"sum": 0, "mean": 1, "weighted": 2}
NOTHING = np.uint64(0)


def aggregate_cuda(block: Block, h: Any, reduce: str, out: Any, device: CudaDevice) -> Any:
    """Sums the sources' rows of every destination; see `graphmill.kernels.layers.aggregate.aggregate`."""
    weighted = is_weighted(block, reduce)
    begins, ends, sources, own = block_lists(block, device)
    lists = (begins, ends, sources, NOTHING, NOTHING, NOTHING, *weighted_args(block, device, weighted, own))
    _launch(lists, block.num_dst, block.num_dst, (h, block.num_src), out, reduce, False, device)
    return out


def aggregate_backward_cuda(block: Block, grad_out: Any, reduce: str, out: Any, device: CudaDevice) -> Any:
    """Sends the gradient of an aggregation back to the sources, over the block's transpose; see `aggregate_backward`."""
    weighted = is_weighted(block, reduce)
    if block.t_start is None or block.t_edge is None or block.t_dst is None:
        problem = "the block has no transpose, which the backward pass needs"
        raise InputError(problem, 'sample with transpose="hidden" or "all"')
    starts = address(block.t_start, "t_start", device, block.num_src + 1)
    own = own_destinations(block, device) if weighted and block.self_weight is not None else None
    lists = (
        starts,
        starts + np.uint64(4),
        address(block.t_dst, "t_dst", device),
        address(block.t_edge, "t_edge", device),
        address(block.start, "start", device, block.num_dst),
        address(block.end, "end", device, block.num_dst),
        *weighted_args(block, device, weighted, NOTHING if own is None else np.uint64(device.pointer(own, "own"))),
    )
    _launch(lists, block.num_dst, block.num_src, (grad_out, block.num_dst), out, reduce, True, device)
    return out


def own_destinations(block: Block, device: CudaDevice) -> Any:
    """Returns i32[num_src] on the device, the destination that each source is or -1; None if the first sources are the destinations."""
    if block.dst_pos is None:
        return None
    places = device.empty((block.num_src,), np.int32)
    dst_pos = address(block.dst_pos, "dst_pos", device, block.num_dst)
    pointer = np.uint64(device.pointer(places, "places")) if block.num_src else np.uint64(0)
    if block.num_src:
        launch(device, "layers/aggregate", "clear", block.num_src, (np.int32(block.num_src), pointer), {})
    if block.num_dst:
        launch(device, "layers/aggregate", "invert", block.num_dst, (dst_pos, np.int32(block.num_dst), pointer), {})
    return places


def weighted_args(
    block: Block, device: CudaDevice, weighted: bool, own: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Returns the kernel's arguments for weights of edges, own rows and weights of these."""
    if not weighted:
        return NOTHING, NOTHING, NOTHING
    weights = address(block.weight, "weight", device, len(block.indices), "float32")
    return weights, own, address(block.self_weight, "self_weight", device, block.num_dst, "float32")


def is_weighted(block: Block, reduce: str) -> bool:
    """Returns whether a reduction takes weights; raises InputError if it is unknown, or the block lacks them."""
    if reduce not in REDUCTIONS:
        raise InputError(f"reduction {reduce!r}", f"give one of {', '.join(REDUCTIONS)}")
    if reduce == "weighted" and block.weight is None:
        problem = "a weighted sum needs block.weight"
        raise InputError(problem, "fill it with graphmill.kernels.blocks.coefficients.gcn_weights")
    return reduce == "weighted"


def _launch(
    lists: tuple[np.uint64, ...],
    num_own: int,
    num_rows: int,
    given: tuple[Any, int],
    out: Any,
    reduce: str,
    backward: bool,
    device: CudaDevice,
) -> None:
    rows, dtype = matrix(given[0], "the rows", device, given[1])
    width = given[0].shape[1]
    target, out_dtype = matrix(out, "out", device, num_rows, width)
    if out_dtype != dtype:
        raise InputError(f"out is {out_dtype}, the rows are {dtype}", f"give {dtype}")
    if num_rows * width == 0:
        return
    pack, team = pack_and_team(width, dtype, [rows, target])
    defines = {"ELEMENT": C_TYPES[dtype][0], "PACK": pack, "TEAM": team}
    defines |= {"REDUCE": REDUCTIONS[reduce], "BACKWARD": int(backward)}
    arguments = (*lists, np.int32(num_own), rows, target, np.int64(num_rows), np.int32(width // pack))
    launch(device, "layers/aggregate", "aggregate", num_rows * team, arguments, defines)
