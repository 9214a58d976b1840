"""The sources of input rows: `FeatureSource`s.

A source marks the slot of each row (pure, on sampler threads), stages rows that need blocking I/O, and writes the batch's rows in one
gather that also converts to the model's dtype. This file has the two without a cache, the whole table in memory and the table as a mapped
file, and a link of a set speed in front of any source. trainers/rows/cache.py has caches before a table, and rows of stored batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from graphmill.assets.storage.files.arrays import expect_random_reads
from graphmill.assets.storage.files.verified import VerifiedRows
from graphmill.assets.storage.local.read_verified import read_table
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.kernels.cuda.device import CudaDevice, device_of, on_device
from graphmill.kernels.rows.gather import gather, gather_tiered
from graphmill.kernels.rows.gather_cuda import gather_tiered_cuda
from graphmill.kernels.rows.slots import HOST, MAX_ROWS, NO_FEATURES, ROW_BITS, STAGED, TIER_NAMES, Tiers, make_slots
from graphmill.kernels.types import Array, BatchKey
from graphmill.trainers.devices.link import Link
from graphmill.trainers.devices.protocol import CACHE, Device, kernel_array
from graphmill.trainers.record.ledger import Ledger, Line

H2D, D2D, MAPPED = Line("h2d", "feature"), Line("d2d", "feature"), Line("mapped", "feature")
SLOTS, COUNTS = Line("h2d", "ids"), Line("d2h", "ids")
COPIED_BYTES = 64 << 20
"""Bytes of cached rows that are copied to another device at a time."""


class RowRequest(Protocol):
    """A request for rows; a `MiniBatch` is one.

    Attributes:
        input_ids: ids[n], the nodes (global).
        slots: i32[n], written by `mark`, or None.
        staged: the result of `stage`, or None.
    """

    @property
    def input_ids(self) -> Any: ...  # noqa: D102
    @property
    def slots(self) -> Any: ...  # noqa: D102
    @property
    def staged(self) -> Any: ...  # noqa: D102


class RowIds(NamedTuple):
    """Rows of nodes that form no mini-batch."""

    input_ids: Any
    slots: Any = None
    staged: Any = None


class SentOnce:
    """An array of the host that each device gets once, whichever of its threads asks first."""

    def __init__(self):
        self._there: dict[torch.device, torch.Tensor] = {}
        self._lock = threading.Lock()

    def on(self, device: Device, array: Array) -> torch.Tensor:
        """Returns i32[n] on a device; the copy is complete, for any stream."""
        with self._lock:
            if (found := self._there.get(device.torch_device)) is None:
                (found,) = device.send([np.asarray(array).astype(np.int32)], SLOTS, device.traffic)
                device_of(found).synchronize()  # the streams of other threads will read it
                self._there[device.torch_device] = found
        return found


class FeatureSource(Protocol):
    """The interface of a source of feature rows.

    Attributes:
        width, dtype, row_bytes: columns, stored NumPy dtype and stored bytes of a row.
        collective: whether every rank must call for every batch, in order, from one thread.
        slotted: whether rows are found by the slots that `mark` writes; otherwise they are found by node id, without marking.
        tiered: whether `gather` counts every row by the tier that it came from.
        held_bytes: bytes of the rows that this process holds for all ranks.
        cached_rows: number of rows of other ranks that are kept here.
        at_hand: whether the step's threads gather rows between steps, since they come without a wait and no core is idle meanwhile.
        finds: whether a device with memory of its own reads every row in place, so that `gather_found` sends it no rows.
    """

    width: int
    dtype: str
    row_bytes: int
    collective: bool = False
    slotted: bool = False
    tiered: bool = False
    held_bytes: int = 0
    cached_rows: int = 0
    at_hand: bool = False

    @property
    def finds(self) -> bool:  # noqa: D102
        return False

    def mark(self, node_ids: Array, out: Array) -> None:
        """Writes slot i of out: i32[n] for node_ids[i] (global), by default the id. Pure, so any thread may call it."""
        out[...] = node_ids

    def staged_bytes(self, key: BatchKey) -> int:
        """Returns the bytes that the result of `stage` takes for a batch."""
        return 0

    def stage(self, key: BatchKey, origin: Array | None = None) -> Any:
        """Loads a batch's inputs at i32[s] ascending places, None for all, from slow storage, on any thread; None if there are none."""
        return None

    def stage_windows(
        self, key: BatchKey, origin: Array, num_rows: int
    ) -> Generator[tuple[Array | slice, Any], None, None]:
        """Yields (places among `origin`, result of `stage` for these inputs): each place once, at most `num_rows` at a time.

        Args:
            origin: i32[s], ascending, the places of the wanted inputs.
        """
        for low in range(0, len(origin), num_rows):
            part = slice(low, min(low + num_rows, len(origin)))
            yield part, self.stage(key, origin[part])

    def gather(self, batch: RowRequest, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes row i of out: float[n, F] from batch.input_ids[i], converted to out's dtype, and books the bytes.

        Args:
            batch: the request; a slotted source marks its rows here if it has no slots.
            out: float[n, F] on the device that trains.
        """
        ...

    def in_memory(self, node_ids: Array, ledger: Ledger) -> tuple[Array, Tiers] | None:
        """Returns where rows lie in this machine's memory, and books them as `gather` does; None if they have to be brought there.

        Args:
            node_ids: ids[n], global.

        Returns:
            Slots i32[n], and the tiers that they name, with peers left out.

        Raises:
            InputError: a block of a file that holds one is damaged.
        """
        return None

    def gather_found(
        self, node_ids: Any, out: torch.Tensor, ledger: Ledger, device: Device, wanted: torch.Tensor | None = None
    ) -> None:
        """Writes row i of out from node_ids[i], and books the bytes; by default the host finds the rows, and the ids are sent to it.

        Args:
            node_ids: ids[n], global, a tensor on the device.
            out: float[n, F] on the device.
            wanted: bool[n] on the device, rows that are to be read, of a source that `finds` them; others are zeros. None for all.
        """
        assert wanted is None, "the host does not know which rows are wanted"
        self.gather(RowIds(device.fetch(node_ids, COUNTS, ledger).numpy()), out, ledger)

    def beside(self, device: Device, device_bytes: int | None = None) -> FeatureSource:
        """Returns the source for another device of this process, by default itself; rows on a device are copied to that one.

        Args:
            device_bytes: most bytes of rows on it, the hottest ones; None for all that this source has on its device.

        Raises:
            OverBudget: the rows do not fit.
        """
        return self

    def close(self) -> None:
        """Gives back memory that other processes read; all ranks call it, and nothing is gathered after it."""


class TableSource(FeatureSource):
    """Rows of one array, in memory or mapped; zeros for nodes without features, for which no byte is moved.

    Args:
        rows: dtype[R, F].
        mapped: whether they are the pages of a file; the system's reads for them are unknown, so only asked bytes are counted.
        row_of: ids[N], row of each node, -1 for one without features; None if nodes are rows.
        verified: compares blocks of the file before their first row is read; None if all were compared.

    Attributes:
        in_place: whether rows may be read from the array at any time, by a device too.
        stored: the table if its rows are read from the file when they are asked for, None if they are in memory.
    """

    in_place = True
    stored: FeatureTable | None = None

    def __init__(
        self, rows: Array, mapped: bool, threads: int, row_of: Array | None = None, verified: VerifiedRows | None = None
    ):
        self.verified = verified
        self.rows, self.row_of, self.mapped, self.threads = rows, row_of, mapped, threads
        self.width, self.pinned, self._row_there = rows.shape[1], False, SentOnce()
        self.dtype = rows.dtype.name
        self.row_bytes = self.width * rows.dtype.itemsize

    def pin(self, device: Device) -> None:
        """Lets a device with memory of its own read the rows in place; raises InputError if the system lets it pin too little."""
        if len(self.rows) <= MAX_ROWS:  # a slot cannot name more rows
            self.pinned = device.pin(self.rows)

    def plain(self, dtype: str) -> Array | None:
        """Returns the rows of all nodes, dtype[N, F], if they lie in memory as they are trained on; None if they must be gathered."""
        checked = self.in_place and not self.mapped and self.verified is None
        return self.rows if checked and self.row_of is None and self.dtype == dtype else None

    def require(self, node_ids: Array) -> None:
        """Compares the blocks of rows of ids[n] with their digests, if that is not done yet; raises InputError if one is damaged."""
        if self.verified is not None:
            self.verified.require(node_ids if self.row_of is None else self.row_of[node_ids])

    def gather(self, batch: RowRequest, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes rows as `FeatureSource.gather`; raises InputError if a block of the file that holds one is damaged."""
        node_ids, num_rows = batch.input_ids, len(batch.input_ids)
        self.require(node_ids)
        if on_device(out):
            slots, tiers = self.staged(node_ids, device_of(out), ledger)
            ledger.carried(gather_tiered(slots, tiers, out), "ids")
            if not self.pinned:
                # The pool lends the copied rows again as soon as no object refers to them, while the kernel may still read them.
                device_of(out).synchronize()
        else:
            self.fill(node_ids, kernel_array(out), ledger)
        if self.row_of is not None:
            num_rows = int(np.count_nonzero(self.row_of[node_ids] >= 0))
        self._book_present(num_rows, len(node_ids), ledger)

    def in_memory(self, node_ids: Array, ledger: Ledger) -> tuple[Array, Tiers] | None:
        """As `FeatureSource.in_memory`; None for a table of more rows than a slot can name."""
        if not self.in_place or len(self.rows) > MAX_ROWS:
            return None
        self.require(node_ids)
        if self.row_of is None:
            slots = make_slots(HOST, node_ids)
        else:
            rows = self.row_of[node_ids]
            slots, present = np.full(len(rows), NO_FEATURES, np.int32), np.flatnonzero(rows >= 0)
            slots[present] = make_slots(HOST, rows[present])
        self._book_present(int(np.count_nonzero(slots >= 0)), len(node_ids), ledger)
        return slots, Tiers(host=self.rows)

    def _book_present(self, num_rows: int, num_nodes: int, ledger: Ledger) -> None:
        """Books the rows of nodes, of which some have none."""
        if num_rows < num_nodes:
            ledger.count("without_features", 0, num_nodes - num_rows)
        self.book(num_rows, ledger)

    def fill(self, node_ids: Array, out: Array, ledger: Ledger) -> None:
        """Writes row i of out: float[n, F] in memory from node_ids[i], converted to out's type, and books reads of a disk."""
        gather(self.rows, node_ids, out, threads=self.threads, row_of=self.row_of)

    def copy_rows(self, rows: Array, out: Array, ledger: Ledger) -> None:
        """Writes row rows[i] of the table to row i of out: stored dtype[n, F], and books reads of a disk."""
        gather(self.rows, rows, out, threads=self.threads)

    def staged(self, node_ids: Array, kernels: CudaDevice, ledger: Ledger) -> tuple[Array, Tiers]:
        """Returns slots and tiers that a device gathers rows by: of the pinned table, or of a pinned copy of the rows.

        Args:
            node_ids: ids[n], global.

        Returns:
            i32[n], and the tier that they name, which must live until the gather is done.
        """
        rows = node_ids if self.row_of is None else self.row_of[node_ids]
        slots, present = np.full(len(rows), NO_FEATURES, np.int32), np.flatnonzero(rows >= 0)
        if self.pinned:
            slots[present] = make_slots(HOST, rows[present])
            return slots, Tiers(host=self.rows)
        slots[present] = make_slots(STAGED, np.arange(len(present)))
        copied = kernels.pinned((len(present), self.width), self.rows.dtype)
        self.copy_rows(rows[present], copied, ledger)
        return slots, Tiers(staged=copied)

    @property
    def finds(self) -> bool:
        """Whether the table is pinned."""
        return self.pinned

    def gather_found(
        self, node_ids: Any, out: torch.Tensor, ledger: Ledger, device: Device, wanted: torch.Tensor | None = None
    ) -> None:
        """Writes row i of out from node_ids[i], by the pinned table, and books the bytes."""
        if not self.finds:
            super().gather_found(node_ids, out, ledger, device, wanted)
            return
        slots, tiers = self._found_slots(node_ids, device), Tiers(host=self.rows)
        gather_tiered_cuda(wanted_slots(slots, wanted), tiers, out, device_of(out), trusted=True)
        if self.row_of is None and wanted is None:
            self._book_present(len(node_ids), len(node_ids), ledger)
        else:
            book_tiers(slots, device, ledger, lambda n, to: self._book_present(n[HOST + 1], sum(n), to), wanted)

    def _found_slots(self, node_ids: torch.Tensor, device: Device) -> torch.Tensor:
        first = int(make_slots(HOST, np.zeros(1, np.int32))[0])
        if self.row_of is None:
            return node_ids.to(torch.int32) | first
        rows = self._row_there.on(device, self.row_of)[node_ids.long()]
        return torch.where(rows >= 0, rows | first, NO_FEATURES)

    def book(self, num_rows: int, ledger: Ledger) -> None:
        """Books rows that went to the device from here."""
        num_bytes = num_rows * self.row_bytes
        if self.mapped:
            ledger.move(MAPPED, requests=1, asked_bytes=num_bytes, moved_bytes=0)
        ledger.crossed(H2D, num_bytes)


class MemorySource(TableSource):
    """The whole table in memory, every byte verified as it is read; peak memory is the table's bytes."""

    def __init__(self, table: FeatureTable, threads: int = 1):
        super().__init__(read_table(table, threads), False, threads, table.row_of)


class MappedSource(TableSource):
    """The table as a mapped file; the page cache decides which rows stay in memory. Each block is compared when its first row is read."""

    def __init__(self, table: FeatureTable, threads: int = 1):
        super().__init__(table.open(), True, threads, table.row_of, VerifiedRows(table))
        self.stored = table
        if not fits_memory(table.num_bytes):
            expect_random_reads(self.rows)


def wanted_slots(slots: torch.Tensor, wanted: torch.Tensor | None) -> torch.Tensor:
    """Returns i32[n], slots on a device by which no row is read that is not wanted: bool[n], or None for all."""
    return slots if wanted is None else torch.where(wanted, slots, NO_FEATURES)


def book_tiers(
    slots: torch.Tensor,
    device: Device,
    ledger: Ledger,
    book: Callable[[list[int], Ledger], None],
    wanted: torch.Tensor | None = None,
) -> None:
    """Counts the slots on a device of each tier, those without features first, and books them when the counts have arrived.

    The batch does not wait for them. Counts are added as integers, so their order does not matter; `torch.bincount` would wait.

    Args:
        wanted: bool[n] on the device, the slots that are counted; None for all.
    """
    tier = (slots >> ROW_BITS).long() + 1
    counts = torch.zeros(len(TIER_NAMES) + 1, dtype=torch.int64, device=slots.device)
    counts.scatter_add_(0, tier, torch.ones_like(tier) if wanted is None else wanted.long())
    ledger.later(device.note(counts, COUNTS, ledger), book)


def copied_rows(rows: torch.Tensor, device: Device) -> torch.Tensor:
    """Returns a copy of cached rows of another device, dtype[n, F], on a device, booked there beside the batches' traffic.

    It goes piece by piece: a copy takes memory on its way.

    Raises:
        OverBudget: the rows do not fit.
    """
    copy = device.alloc(tuple(rows.shape), rows.dtype, CACHE)
    step = max(1, COPIED_BYTES // max(1, rows[:1].numel() * rows.element_size()))
    with device.preparing():  # at its end the rows are there, for every stream
        for low in range(0, len(rows), step):
            copy[low : low + step].copy_(device.send_tensor(rows[low : low + step], D2D, device.traffic))
    return copy


class LinkedSource(FeatureSource):
    """A source whose rows reach the device over a link, which carries the bytes that the source books as moved from host to device."""

    def __init__(self, source: FeatureSource, link: Link):
        self.source, self.link = source, link
        self.width, self.dtype, self.row_bytes = source.width, source.dtype, source.row_bytes
        self.collective, self.slotted, self.mark = source.collective, source.slotted, source.mark
        self.stage, self.stage_windows, self.tiered = source.stage, source.stage_windows, source.tiered
        self.staged_bytes = source.staged_bytes

    def gather(self, batch: RowRequest, out: torch.Tensor, ledger: Ledger) -> None:
        """Gathers from the source, and returns when the link has carried the bytes."""
        since, moved = self.link.now(), Ledger()
        self.source.gather(batch, out, moved)
        self.link.carry(moved.moved_bytes("h2d"), since)
        ledger.merge(moved)


def linked(source: FeatureSource, device: Device) -> FeatureSource:
    """Returns a source whose rows cross the modelled link of a device, if it has one."""
    link = device.link("h2d")
    return source if link is None else LinkedSource(source, link)
