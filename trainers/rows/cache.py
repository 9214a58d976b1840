"""A cache of hot feature rows in front of a table: two tiers by a static placement, and the table behind them (FGNN section 6).

    tier      rows                              a row of a batch costs
    device    one array beside the model        nothing on the link: booked as d2d
    host      one array in memory               its bytes on the link: h2d
    behind    the table, mapped or in memory    its bytes on the link: h2d; a mapped file's asked bytes as well

Every row of a batch comes from exactly one of them, by one gather that writes each output row once. A sampler thread finds the slot of each
row with one read of an int32[N]; nodes without features have a slot of their own, take no space and cost nothing. Rows behind the cache
take the slots of the staged tier, whose array is the table itself; a table of more rows than a slot can name is really staged, through a
buffer of the batch's missing rows, and so is one that is read past the page cache (trainers/rows/direct.py).

Both images are filled in one sequential pass over the table that verifies every block it reads. Peak memory: the images, a block of 1 MiB,
4 bytes per node, and 4 more while the slots are made.

Rows of stored batches from packed chunks, and from the static tiers of their cache plan (DiskGNN, 5.3).

`PackedRows` is the feature source: `stage` loads the rows of a batch that are on disk (trainers/rows/packed_loader.py), `gather` joins them
with those of the static tiers on the device and the host.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from graphmill.assets.packed_chunks.read import PackedChunks, staging_capacity
from graphmill.assets.storage.local.read_verified import read_rows, read_table
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.rows.aligned import BufferPool, space_for
from graphmill.kernels.rows.direct_io import ReadExecution
from graphmill.kernels.rows.gather import gather_tiered
from graphmill.kernels.rows.gather_cuda import gather_tiered_cuda
from graphmill.kernels.rows.placement import Placement
from graphmill.kernels.rows.slots import (
    DEVICE,
    ELSEWHERE,
    HOST,
    MAX_ROWS,
    NO_FEATURES,
    ROW_BITS,
    STAGED,
    Tiers,
    make_slots,
)
from graphmill.kernels.types import Array, BatchKey
from graphmill.trainers.devices.protocol import CACHE, Device, kernel_array
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.packed_loader import PackedLoader, Staged
from graphmill.trainers.rows.source import (
    D2D,
    H2D,
    FeatureSource,
    RowRequest,
    SentOnce,
    TableSource,
    book_tiers,
    copied_rows,
    wanted_slots,
)


class CachedSource(FeatureSource):
    """Rows by slot from a device image, a host image and the table behind them.

    Args:
        behind: the same table, mapped or in memory, for the rows of neither tier.
        device: the device that books its image against its cache budget.
        max_rows: most rows of a table that is gathered from in place.
    """

    slotted = tiered = True

    def __init__(
        self, table: FeatureTable, behind: TableSource, placement: Placement, device: Device, max_rows: int = MAX_ROWS
    ):
        self.behind, self.device = behind, device
        self.width, self.dtype, self.row_bytes = behind.width, behind.dtype, behind.row_bytes
        self.at_hand = behind.at_hand
        # The array below is a view of it; the device books the bytes for as long as the tensor lives.
        self.device_rows = device.alloc((len(placement.device_ids), self.width), behind.rows.dtype, CACHE)
        readable = behind.pinned or not on_device(self.device_rows)
        self.in_place = behind.in_place and table.num_rows <= max_rows and readable
        host_image = device.host_array((len(placement.host_ids), self.width), behind.rows.dtype)
        with device.filling(kernel_array(self.device_rows)) as device_image:
            images = ((placement.device_ids, device_image), (placement.host_ids, host_image))
            read_rows(table, [(table.rows_of(node_ids), image) for node_ids, image in images])
        self.host_bytes = host_image.nbytes
        self._tiers = {"device": kernel_array(self.device_rows), "host": host_image}
        self._table = table
        self._place(placement)

    def _place(self, placement: Placement) -> None:
        slot = placement.slot
        # Whether the tiers have all rows, so that nothing is read from behind them.
        self._whole = not any((slot[low:high] == ELSEWHERE).any() for low, high in node_ranges(len(slot)))
        if self.in_place:
            slot = slot.copy()
            for low, high in node_ranges(len(slot)):
                elsewhere = low + np.flatnonzero(slot[low:high] == ELSEWHERE)
                slot[elsewhere] = make_slots(STAGED, self._table.rows_of(elsewhere))
        # A prefix makes rows `ELSEWHERE` again, and they come here once more; so one array of slots is kept.
        self.placement, self._slot, self._slot_there = replace(placement, slot=slot), slot, SentOnce()

    def prefix(self, device_bytes: int) -> CachedSource:
        """Returns a source whose device holds at most `device_bytes` bytes of rows, the hottest ones; the images are shared."""
        made = copy(self)
        device_rows = device_bytes // self.row_bytes if self.row_bytes else len(self.placement.device_ids)
        made._place(self.placement.prefix(device_rows, len(self.placement.host_ids)))
        return made

    def beside(self, device: Device, device_bytes: int | None = None) -> CachedSource:
        """Returns a source with a copy of the device image, or of its hottest rows, on another device; see `FeatureSource`."""
        made = copy(self) if device_bytes is None else self.prefix(device_bytes)
        image = self.device_rows[: len(made.placement.device_ids)]
        made.device, made.device_rows, made._slot_there = device, copied_rows(image, device), SentOnce()
        made._tiers = self._tiers | {"device": made.device_rows}
        return made

    def mark(self, node_ids: Array, out: Array) -> None:
        """Writes slot i of out: i32[n] for node_ids[i] (global)."""
        np.take(self._slot, node_ids, out=out)

    def gather(self, batch: RowRequest, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes row i of out: float[n, F] from batch.input_ids[i], each from its tier, and books bytes and hits by tier."""
        slots, tiers = self._found(batch.input_ids, batch.slots, ledger)
        ledger.carried(gather_tiered(slots, tiers, kernel_array(out), threads=self.behind.threads), "ids")
        if on_device(out) and not self.in_place and len(tiers.staged):
            device_of(out).synchronize()  # the staged rows are lent to another batch after this call

    def in_memory(self, node_ids: Array, ledger: Ledger) -> tuple[Array, Tiers] | None:
        """As `FeatureSource.in_memory`."""
        return self._found(node_ids, None, ledger) if self.in_place else None

    def _found(self, node_ids: Array, slots: Array | None, ledger: Ledger) -> tuple[Array, Tiers]:
        """Books rows; returns slots i32[n] and the tiers that they name, with the rows of no tier staged; `slots` are those of `mark`."""
        if slots is None:
            slots = np.empty(len(node_ids), np.int32)
            self.mark(node_ids, slots)
        staged, verified = self.behind.rows, self.behind.verified
        if not self.in_place:
            slots, staged = self._staged(node_ids, slots, ledger)
        elif (
            verified is not None and verified.pending
        ):  # blocks behind the cache are about to be read for the first time
            verified.require(slots[slots >> ROW_BITS == STAGED] & ((1 << ROW_BITS) - 1))
        # One more than the tier: rows of nodes without features have no tier, and cost nothing.
        self._book(np.bincount((slots >> ROW_BITS) + 1, minlength=STAGED + 2).tolist(), ledger)
        return slots, Tiers(**self._tiers, staged=staged)

    @property
    def finds(self) -> bool:
        """Whether every row is in a tier that the device reads."""
        return self._whole or (self.in_place and self.behind.pinned)

    def gather_found(
        self, node_ids: Any, out: torch.Tensor, ledger: Ledger, device: Device, wanted: torch.Tensor | None = None
    ) -> None:
        """Writes row i of out from node_ids[i]; the table of slots is sent to the device with the first batch, 4 bytes per node."""
        if not self.finds:
            super().gather_found(node_ids, out, ledger, device, wanted)
            return
        slots = self._slot_there.on(device, self._slot)[node_ids.long()]
        tiers = Tiers(**self._tiers, staged=self.behind.rows if self.in_place else None)
        gather_tiered_cuda(wanted_slots(slots, wanted), tiers, out, device_of(out), trusted=True)
        book_tiers(slots, device, ledger, self._book, wanted)

    def _staged(self, node_ids: Array, slots: Array, ledger: Ledger) -> tuple[Array, Array]:
        """Copies the rows that are in no tier into a buffer, and returns the slots that point into it, and the buffer."""
        missing = np.flatnonzero(slots == ELSEWHERE)
        self.behind.require(node_ids[missing])
        rows = self.device.staging((len(missing), self.width), self.behind.rows.dtype)
        self.behind.copy_rows(self._table.rows_of(node_ids[missing]), rows, ledger)
        slots = slots.copy()
        slots[missing] = make_slots(STAGED, np.arange(len(missing)))
        return slots, rows

    def _book(self, counts: list[int], ledger: Ledger) -> None:
        device, host, behind, without = (counts[tier + 1] for tier in (DEVICE, HOST, STAGED, NO_FEATURES))
        _book_static(ledger, self.row_bytes, device, host, without)
        ledger.count("misses", 0, behind)
        if behind:
            self.behind.book(behind, ledger)


@dataclass(frozen=True, kw_only=True)
class Features:
    """The feature rows of a run."""

    # The table of the file.
    stored: FeatureTable
    # Every row, uncached and without a link; evaluation reads it. A `TableSource`, unless ranks have parts of the rows.
    table: Any
    # The source that training gathers from.
    source: FeatureSource
    # The device that holds the cached rows, and the work while a workspace is set.
    device: Device
    # Facts about the cache, for run.json; empty without a cache.
    record: dict[str, Any] = field(default_factory=dict)
    # Function that makes a cached source from an order of hotness (ids[N], hottest first) within the run's budgets, for a technique
    # that counts visits itself; None without budgets, or if the cache is filled already. For several devices it is called once for each
    # `device`, with their number `devices`, which share the host's budget; `most` is the number of rows that it reads at all, and
    # `step_bytes` the peak of a step, if that is known without a simulated one. All ranks call it.
    fill: Callable[..., CachedSource] | None = None


def _book_static(ledger: Ledger, row_bytes: int, device: int, host: int, without: int, staged: int = 0) -> None:
    """Books the rows of a batch in static tiers, the inputs without features, and the staged rows that cross the link beside them."""
    if without:
        ledger.count("without_features", 0, without)
    ledger.count("hits_device", 0, device)
    ledger.count("hits_host", 0, host)
    for line, num_rows in ((D2D, device), (H2D, host + staged)):
        if num_rows:
            ledger.crossed(line, num_rows * row_bytes)


class PackedRows(FeatureSource):
    """Rows of stored batches, from packed chunks and from the static tiers of their cache plan.

    Attributes:
        device_rows: dtype[D, F], the image on the device.
    """

    tiered = True

    def __init__(
        self, chunks: PackedChunks, table: FeatureTable, *, device: Device, reading: ReadExecution, threads: int = 1
    ):
        self.chunks, self.device, self.threads = chunks, device, threads
        self.width, self.dtype, self.row_bytes = table.width, table.dtype, table.row_bytes
        self._pool, self._reading = BufferPool(device.pin), reading
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
        """Loads the rows of a batch that are on disk, on any thread; raises InputError if a read fails or does not match its digest."""
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
        ledger.merge(staged.ledger)
        _book_static(ledger, self.row_bytes, device, host, without, len(staged.rows))

    def close(self) -> None:
        """Closes the files; no thread may stage meanwhile."""
        while self._free:
            self._free.pop().close()

    def _number(self, key: BatchKey) -> int:
        """Returns a batch's number among all stored ones."""
        return self.chunks.number(key.epoch, key.step)
