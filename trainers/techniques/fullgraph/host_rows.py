"""Rows of all nodes on the host that a full-graph pass reads and writes in any order: outputs of layers, cached aggregates, gradients.

They are in memory, which a device with memory of its own reads over the bus, or in an unnamed file that is mapped if memory is short; the
file disappears with the process. If ranks share the parts, each has the rows of the nodes of its own parts alone.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphmill.assets.storage.filesystem import reporting_full_disk
from graphmill.kernels.cuda.device import device_of
from graphmill.kernels.rows.gather import gather
from graphmill.kernels.rows.move_rows import add_rows, place_rows
from graphmill.kernels.types import Array
from graphmill.trainers.devices.protocol import Device, kernel_array
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.techniques.fullgraph.in_place import rows_in_place

IDS = Line("h2d", "ids")


class HostRows:
    """Rows of all nodes.

    Args:
        num_rows, width, dtype: N, F and the NumPy type.
        device: a device that reads them.
        folder: folder of the file; None for memory.
        threads: number of the kernels' threads.
        lends: whether rows may be read where they are; not by layers that might write to what they read.
        places: i32[all nodes], the row of each node that this rank has, if ranks share the nodes; then N is the number of these.

    Attributes:
        sharded: whether other ranks have the rows of other nodes.

    Raises:
        InputError: the disk has no space.
    """

    def __init__(
        self,
        num_rows: int,
        width: int,
        dtype: Any,
        device: Device,
        folder: Path | None,
        threads: int,
        lends: bool = True,
        places: Array | None = None,
    ):
        self.width, self.threads, self.lends = width, threads, lends
        self.places, self.sharded = places, places is not None
        self.row_bytes = width * np.dtype(dtype).itemsize
        self.mapped = folder is not None
        if folder is None:
            self.values: Array = device.host_array((num_rows, width), dtype)
            return
        num_bytes = max(1, num_rows * self.row_bytes)
        folder.mkdir(parents=True, exist_ok=True)
        self.file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        with reporting_full_disk(folder, num_bytes):
            os.posix_fallocate(self.file.fileno(), 0, num_bytes)
        self.values = np.memmap(self.file, dtype, mode="r+", shape=(num_rows, width))

    def load(self, ids: Array, device: Device, ledger: Ledger, out: Tensor, places: Array | None) -> tuple[Tensor, int]:
        """Writes the rows of nodes to rows of a tensor on a device.

        Args:
            ids: ids[c], the nodes; at least one.
            device: the device.
            ledger: receives the lists' transfer; the caller books the rows', since it knows their purpose.
            out: float[R, F] on the device.
            places: i32[c], rows of `out`; None for all in order.

        Returns:
            `out`, and the bytes that crossed the link for it.
        """
        ids = self._rows_of(ids)
        lists = [ids] if places is None else [ids, places]
        if not device.remote:
            place_rows(self.values, ids, kernel_array(out), places, self.threads)
        elif not self.mapped:
            sent = device.send(lists, IDS, ledger)
            place_rows(self.values, sent[0], out, None if places is None else sent[1])
        else:
            # A device cannot read the pages of a file: they go through memory that it can read.
            staged = device.staging((len(ids), self.width), self.values.dtype)
            gather(self.values, ids, staged, threads=self.threads)
            place_rows(staged, None, out, None if places is None else device.send([places], IDS, ledger)[0])
            device_of(out).synchronize()  # the staged rows are lent again after this call
        return out, len(ids) * self.row_bytes

    def stage(self, ids: Array, device: Device, ledger: Ledger) -> tuple[Tensor, int]:
        """Returns float[c, F], the rows of nodes on a device, in place or in a separate tensor; then the bytes that cross for it."""
        found = self.in_place(ids, device)
        if found is not None:
            return found, len(ids) * self.row_bytes
        out = device.alloc((len(ids), self.width), self.values.dtype, "staged")
        return self.load(ids, device, ledger, out, None)

    def in_place(self, ids: Array, device: Device, purpose: str = "staged") -> Tensor | None:
        """Returns float[c, F], the rows of nodes where they are, to be read or written; None if a device needs a copy."""
        return rows_in_place(self.values, self._rows_of(ids), device, purpose) if self.lends else None

    def loads_to(self, device: Device) -> bool:
        """Returns whether `load` writes rows to their places on a device; it always does."""
        return True

    def finish(self, staged: Tensor, ids: Array, device: Device, ledger: Ledger) -> Tensor:
        """Returns staged rows as they are."""
        return staged

    def store(self, ids: Array, rows: Tensor) -> None:
        """Writes rows, float[c, F] on the host, as those of nodes; results that were made in place are there already."""
        ids = self._rows_of(ids)
        if len(ids) and rows.data_ptr() == self.values[ids[0]].ctypes.data:
            return
        place_rows(rows.contiguous().numpy(), None, self.values, ids, self.threads)

    def add(self, ids: Array, rows: Tensor) -> None:
        """Adds rows, float[c, F] on the host, to those of nodes, which are distinct."""
        add_rows(rows.contiguous().numpy(), None, self.values, self._rows_of(ids), self.threads)

    def copied(self, ids: Array) -> Array:
        """Returns float[c, F], a copy of the rows of nodes on the host."""
        out = np.empty((len(ids), self.width), self.values.dtype)
        place_rows(self.values, self._rows_of(ids), out, None, self.threads)
        return out

    def _rows_of(self, ids: Array) -> Array:
        """Returns the rows of nodes, which this rank has."""
        return ids if self.places is None else self.places[ids]
