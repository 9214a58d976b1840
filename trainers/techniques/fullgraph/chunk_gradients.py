"""The gradients of a model's parameters by chunk, added at every rank in the order in which one process adds them.

In one process the chunks of a step add to the parameters part after part. Ranks compute the chunks of a step at the same time: each takes
the gradients of its own, all are gathered, and every rank adds them in the order of parts. So all make the same update, to the bit.

A step moves (parts of other ranks) x (bytes of the layer's parameters) to each rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from trainers.devices.protocol import Device
from trainers.loop.executor import Gradients, add_in_order, taken_gradients
from trainers.models.node_rows import RowGradient, node_rows
from trainers.models.own import Model
from trainers.ranks.group import Lane
from trainers.record.ledger import Ledger, Line

OF_PARAMETERS = Line("rank", "parameter", "backward")
TO_HOST, TO_DEVICE = Line("d2h", "gradient", "backward"), Line("h2d", "gradient", "backward")


class ChunkGradients:
    """Collects the gradients of this rank's chunks in a step, and adds those of all ranks.

    Args:
        model: the model.
        lane: the lane of the thread that trains.
        device: the model's device.
        ledger: receives the bytes of other ranks' gradients.
    """

    def __init__(self, model: Model, lane: Lane, device: Device, ledger: Ledger):
        self.model, self.lane, self.device, self.ledger = model, lane, device, ledger
        self._made: dict[int, Gradients] = {}

    @contextmanager
    def of(self, part: int) -> Iterator[None]:
        """Returns a context in which a part's chunk is differentiated; its gradients leave the model."""
        before = taken_gradients(self.model)
        yield
        self._made[part] = taken_gradients(self.model)
        for parameter, gradient in zip(self.model.parameters(), before.parameters, strict=True):
            parameter.grad = gradient
        nodes = node_rows(self.model)
        if nodes is not None:
            nodes.gradients += before.rows

    def add(self, losses: Mapping[int, float | Tensor] | None = None, *, down: bool = False) -> list[float]:
        """Adds the gradients of a step's chunks to the model in the order of parts; all ranks call it once per step.

        Args:
            losses: part -> sum of the losses of its nodes.
            down: whether one process goes through the parts from the last one to the first.

        Returns:
            The losses of all parts, in the same order.
        """
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
