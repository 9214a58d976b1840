"""The copies of a model on the devices of a process: each device computes with parameters in its own memory (HongTu, Algorithm 1, line 19).

The optimiser changes the model of the first device. Before each pass its parameters are copied to the others, booked from device to device.
Gradients come back chunk by chunk (chunk_gradients.py), so no device has an optimiser's state but the first.

Devices that share the processor's memory share the model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.loss import Loss
from graphmill.trainers.models.node_rows import RowTable, node_rows
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.techniques.fullgraph.rows.places import Place, devices_of

OF_COPIES = Line("d2d", "parameter")
Summed = Callable[[Tensor, Tensor], Tensor]
"""(logits float[n, classes], labels i64[n]) -> float[], the sum of the nodes' losses."""


class Replicas:
    """A model and its copies.

    Args:
        model: the model, on the first device; it has no buffers.
        places: the places of this process's parts.

    Attributes:
        devices: the distinct devices.
    """

    def __init__(self, model: LayeredModel, places: Sequence[Place]):
        self.model, self.devices = model, devices_of(places)
        parameter = next(model.parameters(), None)
        others = [device for device in self.devices[1:] if not device.holds(parameter)]
        self._copies = {device.index: (device, _empty_copy(model, device)) for device in others}

    @property
    def several(self) -> bool:
        """Whether there are copies."""
        return bool(self._copies)

    def on(self, device: Device) -> LayeredModel:
        """Returns the model that a device computes with."""
        found = self._copies.get(device.index)
        return self.model if found is None else found[1]

    def wait(self) -> None:
        """Waits for the work of all devices, which read rows of the host in place: their memory may be unpinned and freed afterwards."""
        for device in self.devices:
            if isinstance(device, Accelerator):
                device.backend.kernels.synchronize()

    def update(self, ledger: Ledger, *, training: bool) -> None:
        """Copies the parameters of the model to the other devices, and sets the mode of all modules."""
        self.model.train(training)
        rows = node_rows(self.model)
        for device, made in self._copies.values():
            for mine, theirs in zip(made.parameters(), self.model.parameters(), strict=True):
                mine.data = device.from_peer(theirs.detach(), OF_COPIES, ledger)
            there = node_rows(made)
            if rows is not None and there is not None:
                there.table.values = device.from_peer(rows.table.values, OF_COPIES, ledger)
                there.table.trained = rows.table.trained
            made.train(training)


def loss_on(loss: Summed, device: Device) -> Summed:
    """Returns a loss whose class weights, if it has some, are on a device."""
    if not isinstance(loss, Loss) or loss.class_weights is None:
        return loss
    return replace(loss, class_weights=device.from_peer(loss.class_weights, OF_COPIES, device.traffic))


def _empty_copy(model: LayeredModel, device: Device) -> LayeredModel:
    """Returns a copy of a model on another device, whose parameters have no values yet."""

    def empty(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, device=device.torch_device)

    memo: dict[int, Any] = {
        id(each): nn.Parameter(empty(each.detach()), each.requires_grad) for each in model.parameters()
    }
    rows = node_rows(model)
    if rows is not None:
        memo[id(rows.table)] = RowTable(empty(rows.table.values))
    return copy.deepcopy(model, memo)
