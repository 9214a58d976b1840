"""Moves a mini-batch to a device that has memory of its own, and blocks back to the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.kernels.types import Block
from graphmill.trainers.batches.batch import MiniBatch
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
    """Returns blocks whose arrays are on the device, sent by one transfer; a device without memory of its own gets the blocks as they are.

    The sources of sampled blocks are a prefix of one list, which is sent once.
    """
    if not device.remote:
        return tuple(blocks)
    lists = {block.src_ids.ctypes.data: block.src_ids for block in sorted(blocks, key=lambda block: block.num_src)}
    arrays = [*lists.values(), *(array for block in blocks for _, array in _held(block))]
    sent = iter(device.send(arrays, BLOCKS, ledger))
    ids = {address: next(sent) for address in lists}
    return tuple(
        replace(
            block,
            src_ids=ids[block.src_ids.ctypes.data][: block.num_src],
            **{name: next(sent) for name, _ in _held(block)},
        )
        for block in blocks
    )


def fetch_blocks(blocks: Sequence[Block], device: Accelerator, ledger: Ledger) -> tuple[Block, ...]:
    """Returns blocks of a device whose arrays are in pinned host memory, copied by one transfer: the inverse of `send_blocks`."""
    lists = {_address(block.src_ids): block.src_ids for block in sorted(blocks, key=lambda block: block.num_src)}
    tensors: list[Any] = [*lists.values(), *(array for block in blocks for _, array in _held(block))]
    found = iter(device.fetch_together(tensors, FETCHED_BLOCKS, ledger))
    ids = {address: next(found) for address in lists}
    return tuple(
        replace(
            block,
            src_ids=ids[_address(block.src_ids)][: block.num_src],
            **{name: next(found) for name, _ in _held(block)},
        )
        for block in blocks
    )


def send_batch(batch: MiniBatch, device: Device, ledger: Ledger) -> MiniBatch:
    """Returns a batch whose blocks and labels are on the device; its inputs are there already."""
    if not device.remote:
        return batch
    blocks = send_blocks(batch.blocks, device, ledger)
    (labels,) = device.send([batch.labels.astype(np.int64)], LABELS, ledger)
    device.hand_over([*([] if batch.x is None else [batch.x]), labels, *(block.src_ids for block in blocks)])
    return replace(batch, blocks=blocks, labels=labels, slots=None, staged=None)


def _address(tensor: Any) -> int:
    return tensor.data_ptr()


def _held(block: Block) -> Iterator[tuple[str, Any]]:
    for name in ARRAYS:
        array = getattr(block, name)
        if array is not None:
            yield name, array
