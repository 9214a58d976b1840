"""Rows of stored batches from packed chunks, and from the static tiers of their cache plan (DiskGNN, 5.3).

`PackedRows` is the feature source: `stage` loads the rows of a batch that are on disk (trainers/rows/packed_loader.py), `gather` joins them
with those of the static tiers on the device and the host.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from copy import copy

import numpy as np
import torch

from graphmill.assets.packed_chunks.read import PackedChunks, staging_capacity
from graphmill.assets.storage.local.read_verified import read_rows, read_table
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.rows.aligned import BufferPool, space_for
from graphmill.kernels.rows.direct_io import ReadExecution
from graphmill.kernels.rows.gather import gather_tiered
from graphmill.kernels.rows.slots import DEVICE, HOST, NO_FEATURES, ROW_BITS, Tiers
from graphmill.kernels.types import Array, BatchKey
from graphmill.trainers.devices.protocol import CACHE, Device, kernel_array
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.packed_loader import PackedLoader, Staged
from graphmill.trainers.rows.source import D2D, H2D, FeatureSource, RowRequest, copied_rows


class PackedRows(FeatureSource):
    """Rows of stored batches, from packed chunks and from the static tiers of their cache plan.

    Args:
        chunks: the artifact of packed chunks, with its cache plan.
        pool_bytes: bound on the bytes of staging buffers that are kept for the next batch.

    Attributes:
        device_rows: dtype[D, F], the image on the device.
    """

    tiered = True

    def __init__(
        self,
        chunks: PackedChunks,
        table: FeatureTable,
        *,
        device: Device,
        pool_bytes: int,
        reading: ReadExecution,
        threads: int = 1,
    ):
        self.chunks, self.device, self.threads = chunks, device, threads
        self.width, self.dtype, self.row_bytes = table.width, table.dtype, table.row_bytes
        self._pool, self._reading = BufferPool(pool_bytes, device.pin), reading
        self._free: list[PackedLoader] = []
        image = chunks.device_image
        self.device_rows = device.alloc((image.num_rows, self.width), np.dtype(image.dtype), CACHE)
        with device.filling(kernel_array(self.device_rows)) as rows:
            read_rows(image, [(np.arange(image.num_rows), rows)])
        self._host_rows = read_table(chunks.host_image)
        device.pin(self._host_rows)

    def beside(self, device: Device, device_bytes: int | None = None) -> PackedRows:
        """Returns a source with a copy of the device image on another device; see `FeatureSource`. Staged rows suppose all of the image."""
        made = copy(self)
        made.device, made.device_rows = device, copied_rows(self.device_rows, device)
        return made

    def staged_bytes(self, key: BatchKey) -> int:
        """Returns the bytes that staging a batch takes."""
        return space_for(staging_capacity(self.chunks.place(self._number(key)), self.row_bytes))

    def stage(self, key: BatchKey, origin: Array | None = None) -> Staged:
        """Loads the rows of a batch that are on disk; any number of threads may stage different batches.

        Raises:
            InputError: a read failed or ended early, or its bytes do not match their digest.
        """
        with self._loader() as loader:
            return loader.load(self._number(key), origin)

    def stage_windows(
        self, key: BatchKey, origin: Array, num_rows: int
    ) -> Generator[tuple[Array | slice, Staged], None, None]:
        """Yields (places among `origin`, their staged rows), in the order of the file; see `FeatureSource`. Errors are those of `stage`."""
        with self._loader() as loader:
            yield from loader.windows(self._number(key), origin, num_rows)

    @contextmanager
    def _loader(self) -> Iterator[PackedLoader]:
        """Lends a loader that no other thread has."""
        try:
            loader = self._free.pop()
        except IndexError:  # all are in use
            loader = PackedLoader(self.chunks, self.width, self.dtype, self.row_bytes, self._pool, self._reading)
        try:
            yield loader
        finally:
            self._free.append(loader)

    def gather(self, batch: RowRequest, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes row i of out: float[n, F] from the batch's staged rows and the static tiers, and books the transfers of both."""
        staged: Staged = batch.staged
        tiers = Tiers(device=kernel_array(self.device_rows), host=self._host_rows, staged=staged.rows)
        ledger.carried(gather_tiered(staged.slots, tiers, kernel_array(out), threads=self.threads), "ids")
        if on_device(out):
            # The buffer of rows and slots is lent to the next batch when this returns.
            device_of(out).synchronize()
        tier = staged.slots >> ROW_BITS
        device, host, without = (int(np.count_nonzero(tier == each)) for each in (DEVICE, HOST, NO_FEATURES))
        if without:
            ledger.count("without_features", 0, without)
        ledger.merge(staged.ledger)
        ledger.count("hits_device", 0, device)
        ledger.count("hits_host", 0, host)
        for line, num_rows in ((D2D, device), (H2D, host + len(staged.rows))):
            if num_rows:
                ledger.crossed(line, num_rows * self.row_bytes)

    def close(self) -> None:
        """Closes the files; no thread may stage meanwhile."""
        while self._free:
            self._free.pop().close()

    def _number(self, key: BatchKey) -> int:
        """Returns a batch's number among all stored ones."""
        return self.chunks.number(key.epoch, key.step)
