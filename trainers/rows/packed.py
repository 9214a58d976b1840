"""Rows of stored batches from packed chunks: one sequential read of the chunk, ranges of pages of the segment's cache (DiskGNN, 5.3).

`PackedRows` is the feature source: `stage` loads the rows of a batch that lie on disk, `gather` puts them together with those of the
static tiers on the device and the host.

A chunk lands in a page-aligned buffer of a pool, is compared with its digest, and says by its slots where each input is. Rows of the
segment's cache follow its packed rows in the same buffer, so that all rows of a batch that come from disk are one tier: `STAGED`. Every
page of the cache that arrives is compared with its digest before a row is taken from it.

A loader has few bytes in flight, two pieces of a chunk: one is digested while the other comes. With whole chunks in flight
the disk was slower, and so was the digest of memory that had left the processor's cache (docs/log.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from assets.packed_chunks.read import ChunkPlace, Chunks, Extent, damaged, staging_capacity
from assets.storage.read_verified import read_rows, read_table
from assets.storage.table import FeatureTable
from kernels.cuda.device import device_of
from kernels.errors import InputError
from kernels.rows.aligned import AlignedBuffer, BufferPool, space_for
from kernels.rows.direct_io import DirectFile, Moved, PageReader, ReadExecution
from kernels.rows.gather import gather_tiered
from kernels.rows.pages import PAGE_BYTES, chunk_digest, padded_bytes
from kernels.rows.slots import DEVICE, HOST, NO_FEATURES, ROW_BITS, Tiers
from kernels.types import Array
from trainers.devices.protocol import CACHE, Device, kernel_array
from trainers.record.ledger import Ledger, Line
from trainers.rows.source import D2D, H2D, SLOTS, Keyed, Wanted, fill_rows

FEATURES, ADDRESSES = Line("disk", "feature"), Line("disk", "ids")
WINDOW_BYTES = 1 << 20
"""What a loader has in flight."""


def loader_reading(window_bytes: int = WINDOW_BYTES, **options: Any) -> ReadExecution:
    """Returns how a loader reads: two pieces of a chunk in flight, or as many runs of a cache as fit.

    Args:
        window_bytes: in flight at most, two pages or more.
        options: method, fallback and depth of `ReadExecution`.

    Raises:
        InputError: a value is out of its range.
    """
    return ReadExecution(window_bytes=window_bytes, piece_bytes=window_bytes // 2 // PAGE_BYTES * PAGE_BYTES, **options)


@dataclass(kw_only=True)
class Staged:
    """Rows of one batch on their way to the device.

    Attributes:
        slots: i32[n], where each input's row is; the staged tier is `rows`.
        rows: dtype[r, F], packed rows first, then cached ones.
        ledger: what was read for them.
    """

    slots: Array
    rows: Array
    ledger: Ledger
    buffer: AlignedBuffer

    def release(self) -> None:
        """Gives the memory back; slots and rows are gone then."""
        self.buffer.release()


class PackedRows:
    """Rows of stored batches, from packed chunks and from the static tiers of their cache plan.

    Args:
        chunks: the artifact, with its plan.
        table: the feature table that the rows are of.
        num_batches: mini-batches per epoch.
        device: holds the device image.
        pool_bytes: bound on staging buffers that are kept for the next batch.
        reading: how files are read.
        threads: of the gather.
    """

    collective, slotted = False, False

    def __init__(
        self,
        chunks: Chunks,
        table: FeatureTable,
        *,
        num_batches: int,
        device: Device,
        pool_bytes: int,
        reading: ReadExecution,
        threads: int = 1,
    ):
        self.chunks, self.device, self.num_batches, self.threads = chunks, device, num_batches, threads
        self.width, self.dtype, self.row_bytes = table.width, table.dtype, table.row_bytes
        self._pool, self._reading = BufferPool(pool_bytes, device.pin if device.remote else None), reading
        self._free: list[ChunkLoader] = []
        image = chunks.device_image
        self._device_rows = device.alloc((image.num_rows, self.width), np.dtype(image.dtype), CACHE)
        if device.remote:
            fill_rows(self._device_rows, read_table(image), device)
        else:
            read_rows(image, [(np.arange(image.num_rows), kernel_array(self._device_rows))])
        self._host_rows = read_table(chunks.host_image)
        device.pin(self._host_rows)

    def mark(self, node_ids: Array, out: Array) -> None:
        """Has no slots for nodes: a chunk says where the rows of its own batch are."""
        raise AssertionError("packed rows are found by their batch, not by node ids")

    def num_bytes(self, batch: Keyed) -> int:
        """Returns the bytes that staging a batch takes."""
        return space_for(staging_capacity(self.chunks.place(self._number(batch)), self.row_bytes))

    def stage(self, batch: Keyed) -> Staged:
        """Loads the rows of a batch that lie on disk; any number of threads may stage different batches.

        Raises:
            InputError: a read failed or ended early, or what was read does not match its digest.
        """
        try:
            loader = self._free.pop()
        except IndexError:  # all are in use
            loader = ChunkLoader(self.chunks, self.width, self.dtype, self.row_bytes, self._pool, self._reading)
        try:
            return loader.load(self._number(batch))
        finally:
            self._free.append(loader)

    def gather(self, batch: Wanted, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes row i of out: float[n, F] from the batch's staged rows and the static tiers, and books what staging and this moved."""
        staged: Staged = batch.staged
        tiers = Tiers(device=kernel_array(self._device_rows), host=self._host_rows, staged=staged.rows)
        gather_tiered(staged.slots, tiers, kernel_array(out), threads=self.threads)
        if self.device.remote:
            # The buffer that rows and slots lie in is lent to the next batch when this returns.
            device_of(out).synchronize()
            ledger.move(SLOTS, requests=1, asked_bytes=staged.slots.nbytes, moved_bytes=staged.slots.nbytes)
        tier = staged.slots >> ROW_BITS
        device, host, without = (int(np.count_nonzero(tier == each)) for each in (DEVICE, HOST, NO_FEATURES))
        if without:
            ledger.count("without_features", 0, without)
        ledger.merge(staged.ledger)
        ledger.count("hits_device", 0, device)
        ledger.count("hits_host", 0, host)
        for line, num_rows in ((D2D, device), (H2D, host + len(staged.rows))):
            if num_rows:
                num_bytes = num_rows * self.row_bytes
                ledger.move(line, requests=1, asked_bytes=num_bytes, moved_bytes=num_bytes)

    def close(self) -> None:
        """Closes the files; nothing may be staged meanwhile."""
        while self._free:
            self._free.pop().close()

    def _number(self, batch: Keyed) -> int:
        """Returns a batch's number among all stored ones."""
        return batch.key.epoch * self.num_batches + batch.key.step


class ChunkLoader:
    """Reads the rows of batches; belongs to one thread.

    Args:
        chunks: the artifact.
        width, dtype, row_bytes: of the feature table.
        pool: lends the buffers.
        execution: how files are read.
    """

    def __init__(
        self, chunks: Chunks, width: int, dtype: str, row_bytes: int, pool: BufferPool, execution: ReadExecution
    ):
        self.chunks, self.width, self.dtype, self.row_bytes, self.pool = chunks, width, dtype, row_bytes, pool
        self.reader = PageReader(execution)
        self._files: dict[str, DirectFile] = {}

    def num_bytes(self, number: int) -> int:
        """Returns the bytes that staging a batch takes."""
        return space_for(staging_capacity(self.chunks.place(number), self.row_bytes))

    def load(self, number: int) -> Staged:
        """Returns the rows of a batch.

        Args:
            number: epoch * batches per epoch + step.

        Raises:
            InputError: a read failed or ended early, or the chunk does not match its digest.
        """
        place = self.chunks.place(number)
        buffer = self.pool.take(staging_capacity(place, self.row_bytes))
        try:
            return self._load(place, buffer)
        except BaseException:
            buffer.release()
            raise

    def close(self) -> None:
        """Closes the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _load(self, place: ChunkPlace, buffer: AlignedBuffer) -> Staged:
        ledger, row_bytes = Ledger(), self.row_bytes
        content, moved = self._read_chunk(place, buffer.data)
        slots, places, packed = place.sections(row_bytes)
        asked = packed.stop - packed.start
        ids_bytes = slots.stop + places.stop - places.start
        ledger.move(ADDRESSES, requests=0, asked_bytes=ids_bytes, moved_bytes=packed.start)
        ledger.move(FEATURES, requests=moved.requests, asked_bytes=asked, moved_bytes=int(padded_bytes(asked)))
        end = packed.stop + place.num_cached * row_bytes
        rows = buffer.data[packed.start : end].reshape(-1, row_bytes)
        if place.num_cached:
            # The rows may lie over the end of what was read, never over the places.
            moved = self._read_cached(place, content[places].view(np.int32).copy(), rows[place.num_packed :])
            ledger.move(FEATURES, requests=moved.requests, asked_bytes=moved.asked_bytes, moved_bytes=moved.moved_bytes)
        ledger.count("hits_packed", 0, place.num_packed)
        ledger.count("hits_disk_cache", 0, place.num_cached)
        typed = rows.reshape(-1).view(self.dtype).reshape(-1, self.width)
        return Staged(slots=content[slots].view(np.int32), rows=typed, ledger=ledger, buffer=buffer)

    def _read_chunk(self, place: ChunkPlace, out: Array) -> tuple[Array, Moved]:
        """Reads and checks a chunk; returns u8[bytes], a view of `out`, and what moved."""
        extent = place.extent
        try:
            digests = np.empty(extent.num_bytes // PAGE_BYTES, np.uint64)
            file, where = self._open(extent), (extent.offset, extent.num_bytes)
            content, moved = self.reader.read_chunk(file, *where, out, digests=digests)
            if chunk_digest(digests) != place.digest:
                raise InputError("it does not match its digest")
        except InputError as error:
            what = f"the chunk of batch {place.number}: {error.problem}"
            raise damaged(self.chunks.artifact, extent, what) from error
        return content, moved

    def _read_cached(self, place: ChunkPlace, wanted: Array, out: Array) -> Moved:
        """Reads rows `wanted` of the segment's cache to out: u8[c, row_bytes]."""
        file, offset, digests = self._open(place.cache), place.cache.offset, place.cache_digests
        try:
            _, moved = self.reader.read_rows(
                file, wanted, row_bytes=self.row_bytes, offset=offset, out=out, digests=digests
            )
        except InputError as error:
            what = f"the disk cache of batch {place.number}'s segment: {error.problem}"
            raise damaged(self.chunks.artifact, place.cache, what) from error
        return moved

    def _open(self, extent: Extent) -> DirectFile:
        path = str(extent.path)
        if path not in self._files:
            self._files[path] = self.reader.open(path)
        return self._files[path]
