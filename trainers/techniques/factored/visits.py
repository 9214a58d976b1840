"""Visits that are counted while a model trains (online presampling, FGNN 6.3): those of the batches that it has trained on.

They are counted where the batches were drawn: a device that draws keeps the numbers, and no id of a batch leaves it for them. Batches have
the same bytes wherever they are drawn, so both ways count the same.

Memory: 4 bytes per node, on each device that draws or on the host; on the host twice that while the cache is filled or a checkpoint is
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphmill.kernels.cuda.device import on_device
from graphmill.kernels.hotness.visits import count_visits
from graphmill.kernels.types import Array
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.record.ledger import Line

HOST = torch.device("cpu")
UP, DOWN = Line("h2d", "checkpoint"), Line("d2h", "ids")


class OnlineVisits:
    """The number of batches that had each node among their inputs.

    Args:
        devices: the run's device, and the other accelerators that draw.
        drawn_there: whether batches are trained on where a device draws them.
    """

    def __init__(self, num_nodes: int, devices: Sequence[Device], drawn_there: bool):
        self._num_nodes, self._devices = num_nodes, {device.torch_device: device for device in devices}
        self._first = devices[0].torch_device if drawn_there else HOST
        self._counts: dict[torch.device, Tensor] = {}
        self._at(self._first)

    def _at(self, where: torch.device) -> Tensor:
        """Returns i32[N], the counts of batches that are on a device or on the host."""
        if where not in self._counts:
            shape, dtype = (self._num_nodes,), torch.int32
            memory = torch.empty(shape, dtype=dtype) if where == HOST else self._alloc(where, shape, dtype)
            self._counts[where] = memory.zero_()
        return self._counts[where]

    def _alloc(self, where: torch.device, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return self._devices[where].alloc(shape, dtype, "visits")

    def add(self, input_ids: Any) -> None:
        """Counts a batch by ids[n], the nodes of its input rows, which are where the batch is trained on."""
        if on_device(input_ids):
            count_visits(input_ids, self._at(input_ids.device))
        else:
            count_visits(input_ids, self._at(HOST).numpy())

    def counted(self) -> Array:
        """Returns i32[N] on the host."""
        fetched = [counts if at == HOST else self._fetched(at) for at, counts in self._counts.items()]
        return torch.stack(fetched).sum(0, dtype=torch.int32).numpy() if len(fetched) > 1 else fetched[0].numpy()

    def _fetched(self, where: torch.device) -> Tensor:
        device = self._devices[where]
        return device.fetch(self._counts[where], DOWN, device.traffic)

    def state(self) -> dict[str, Tensor]:
        """Returns a copy of the counts for a checkpoint, where they are; their sum on the host if several devices have some."""
        if len(self._counts) == 1:
            return {"visits": self._counts[self._first].clone()}
        return {"visits": torch.from_numpy(self.counted())}

    def restore(self, counts: Tensor) -> None:
        """Takes over i32[N], the counts of a checkpoint."""
        if self._first != HOST:
            device = self._devices[self._first]
            counts = device.send_tensor(counts.contiguous(), UP, device.traffic)
        self._counts = {self._first: self._at(self._first).copy_(counts)}
