"""Passes over the rows of nodes alone: the projection of features, and the maps of layers that map rows before they sum them.
The passes of a model's head, over some of the nodes, give their logits, or the losses of training nodes with their gradients.

Every node's row is mapped once, with its own chunk, and not in each chunk that reads it. A chunk then loads mapped rows as neighbours, and
its backward pass sends the gradients of mapped rows back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.tasks.labels import step_values
from graphmill.kernels.rows.move_rows import place_rows
from graphmill.kernels.types import Array
from graphmill.trainers.batches.batch import LABELS
from graphmill.trainers.devices.protocol import Device, kernel_array
from graphmill.trainers.models.loss import loss_value
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.ops import add_gradient
from graphmill.trainers.models.own import OwnLayers
from graphmill.trainers.models.products import BF16, summed_over_rows, times_in, widened
from graphmill.trainers.record.checks import TIERS
from graphmill.trainers.record.ledger import COMPUTE, Ledger, Line
from graphmill.trainers.rows.source import H2D, FeatureSource, RowIds, TableSource
from graphmill.trainers.techniques.fullgraph.memory import FILL_BYTES
from graphmill.trainers.techniques.fullgraph.passes.chunk_pass import ChunkPass, T
from graphmill.trainers.techniques.fullgraph.passes.layer_passes import PassedRows, backward_from
from graphmill.trainers.techniques.fullgraph.passes.replicas import Replicas, Summed
from graphmill.trainers.techniques.fullgraph.rows.host_rows import IDS, HostRows, KeptRows, rows_in_place
from graphmill.trainers.techniques.fullgraph.rows.supply import Supply


def maps_apart(layer: Any, in_width: int) -> bool:
    """Returns whether a layer's map is a pass of its own: where it makes rows no wider than the in_width columns that it reads."""
    return getattr(layer, "maps_apart", False) and layer.projected_width <= in_width


class InputRows(HostRows):
    """The features of nodes, with dropout and projection on the device.

    Args:
        dtype: NumPy's name of the type of gathered rows.
        cached: number of a device -> the table behind the rows that it and the host keep (tiers.py); empty without a cache.

    If ranks share the parts, each reads the rows of any node from the table.
    """

    def __init__(
        self,
        table: TableSource,
        replicas: Replicas,
        dtype: str,
        cached: Mapping[int, FeatureSource] = MappingProxyType({}),
    ):
        model = replicas.model
        self.table, self.cached, self.replicas, self.dtype = table, cached, replicas, getattr(torch, dtype)
        self.width = table.width if model.projection is None else model.projection.width
        self.random = StepRandom(0)
        # Rows behind a cache are gathered, wherever they are; a user's layer may change the rows that it is given.
        self._plain: Array | None = None if cached or isinstance(model, OwnLayers) else table.plain(dtype)
        self._as_they_are = not model.input_dropout and model.projection is None
        self._window_rows = max(1, FILL_BYTES // max(1, table.width * self.dtype.itemsize))

    def stage(self, ids: Array, device: Device, ledger: Ledger) -> tuple[Tensor, int]:
        """As `HostRows.stage`; the staged rows are the features themselves."""
        moved = Ledger()
        x = None if self._plain is None else rows_in_place(self._plain, ids, device, "staged")
        if x is None:
            x = device.alloc((len(ids), self.table.width), self.dtype, "staged")
            self._source(device).gather(RowIds(ids), x, moved)
        else:
            self.table.book(len(ids), moved)
        return x, self._booked(moved, ledger)

    def in_place(self, ids: Array, device: Device) -> Tensor | None:
        """As `HostRows.in_place`; None also if the input rows are made from the features."""
        if self._plain is None or not self._as_they_are:
            return None
        return rows_in_place(self._plain, ids, device, "staged")

    def loads_to(self, device: Device) -> bool:
        """Returns whether the first layer reads the features as they are, in the host's memory."""
        return self._as_they_are and device.holds(self.table.rows)

    def load(self, ids: Array, device: Device, ledger: Ledger, out: Tensor, places: Array | None) -> tuple[Tensor, int]:
        """As `HostRows.load`; rows that do not lie in memory as they are read come through a window, not all beside the buffer."""
        moved, target, threads = Ledger(), kernel_array(out), self.table.threads
        if self._plain is not None:
            place_rows(self._plain, ids, target, places, threads)
            self.table.book(len(ids), moved)
            return out, self._booked(moved, ledger)
        to = np.arange(len(ids)) if places is None else places
        window = device.alloc((min(len(ids), self._window_rows), self.table.width), self.dtype, "staged")
        for low in range(0, len(ids), len(window)):
            part = slice(low, low + len(window))
            rows = window[: len(ids[part])]
            self._source(device).gather(RowIds(ids[part]), rows, moved)
            place_rows(kernel_array(rows), None, target, to[part], threads)
        return out, self._booked(moved, ledger)

    def _source(self, device: Device) -> FeatureSource:
        """Returns the source of the rows of a device: the table, or that with the cached rows before it."""
        return self.cached.get(device.index, self.table)

    def _booked(self, moved: Ledger, ledger: Ledger) -> int:
        """Books what a gather moved besides the rows that crossed the link, and returns the bytes of these."""
        num_bytes, rows = 0, moved.rows()
        for row in rows["counts"]:
            if row["name"] in TIERS:
                ledger.count(**row)
        for row in rows["moves"]:
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
        """As `HostRows.finish`: dropout and projection, without a gradient."""
        with torch.no_grad():
            return self.transformed(staged, ids, device, ledger).contiguous()


@dataclass
class ProjectionPass(ChunkPass[Tensor]):
    """Keeps the rows of all nodes in the form that passes read: features become input rows of the first layer."""

    # Where rows come from, and where they are kept.
    inputs: HostRows
    out: KeptRows
    # Kind of the rows that are read, and the layer that they are read for, in the ledger.
    kind: str = "feature"
    index: int = 0

    def chunk(self, supply: Supply) -> Tensor:
        """Returns the rows of a chunk's nodes."""
        return supply.loaded(self.inputs, Line("h2d", self.kind, "forward", self.index))

    def leave(self, supply: Supply, found: Tensor) -> None:
        """Keeps the rows."""
        self.store(supply, found, self.out, Line("d2h", "output", "forward", self.index))


@dataclass
class MapPass(ProjectionPass):
    """Maps the rows of all nodes by the map of a layer."""

    kind: str = "output"

    def chunk(self, supply: Supply) -> Tensor:
        """Returns the mapped rows of a chunk's nodes."""
        read, layer = super().chunk(supply), self.model_on(supply).layers[self.index]
        with self.computing(supply):
            return widened(layer.project(read))  # pyright: ignore[reportCallIssue]


@dataclass
class ProjectionBackwardPass(ChunkPass[None]):
    """Adds the gradients of the projection's parameters, from `above`, those of the input rows."""

    inputs: InputRows
    above: KeptRows
    down = parts_down = differentiates = True

    def chunk(self, supply: Supply) -> None:
        """Projects a chunk's nodes again, and differentiates that."""
        part, ids, j = supply.part, supply.ids, supply.step
        above = supply.loaded(self.above, Line("h2d", "gradient", "backward"))
        with self.mover.span(part, "h2d", j):
            x = self.mover.staged(self.inputs.stage, ids, Line("h2d", "feature", "backward"), part)
        with self.mover.span(part, COMPUTE, j):
            with self.precision(supply):
                rows = self.inputs.transformed(x, ids, supply.place.device, self.mover.ledger)
            backward_from(rows, above)


@dataclass
class MapBackwardPass(ChunkPass[Tensor | None]):
    """Adds the gradients of a map's parameters to the model, and those of the rows that it reads to the host's.

    Attributes:
        above: gradients of the mapped rows.
        sums: receives the gradients of the rows, which its nodes' own have been written to if it reads own rows; None if they are not
            needed.
    """

    rows: PassedRows
    above: KeptRows
    sums: KeptRows | None
    down = parts_down = differentiates = True

    def chunk(self, supply: Supply) -> Tensor | None:
        """Differentiates the map of a chunk's nodes; returns the gradients of the rows that it reads, if they are needed."""
        sums, index, layer = self.sums, self.rows.index, self.rows.layer
        above = supply.loaded(self.above, Line("h2d", "gradient", "backward", index))
        read = supply.loaded(self.rows.inputs, Line("h2d", "output", "backward", index))
        into = None if sums is None or layer.reads_own else sums.in_place(supply.ids, supply.place.device, "work")
        with self.computing(supply):
            return self._differentiated(self.model_on(supply).layers[index], read, above, into)

    def _differentiated(self, layer: Any, read: Tensor, above: Tensor, into: Tensor | None) -> Tensor | None:
        """Adds the gradient of the map's parameters; returns that of the rows, if it is needed, in `into` if that is given."""
        needed = self.sums is not None
        if self.passes.dtype != BF16:
            # A product has gradients that need none of its results: the map is not computed again.
            with torch.no_grad():
                add_gradient(layer.map_weight, summed_over_rows(above, read))
                return times_in(into, above, layer.map_weight.T) if needed else None
        read = read.detach().requires_grad_(needed)
        backward_from(widened(layer.project(read)), above)
        return read.grad

    def leave(self, supply: Supply, found: Tensor | None) -> None:
        """Moves the gradients of rows to the host, and adds them to those of own rows."""
        if self.sums is not None:
            assert found is not None
            leave = self.mover.add if self.rows.layer.reads_own else self.mover.store
            line = Line("d2h", "own_gradient", "backward", self.rows.index)
            leave(found, supply.ids, self.sums, line, supply.part, supply.step)


@dataclass
class HeadPass(ChunkPass[T]):
    """A pass of the head."""

    # The outputs that the head reads: of all layers if the model `jumps`, else of the last one.
    outputs: Sequence[KeptRows]
    # The nodes, bool[N].
    chosen: Array

    def nodes(self, part: int, j: int) -> Array:
        """Returns the chosen nodes of a chunk."""
        ids = super().nodes(part, j)
        return ids[self.chosen[ids]]

    def read(self, supply: Supply) -> list[Tensor]:
        """Returns the rows that the head reads for a chunk."""
        line = Line("h2d", "logit", "forward", len(self.passes.model.layers))
        return [supply.loaded(rows, line) for rows in self.outputs]

    def logits(self, supply: Supply, rows: list[Tensor]) -> Tensor:
        """Returns the logits of rows on a part's device."""
        with self.precision(supply):
            return widened(self.model_on(supply).head(rows))


@dataclass
class LogitsPass(HeadPass[Tensor]):
    """Keeps the logits of chosen nodes.

    Attributes:
        node_ids: ids[n], the chosen nodes of this rank's parts, distinct.
        kept: their logits; None before the first chunk.
    """

    node_ids: Array
    kept: KeptRows | None = None

    def chunk(self, supply: Supply) -> Tensor:
        """Returns the logits of a chunk's nodes."""
        return self.logits(supply, self.read(supply))

    def leave(self, supply: Supply, found: Tensor) -> None:
        """Moves them to the host."""
        self.kept = self.kept or self.passes.new_rows(found.shape[1], self.node_ids)
        line = Line("d2h", "logit", "forward", len(self.passes.model.layers))
        self.kept.store(supply.ids, self.mover.to_host(found, line, supply.part)())


@dataclass
class LossPass(HeadPass[tuple[float | Tensor, list[Tensor]]]):
    """Computes the losses of training nodes, and the gradients that the head gives to the outputs that it reads.

    Attributes:
        labels_of: returns the labels of nodes ids[n] (assets/tasks/labels.py).
        losses: number of a device -> the loss there.
        from_head: (ids, gradients float[c, F]) per chunk, for each of `outputs`.
    """

    labels_of: Callable[[Array], Array]
    losses: Mapping[int, Summed]
    total: float | Tensor = 0.0
    from_head: list[list[tuple[Array, Array]]] = field(default_factory=list)
    _of_parts: dict[int, float | Tensor] = field(default_factory=dict)
    differentiates = True

    def chunk(self, supply: Supply) -> tuple[float | Tensor, list[Tensor]]:
        """Returns the sum of the losses of a chunk's training nodes, and the rows that the head read, with their gradients."""
        leaves = [rows.requires_grad_() for rows in self.read(supply)]
        device = supply.place.device
        with self.mover.span(supply.part, COMPUTE, supply.step):
            logits = self.logits(supply, leaves)
            (labels,) = device.send([step_values(self.labels_of(supply.ids))], LABELS, self.mover.ledger)
            loss = self.losses[device.index](logits, torch.as_tensor(labels))
            loss.backward()
        return loss_value(loss), leaves

    def leave(self, supply: Supply, found: tuple[float | Tensor, list[Tensor]]) -> None:
        """Fetches the gradients, which wait on the host until the backward pass reaches their layer."""
        line = Line("d2h", "logit", "backward", len(self.passes.model.layers))
        self._of_parts[supply.part], leaves = found
        self.from_head = self.from_head or [[] for _ in leaves]
        for leaf, gradients in zip(leaves, self.from_head, strict=True):
            assert leaf.grad is not None
            # A copy, since on the CPU the device's memory is the host's.
            rows = self.mover.to_host(leaf.grad, line, supply.part)().numpy().copy()
            gradients.append((supply.ids, rows))

    def end(self, j: int) -> None:
        """Adds gradients and losses of all devices and ranks in the order of parts."""
        losses, self._of_parts, gradients = self._of_parts, {}, self.passes.gradients
        for loss in losses.values() if gradients is None else gradients.add(losses):
            self.total = self.total + loss
