"""One pass over the whole graph, forwards and backwards: the body of an epoch (HongTu, Algorithm 1, lines 6 to 21).

The row-wise ends of a model are also computed chunk by chunk: a projection of the features before the first layer, and the head with the
loss after the last one, on the training nodes of each chunk alone. A head that reads the outputs of all layers gives each of them a
gradient, which waits on the host, for the training nodes alone, until the backward pass reaches that layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.rows.move_rows import place_rows
from graphmill.kernels.types import Array
from graphmill.trainers.devices.protocol import Device, kernel_array
from graphmill.trainers.inference.bounds import OUTPUT_ROWS
from graphmill.trainers.inference.domain import Piece
from graphmill.trainers.inference.exact import EVALUATION
from graphmill.trainers.models.backward import backward_from
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import OwnLayers
from graphmill.trainers.models.precision import computing, widened
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.record.timeline import COMPUTE
from graphmill.trainers.rows.source import H2D, RowIds, TableSource
from graphmill.trainers.techniques.fullgraph.buffers import Loadable
from graphmill.trainers.techniques.fullgraph.host_rows import IDS, HostRows
from graphmill.trainers.techniques.fullgraph.in_place import rows_in_place, shares_memory
from graphmill.trainers.techniques.fullgraph.passes import Passes
from graphmill.trainers.techniques.fullgraph.places import Place
from graphmill.trainers.techniques.fullgraph.reads import PassedRows
from graphmill.trainers.techniques.fullgraph.replicas import Replicas, Summed, loss_on

FromHead = list[tuple[Array, Array]]
"""Gradients that the head gives to rows of a layer's output: (ids, float[c, F]) per chunk."""


class InputRows:
    """The input rows of the first layer: features of nodes, with dropout and projection on the device.

    Args:
        table: the features.
        replicas: the model with the row-wise beginning, on each device.
        dtype: NumPy's name of the type of gathered rows.

    If ranks share the parts, each reads the rows of any node from the table.
    """

    def __init__(self, table: TableSource, replicas: Replicas, dtype: str):
        model = replicas.model
        self.table, self.replicas, self.dtype, self.sharded = table, replicas, getattr(torch, dtype), False
        self.width = table.width if model.projection is None else model.projection.width
        self.random = StepRandom(0)
        plain = getattr(table, "plain", None)  # a table behind a link, or a cache, has rows to be gathered only
        self._plain: Array | None = None if plain is None or isinstance(model, OwnLayers) else plain(dtype)
        self._as_they_are = not model.input_dropout and model.projection is None

    def stage(self, ids: Array, device: Device, ledger: Ledger) -> tuple[Tensor, int]:
        """Returns float[c, F], features of nodes on a device; then the bytes of them that cross the link, which the caller books."""
        moved = Ledger()
        x = None if self._plain is None else rows_in_place(self._plain, ids, device, "staged")
        if x is None:
            x = device.alloc((len(ids), self.table.width), self.dtype, "staged")
            self.table.gather(RowIds(ids), x, moved)
        else:
            self.table.book(len(ids), moved)
        return x, self._booked(moved, ledger)

    def in_place(self, ids: Array, device: Device) -> Tensor | None:
        """Returns float[c, H], the first layer's input rows where they are; None if they are made, or a device needs a copy."""
        if self._plain is None or not self._as_they_are:
            return None
        return rows_in_place(self._plain, ids, device, "staged")

    def loads_to(self, device: Device) -> bool:
        """Returns whether the first layer reads the features as they lie in the host's memory."""
        return self._plain is not None and self._as_they_are and not device.remote

    def load(self, ids: Array, device: Device, ledger: Ledger, out: Tensor, places: Array | None) -> tuple[Tensor, int]:
        """Writes features of nodes to rows `places` of a buffer; returns it, and the bytes that crossed the link."""
        assert self._plain is not None
        moved = Ledger()
        place_rows(self._plain, ids, kernel_array(out), places, self.table.threads)
        self.table.book(len(ids), moved)
        return out, self._booked(moved, ledger)

    def _booked(self, moved: Ledger, ledger: Ledger) -> int:
        """Books what a gather moved besides the rows themselves, and returns the bytes of these."""
        num_bytes = 0
        for row in moved.rows()["moves"]:
            line = Line(row["link"], row["kind"], row["phase"], row["layer"])
            if line == H2D:
                num_bytes = row["moved_bytes"]
            else:
                ledger.move(line, **{name: row[name] for name in ("requests", "asked_bytes", "moved_bytes")})
        return num_bytes

    def transformed(self, x: Tensor, ids: Array, device: Device, ledger: Ledger) -> Tensor:
        """Returns the first layer's input rows: float[c, H] from the nodes' features x on the device."""
        model = self.replicas.on(device)
        drops = model.input_dropout or model.projection is not None
        return widened(model.input(x, device.send([ids], IDS, ledger)[0] if drops else ids, self.random))

    def finish(self, staged: Tensor, ids: Array, device: Device, ledger: Ledger) -> Tensor:
        """Returns the first layer's input rows from the nodes' features on the device, without a gradient."""
        with torch.no_grad():
            return self.transformed(staged, ids, device, ledger).contiguous()


class WholePass:
    """Computes the gradients of a model's parameters, and the loss, over all training nodes.

    Args:
        passes: the passes of the layers.
        inputs: the input rows of the first layer.
        labels: i32[N], labels of all nodes.
        train_ids: ids[n], the training nodes.
        loss: sums the losses of nodes; its tensors are on the first device.

    Attributes:
        summed: the first layer's aggregates, if they are the same in every pass and known.
    """

    def __init__(self, passes: Passes, inputs: InputRows, labels: Array, train_ids: Array, loss: Summed):
        self.summed: HostRows | None = None
        self.passes, self.inputs, self.labels = passes, inputs, labels
        self.losses = {device.index: loss_on(loss, device) for device in passes.replicas.devices}
        self.model, self.mover = passes.model, passes.mover
        trained = torch.zeros(len(labels), dtype=torch.bool).numpy()
        trained[train_ids] = True
        self._seeds = [
            {part: ids[trained[ids]] for part, ids in of_step.items() if trained[ids].any()}
            for of_step in self._chunks()
        ]

    @property
    def num_seeds(self) -> int:
        """Number of training nodes of this rank's parts."""
        return sum(len(ids) for of_step in self._seeds for ids in of_step.values())

    def __call__(self, random: StepRandom) -> float | Tensor:
        """Adds the gradients to the model's parameters and returns the sum of the losses; float64[] if a device holds it."""
        self.inputs.random = random
        # Sets the mode of a user's modules, including the ends; an evaluation between two passes sets its own.
        model, passes = self.model, self.passes
        passes.replicas.update(self.mover.ledger, training=random.training)
        rows: list[Loadable] = [self.inputs if model.projection is None else self._projected()]
        made: list[PassedRows] = []
        for index in range(len(model.layers)):
            made.append(passes.forward(index, rows[index], random, self.summed if index == 0 else None))
            output = made[-1].output
            assert output is not None
            rows.append(output)
            made[-1].output = None  # the list of rows alone holds it, so that it is freed with its last use
        loss, from_head = self._loss(rows[1:])
        gradients: HostRows | None = None
        for index in reversed(range(len(model.layers))):
            output = rows.pop()
            above = self._added(gradients, from_head[index], output.width)
            gradients = None
            if isinstance(output, HostRows) and shares_memory(self.mover.places[0].device):
                made[-1].output = output
            del output
            if index > 0 or model.projection is not None:
                gradients = passes.sums_below(index, rows[index])
            kept = made.pop()
            passes.backward(index, rows[index], kept, above, gradients, random)
            passes.replicas.wait()
            del kept
        if model.projection is not None:
            assert gradients is not None
            self._project_backward(gradients)
        return loss

    def logits(self, node_ids: Array) -> list[Piece]:
        """Returns the logits of those of some nodes that are in this rank's parts, by a forward pass without dropout; all ranks call it.

        Nothing is kept for a backward pass, and nothing is booked as the training's.

        Args:
            node_ids: ids[n], distinct.
        """
        model, passes, traffic = self.model, replace(self.passes, hybrid=False), self.mover.places[0].device.traffic
        self.inputs.random = EVALUATION
        place_of = np.full(len(self.labels), -1, np.int32)
        place_of[node_ids] = np.arange(len(node_ids))
        down, pieces = Line("h2d", "logit", "forward", len(model.layers)), []
        with self.mover.beside(traffic), torch.no_grad():
            passes.replicas.update(traffic, training=False)
            below: Loadable = self.inputs if model.projection is None else self._projected()
            outputs: list[Loadable] = []
            for index in range(len(model.layers)):
                output = passes.forward(index, below, EVALUATION, self.summed if index == 0 else None).output
                assert output is not None
                below = output
                outputs = [*outputs, output] if model.jumps else [output]

            def head(j: int, asked: Mapping[int, Array], place: Place) -> Tensor:
                device = place.device
                with place.active(), torch.no_grad(), computing(passes.dtype, device.torch_device):
                    read = [self.mover.loaded(each, asked[place.part], down, place.part, j) for each in outputs]
                    return widened(passes.replicas.on(device).head(read))

            for j, of_step in enumerate(self._chunks()):
                asked = {part: ids[place_of[ids] >= 0] for part, ids in of_step.items()}
                asked = {part: ids for part, ids in asked.items() if len(ids)}
                for place, found in self.mover.at_places.each(partial(head, j, asked), asked):
                    pieces.append(Piece(place_of[asked[place.part]], place.device.fetch(found, OUTPUT_ROWS, traffic)))
        return pieces

    def first_sums(self, ledger: Ledger, random: StepRandom) -> HostRows:
        """Returns the first layer's aggregates of the features for all nodes.

        Args:
            ledger: receives what moves for them.
            random: the masks of any step; an aggregate that stays the same draws none.
        """
        self.inputs.random = random
        self.passes.replicas.update(ledger, training=random.training)
        return self.passes.sums(0, self.inputs, ledger, random)

    def _chunks(self) -> list[dict[int, Array]]:
        """Returns part -> ids of its chunk's nodes, step by step."""
        passes = self.passes
        return [
            {place.part: passes.walk.dst_ids[place.part][j] for place in passes.mover.places}
            for j in range(passes.num_steps)
        ]

    def _added(self, gradients: HostRows | None, from_head: FromHead, width: int) -> HostRows:
        """Returns the gradients of a layer's output, with those of the head added."""
        gradients = gradients or self.passes.zeros(width)
        for ids, rows in from_head:
            gradients.add(ids, torch.from_numpy(rows))
        return gradients

    def _loss(self, outputs: Sequence[Loadable]) -> tuple[float | Tensor, list[FromHead]]:
        """Returns the sum of the losses, and per layer the head's gradients of its output."""
        total: float | Tensor = 0.0
        layers = range(len(outputs)) if self.model.jumps else [len(outputs) - 1]
        from_head: list[FromHead] = [[] for _ in outputs]
        down, up = Line("h2d", "logit", "forward", len(outputs)), Line("d2h", "logit", "backward", len(outputs))

        def head(j: int, seeds: Mapping[int, Array], place: Place) -> tuple[float | Tensor, list[Tensor]]:
            ids = seeds[place.part]
            with self.passes.adding(place), place.active(), torch.enable_grad():
                leaves = [
                    self.mover.loaded(outputs[layer], ids, down, place.part, j).requires_grad_() for layer in layers
                ]
                return self._head(place, j, ids, leaves), leaves

        for j, of_step in enumerate(self._seeds):
            losses: dict[int, float | Tensor] = {}
            for place, (loss, leaves) in self.mover.at_places.each(partial(head, j, of_step), of_step):
                losses[place.part] = loss
                for layer, leaf in zip(layers, leaves, strict=True):
                    assert leaf.grad is not None
                    # A copy, since on the CPU the device's memory is the host's.
                    found = self.mover.to_host(leaf.grad, up, place.part)().numpy().copy()
                    from_head[layer].append((of_step[place.part], found))
                del leaves
            gradients = self.passes.gradients
            for loss in losses.values() if gradients is None else gradients.add(losses):
                total = total + loss
        return total, from_head

    def _head(self, place: Place, j: int, ids: Array, leaves: list[Tensor]) -> float | Tensor:
        """Returns the sum of the losses of a chunk's training nodes, and differentiates it."""
        with self.mover.span(place.part, COMPUTE, j):
            with computing(self.passes.dtype, place.device.torch_device):
                logits = widened(self.passes.replicas.on(place.device).head(leaves))
            labels = torch.from_numpy(self.labels[ids]).long()
            if place.device.remote:
                (labels,) = place.device.send([labels.numpy()], Line("h2d", "label"), self.mover.ledger)
            loss = self.losses[place.device.index](logits, labels)
            loss.backward()
        return loss.detach().double() if place.device.remote else loss.item()

    def _projected(self) -> HostRows:
        """Computes the input rows of the first layer for all nodes."""
        kept = self.passes.host_rows(self.inputs.width)

        def projected(place: Place) -> Tensor:
            with place.active(), torch.no_grad():
                return self.mover.loaded(self.inputs, chunks[place.part], Line("h2d", "feature"), place.part, j)

        for j, of_step in enumerate(self._chunks()):
            chunks = {part: ids for part, ids in of_step.items() if len(ids)}
            for place, rows in self.mover.at_places.each(projected, chunks):
                self.mover.store(rows, chunks[place.part], kept, Line("d2h", "output"), place.part, j)
                del rows
        self.mover.settle()
        return kept

    def _project_backward(self, gradients: HostRows) -> None:
        """Adds the gradients of the projection's parameters."""
        mover = self.mover

        def differentiated(j: int, of_step: Mapping[int, Array], place: Place) -> None:
            part, ids = place.part, of_step[place.part]
            if not len(ids):
                return
            with self.passes.adding(place), place.active(), torch.enable_grad():
                above = mover.loaded(gradients, ids, Line("h2d", "gradient", "backward"), part, j)
                with mover.span(part, "h2d", j):
                    x = mover.staged(self.inputs.stage, ids, Line("h2d", "feature", "backward"), part)
                with mover.span(part, COMPUTE, j):
                    with computing(self.passes.dtype, place.device.torch_device):
                        rows: Any = self.inputs.transformed(x, ids, place.device, mover.ledger)
                    backward_from(rows, above)

        for j, of_step in reversed([*enumerate(self._chunks())]):
            for _ in mover.at_places.each(partial(differentiated, j, of_step), down=True):
                pass
            if self.passes.gradients is not None:
                self.passes.gradients.add(down=True)
        self.passes.replicas.wait()
