"""The input rows of a full-graph pass's first layer: features, with dropout and projection on the device that has the chunk."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.rows.move_rows import place_rows
from kernels.types import Array
from trainers.devices.protocol import Device, kernel_array
from trainers.models.layer import LayeredModel
from trainers.models.masks import StepRandom
from trainers.models.precision import widened
from trainers.record.ledger import Ledger, Line
from trainers.rows.source import H2D, RowIds, TableSource
from trainers.techniques.fullgraph.host_rows import IDS


class InputRows:
    """The input rows of the first layer: features of nodes, with dropout and projection on the device.

    Args:
        table: the features.
        model: the model with the row-wise beginning.
        dtype: NumPy's name of the type of gathered rows.
        threads: number of the kernels' threads.
    """

    def __init__(self, table: TableSource, model: LayeredModel, dtype: str, threads: int):
        self.table, self.model, self.dtype, self.threads = table, model, getattr(torch, dtype), threads
        self.width = table.width if model.projection is None else model.projection.linear.out_features
        self.random = StepRandom(0)

    def stage(self, ids: Array, device: Device, ledger: Ledger) -> tuple[Tensor, int, int]:
        """Returns float[c, F], features of nodes on a device; then (rows, bytes) of them that crossed the link, which the caller books."""
        x = device.alloc((len(ids), self.table.width), self.dtype, "staged")
        moved, num_bytes = Ledger(), 0
        self.table.gather(RowIds(ids), x, moved)
        for row in moved.rows()["moves"]:
            line = Line(row["link"], row["kind"], row["phase"], row["layer"])
            if line == H2D:
                num_bytes = row["moved_bytes"]
            else:
                ledger.move(line, **{name: row[name] for name in ("requests", "asked_bytes", "moved_bytes")})
        return x, len(ids), num_bytes

    def features_of(self, ids: Array, device: Device, ledger: Ledger) -> Tensor:
        """Returns float[c, F] of nodes on the device, and books them as features."""
        x, num_rows, num_bytes = self.stage(ids, device, ledger)
        ledger.crossed(Line("h2d", "feature", "backward"), num_bytes, requests=num_rows)
        return x

    def transformed(self, x: Tensor, ids: Array, device: Device, ledger: Ledger) -> Tensor:
        """Returns the first layer's input rows: float[c, H] from the nodes' features x on the device."""
        drops = self.model.input_dropout or self.model.projection is not None
        return widened(self.model.input(x, device.send([ids], IDS, ledger)[0] if drops else ids, self.random))

    def finish(self, staged: Tensor, ids: Array, device: Device, ledger: Ledger) -> Tensor:
        """Returns the first layer's input rows from the nodes' features on the device, without a gradient."""
        with torch.no_grad():
            return self.transformed(staged, ids, device, ledger).contiguous()

    def load_into(self, ids: Array, out: Tensor, rows: Array | None, device: Device, ledger: Ledger) -> tuple[int, int]:
        """Writes the first layer's input rows of nodes to rows of a buffer; returns (rows, bytes) that crossed the link for it."""
        x, num_rows, num_bytes = self.stage(ids, device, ledger)
        x = self.finish(x, ids, device, ledger)
        places = None if rows is None else device.send([rows], IDS, ledger)[0]
        place_rows(kernel_array(x), None, kernel_array(out), places, self.threads)
        return num_rows, num_bytes
