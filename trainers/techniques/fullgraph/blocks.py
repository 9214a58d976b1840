"""The blocks of chunks for a layer's passes: with edge weights and transposes, on the device that computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

import numpy as np

from kernels.sampling.transpose import transpose
from kernels.types import Block, Topology
from trainers.batches.batch import attach_weights, block_bytes
from trainers.batches.send import send_blocks
from trainers.devices.protocol import Device
from trainers.record.ledger import Ledger
from trainers.techniques.fullgraph.lists import Steps


class ChunkBlocks:
    """Prepares the blocks of steps, and keeps as many of them on the host as a bound allows; the others are made anew in every pass.

    Threads may ask for blocks of different steps at once.

    Args:
        steps: the source of chunks.
        topology: the graph, whose degrees decide the weights.
        edge_weight: "gcn", "sum" or None.
        most_bytes: bound on the bytes of kept blocks.
    """

    def __init__(self, steps: Steps, topology: Topology, edge_weight: str | None, most_bytes: int):
        self.steps, self.topology, self.edge_weight = steps, topology, edge_weight
        self._kept: dict[tuple[int, int], Block] = {}
        self._free_bytes, self._lock = most_bytes, Lock()

    @contextmanager
    def on(self, part: int, step: int, device: Device, ledger: Ledger) -> Iterator[Block]:
        """Yields the block of a step, with its transpose, while it is on a device."""
        found = self._kept.get((part, step))
        if found is None:
            found = self._made(part, step)
            num_bytes = block_bytes((found,))
            with self._lock:
                if num_bytes <= self._free_bytes:
                    self._kept[part, step] = found
                    self._free_bytes -= num_bytes
        with device.holding(block_bytes((found,)), "topology"):
            yield send_blocks((found,), device, ledger)[0]

    def _made(self, part: int, step: int) -> Block:
        block = self.steps.step(part, step).block
        # Unused rows do not belong to a node; any node's number is valid for them.
        block = replace(block, src_ids=np.maximum(block.src_ids, 0))
        if block.t_start is None:
            block = transpose(block)
        attach_weights((block,), self.topology, self.edge_weight)
        return block
