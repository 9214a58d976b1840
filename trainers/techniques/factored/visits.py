"""Visits that are counted while a model trains (online presampling, FGNN 6.3): those of the batches that it has trained on.

They are counted where the batches were drawn: a device that draws keeps the numbers, and no id of a batch leaves it for them. Batches have
the same bytes wherever they are drawn, so both ways count the same.

Memory: 4 bytes per node, on the device or on the host; on the host twice that while the cache is filled or a checkpoint is written.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.hotness.visits import count_visits
from kernels.types import Array
from trainers.devices.protocol import Device
from trainers.record.ledger import Line

UP, DOWN = Line("h2d", "checkpoint"), Line("d2h", "ids")


class OnlineVisits:
    """The number of batches that had each node among their inputs.

    Args:
        num_nodes: N.
        device: the run's device.
        drawn_there: whether it draws the batches.
    """

    def __init__(self, num_nodes: int, device: Device, drawn_there: bool):
        self.device, self._there = device, drawn_there
        self._counts = (
            device.alloc((num_nodes,), torch.int32, "visits").zero_()
            if drawn_there
            else torch.zeros(num_nodes, dtype=torch.int32)
        )

    def add(self, input_ids: Any) -> None:
        """Counts a batch by ids[n], the nodes of its input rows, which are where the batch was drawn."""
        count_visits(input_ids, self._counts if self._there else self._counts.numpy())

    def counted(self) -> Array:
        """Returns i32[N] on the host."""
        return self.device.fetch(self._counts, DOWN, self.device.traffic).numpy()

    def state(self) -> dict[str, Tensor]:
        """Returns a copy of the counts for a checkpoint, where they are."""
        return {"visits": self._counts.clone()}

    def restore(self, counts: Tensor) -> None:
        """Takes over i32[N], the counts of a checkpoint."""
        if self._there:
            counts = self.device.send_tensor(counts.contiguous(), UP, self.device.traffic)
        self._counts.copy_(counts)
