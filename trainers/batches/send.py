"""Moves blocks to a device that has memory of its own, and back to the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphmill.kernels.types import Block
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.record.ledger import Ledger, Line

if TYPE_CHECKING:
    from graphmill.trainers.devices.accelerator import Accelerator

BLOCKS, LABELS = Line("h2d", "topology"), Line("h2d", "label")
FETCHED_BLOCKS = Line("d2h", "topology")
ARRAYS = (
    "start", "end", "indices", "dst_pos", "weight", "self_weight", "share", "edge_type", "edge_id", "t_start", "t_edge", "t_dst",
)  # fmt: skip
"""The arrays of a block besides the ids of its sources."""


def send_blocks(blocks: Sequence[Block], device: Device, ledger: Ledger) -> tuple[Block, ...]:
    """Returns blocks whose arrays are on the device, sent by one transfer; blocks that are there already are returned as they are."""
    if device.holds(blocks[0].src_ids):
        return tuple(blocks)
    return _moved(blocks, lambda arrays: device.send(arrays, BLOCKS, ledger))


def fetch_blocks(blocks: Sequence[Block], device: Accelerator, ledger: Ledger) -> tuple[Block, ...]:
    """Returns blocks of a device whose arrays are in pinned host memory, copied by one transfer: the inverse of `send_blocks`."""
    return _moved(blocks, lambda tensors: device.fetch_together(tensors, FETCHED_BLOCKS, ledger))


def _moved(blocks: Sequence[Block], move: Callable[[list[Any]], list[Any]]) -> tuple[Block, ...]:
    """Returns blocks of the arrays that a function returns for all of theirs.

    The sources of sampled blocks are a prefix of one list, which is moved once.
    """
    lists = {_address(block.src_ids): block.src_ids for block in sorted(blocks, key=lambda block: block.num_src)}
    moved = iter(move([*lists.values(), *(array for block in blocks for _, array in _held(block))]))
    ids = {address: next(moved) for address in lists}
    return tuple(
        replace(
            block,
            src_ids=ids[_address(block.src_ids)][: block.num_src],
            **{name: next(moved) for name, _ in _held(block)},
        )
        for block in blocks
    )


def _address(ids: Any) -> int:
    return ids.data_ptr() if hasattr(ids, "data_ptr") else ids.ctypes.data


def _held(block: Block) -> Iterator[tuple[str, Any]]:
    for name in ARRAYS:
        array = getattr(block, name)
        if array is not None:
            yield name, array
