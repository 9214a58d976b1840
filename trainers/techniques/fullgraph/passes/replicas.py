"""The copies of a model on the devices of a process: each device computes with parameters in its own memory (HongTu, Algorithm 1, line 19).

The optimiser changes the model of the first device. Before each pass its parameters are copied to the others, booked from device to device.
Gradients come back chunk by chunk, so no device has an optimiser's state but the first.

Devices that share the processor's memory share the model.

The gradients of a model's parameters by chunk, added in the order in which one device of one process adds them.

On one device the chunks of a step add to the parameters part after part. Several devices, and ranks, compute the chunks of a step at the
same time: each takes the gradients of its own, and when all are there they are added in the order of parts, on the first device, and at
every rank. So all make the same update, to the bit.

A step moves (parts of other devices) x (bytes of the layer's parameters) to the first device, and (parts of other ranks) x (these bytes) to
each rank.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.loop.executor import Gradients, add_in_order, taken_gradients
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.loss import Loss
from graphmill.trainers.models.node_rows import RowGradient, RowTable, node_rows
from graphmill.trainers.ranks.group import Lane
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.techniques.fullgraph.rows.host_rows import Place, devices_of

OF_COPIES = Line("d2d", "parameter")
Summed = Callable[[Tensor, Tensor], Tensor]
"""(logits float[n, C], labels of the n nodes) -> float[], the sum of their losses."""


class Replicas:
    """A model, whose buffers are running statistics, on the first of several distinct devices, and its copies on the others."""

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
        """Copies parameters and running statistics of the model to the other devices, and sets the mode of all modules."""
        self.model.train(training)
        rows = node_rows(self.model) if self.several else None
        for device, made in self._copies.values():
            for mine, theirs in zip(_values(made), _values(self.model), strict=True):
                mine.data = device.send_tensor(theirs.detach(), OF_COPIES, ledger)
            there = node_rows(made)
            if rows is not None and there is not None:
                there.table.values = device.send_tensor(rows.table.values, OF_COPIES, ledger)
                there.table.trained = rows.table.trained
            made.train(training)


def _values(model: LayeredModel) -> Iterator[Tensor]:
    yield from (*model.parameters(), *model.buffers())


def loss_on(loss: Summed, device: Device) -> Summed:
    """Returns a loss whose tensors, if it has some, are on a device."""
    if not isinstance(loss, Loss):
        return loss
    return loss.sent(lambda tensor: device.send_tensor(tensor, OF_COPIES, device.traffic))


def _empty_copy(model: LayeredModel, device: Device) -> LayeredModel:
    """Returns a copy of a model on another device, whose parameters have no values yet."""

    def empty(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, device=device.torch_device)

    memo: dict[int, Any] = {
        id(each): nn.Parameter(empty(each.detach()), each.requires_grad) for each in model.parameters()
    }
    memo |= {id(each): empty(each) for each in model.buffers()}
    rows = node_rows(model)
    if rows is not None:
        memo[id(rows.table)] = table = RowTable(*rows.table.shape)
        table.values = empty(rows.table.values)
    return copy.deepcopy(model, memo)


OF_DEVICES, LOSS_OF_DEVICES = Line("d2d", "parameter", "backward"), Line("d2d", "loss")
OF_PARAMETERS = Line("rank", "parameter", "backward")
TO_HOST, TO_DEVICE = Line("d2h", "gradient", "backward"), Line("h2d", "gradient", "backward")


def open_gradients(replicas: Replicas, lane: Lane | None, ledger: Ledger) -> ChunkGradients | None:
    """Returns the collector of the gradients of chunks; None for one process with one model, whose parameters collect them.

    Args:
        lane: the lane of the thread that trains; None for one process.
        ledger: receives the bytes of gradients of other devices and ranks.
    """
    if lane is not None:
        return RankGradients(replicas, lane, ledger)
    return ChunkGradients(replicas, ledger) if replicas.several else None


class ChunkGradients:
    """Collects the gradients of a step's chunks on the devices of a process, adds them and books those of other devices."""

    def __init__(self, replicas: Replicas, ledger: Ledger):
        self.replicas, self.ledger = replicas, ledger
        self.model, self.device = replicas.model, replicas.devices[0]
        self._made: dict[int, Gradients] = {}

    @contextmanager
    def of(self, place: Place) -> Iterator[None]:
        """Returns a context in which a part's chunk is differentiated, on its device's thread; its gradients leave the device's model."""
        model = self.replicas.on(place.device)
        before = taken_gradients(model)
        yield
        self._made[place.part] = taken_gradients(model)
        for parameter, gradient in zip(model.parameters(), before.parameters, strict=True):
            parameter.grad = gradient
        nodes = node_rows(model)
        if nodes is not None:
            nodes.gradients += before.rows

    def add(
        self, losses: Mapping[int, float | Tensor] | None = None, *, down: bool = False
    ) -> list[float] | list[float | Tensor]:
        """Adds the gradients of a step's chunks to the model in the order of parts; it is called once per step, by all ranks.

        Args:
            losses: part -> sum of the losses of its nodes.
            down: whether one device goes through the parts from the last one to the first.

        Returns:
            The losses of all parts, in the same order.
        """
        made, self._made, losses = self._made, {}, losses or {}
        order = sorted(made, reverse=down)
        add_in_order(self.model, (self._here(made.pop(part)) for part in order))
        found = [losses[part] for part in order if part in losses]
        return [self._on_first(each, LOSS_OF_DEVICES) if isinstance(each, Tensor) else each for each in found]

    def _here(self, found: Gradients) -> Gradients:
        """Returns the gradients of a chunk on the first device."""
        here = self._on_first
        parameters = [None if each is None else here(each) for each in found.parameters]
        return Gradients(parameters, [RowGradient(here(each.rows), here(each.values)) for each in found.rows])

    def _on_first(self, tensor: Tensor, line: Line = OF_DEVICES) -> Tensor:
        return self.device.send_tensor(tensor, line, self.ledger)


class RankGradients(ChunkGradients):
    """Collects the gradients of this rank's chunks in a step, adds those of all ranks and books those of other ranks."""

    def __init__(self, replicas: Replicas, lane: Lane, ledger: Ledger):
        super().__init__(replicas, ledger)
        self.lane = lane

    def add(self, losses: Mapping[int, float | Tensor] | None = None, *, down: bool = False) -> list[float]:
        """Adds the gradients of all ranks' chunks; arguments and result are those of `ChunkGradients.add`."""
        with _disable_current_modes():  # messages are in the host's memory
            packed = {name: tensor for part, made in self._made.items() for name, tensor in self._packed(part, made)}
            packed |= {
                f"{part}/loss": torch.tensor(float(loss), dtype=torch.float64) for part, loss in (losses or {}).items()
            }
            pieces = self.lane.gather_any(save(packed))
            self._made = {}
            of_others = [len(each) for rank, each in enumerate(pieces) if rank != self.lane.rank]
            self.ledger.crossed(OF_PARAMETERS, sum(of_others), requests=len(of_others))
            found: dict[int, dict[str, Tensor]] = {}
            for piece in pieces:
                for name, tensor in load(piece).items():
                    part, _, rest = name.partition("/")
                    found.setdefault(int(part), {})[rest] = tensor
        order = sorted(found, reverse=down)
        add_in_order(self.model, (self._unpacked(found[part]) for part in order))
        return [found[part]["loss"].item() for part in order if "loss" in found[part]]

    def _packed(self, part: int, made: Gradients) -> Iterator[tuple[str, Tensor]]:
        """Yields the gradients of a part's chunk on the host, by name."""

        def host(tensor: Tensor) -> Tensor:
            found = self.device.fetch(tensor.detach(), TO_HOST, self.device.traffic)
            return found.clone(memory_format=torch.contiguous_format)  # no two may share memory

        for number, gradient in enumerate(made.parameters):
            if gradient is not None:
                yield f"{part}/{number}", host(gradient)
        for number, each in enumerate(made.rows):
            yield f"{part}/rows {number}", host(each.rows)
            yield f"{part}/values {number}", host(each.values)

    def _unpacked(self, found: Mapping[str, Tensor]) -> Gradients:
        """Returns the gradients of a chunk on the model's device."""

        def sent(tensor: Tensor) -> Any:
            return self.device.send_tensor(tensor, TO_DEVICE, self.device.traffic)

        numbers = range(sum(True for _ in self.model.parameters()))
        parameters = [sent(found[str(number)]) if str(number) in found else None for number in numbers]
        count = sum(name.startswith("rows ") for name in found)
        rows = [RowGradient(sent(found[f"rows {each}"]), sent(found[f"values {each}"])) for each in range(count)]
        return Gradients(parameters, rows)
