"""The rows of a rank's own shards: in memory, mapped, or read past the page cache for each batch.

    memory, mapped   one array per shard, from which a batch's gather takes rows in place
    direct           a batch's rows are read into a buffer first (trainers/rows/direct.py)

Slots name a row as `shard * stride + row` on the peer tier. Rows that take more than `WINDOW_BYTES` are read in the order of their files, a
window at a time, so the buffer is bounded and a page that several rows share is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.files.arrays import expect_random_reads
from graphmill.assets.storage.files.verified import VerifiedRows
from graphmill.assets.storage.local.read_verified import read_table
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.slots import MAX_ROWS, PEER, ROW_BITS, make_slots
from graphmill.kernels.types import Array
from graphmill.kernels.warn_once import warn_once
from graphmill.trainers.ranks.group import Ranks
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.direct import DirectTables
from graphmill.trainers.techniques.distributed.settings import WINDOW_BYTES


class PeerTier(NamedTuple):
    """The own rows of some slots, as the tier of peers of a gather.

    Attributes:
        slots: i32[n], the slots, pointing into these arrays.
        arrays: stored dtype[R, F] each.
        stride: rows between the first slots of neighbouring arrays.
    """

    slots: Array
    arrays: tuple[Array, ...]
    stride: int


class OwnRows(Protocol):
    """The rows of a rank's shards.

    Attributes:
        mapped: whether a gather reads the pages of a file; the system's reads for them are unknown, so only asked bytes are counted.
        direct: whether each row of a batch is read from the disk.
    """

    mapped: bool = False
    direct: bool = False

    def windows(self, slots: Array) -> Sequence[Array | None]:
        """Returns the places of slots that are gathered together: i64[m] each, or None for all of them."""
        ...

    def tier(self, slots: Array, ledger: Ledger) -> PeerTier:
        """Returns the own rows of slots i32[n], and books reads of a disk.

        Raises:
            InputError: a shard is damaged.
        """
        ...


class ShardArrays(OwnRows):
    """Shards in memory or mapped; of mapped ones each block is compared when its first row is read.

    Args:
        stride: rows between the first numbers of neighbouring shards.
        fits: whether their pages may stay in memory.
    """

    def __init__(self, tables: Sequence[FeatureTable], stride: int, *, mapped: bool, fits: bool, threads: int):
        self.mapped, self.stride = mapped, stride
        # An empty file cannot be mapped.
        self._verified = [VerifiedRows(table) if mapped and table.num_rows else None for table in tables]
        opened = [table.open() if mapped else read_table(table, threads) for table in tables if table.num_rows]
        rest = iter(opened)
        empty = [np.empty((0, table.width), table.dtype) for table in tables]
        self.arrays = tuple(next(rest) if table.num_rows else none for table, none in zip(tables, empty, strict=True))
        if mapped and not fits:
            for rows in opened:
                expect_random_reads(rows)

    def windows(self, slots: Array) -> Sequence[Array | None]:
        """Returns one window: rows are gathered in place."""
        return [None]

    def tier(self, slots: Array, ledger: Ledger) -> PeerTier:
        """Returns the shards and the slots as they are, after comparing blocks that are read for the first time."""
        if any(verified is not None and verified.pending for verified in self._verified):
            shard, rows = np.divmod(slots[_own(slots)] & MAX_ROWS - 1, self.stride)
            for place, verified in enumerate(self._verified):
                if verified is not None:
                    verified.require(rows[shard == place])
        return PeerTier(slots, self.arrays, self.stride)


class ShardFiles(OwnRows):
    """Shards that are read past the page cache, a batch's rows into a buffer of the reading thread.

    Raises:
        InputError: a shard is damaged, or its file system allows no direct reads.
    """

    direct = True

    def __init__(self, tables: Sequence[FeatureTable], stride: int):
        self.stride, self._files = stride, DirectTables(tables)
        self._window_rows = max(1, WINDOW_BYTES // max(1, tables[0].row_bytes))

    def windows(self, slots: Array) -> Sequence[Array | None]:
        """Returns all places at once if the own rows fit into a window, else the places in the order of the files, in windows."""
        if np.count_nonzero(_own(slots)) <= self._window_rows:
            return [None]
        order = np.argsort(slots, kind="stable")  # own rows have the largest slots
        return np.split(order, range(self._window_rows, len(order), self._window_rows))

    def tier(self, slots: Array, ledger: Ledger) -> PeerTier:
        """Reads the rows, and returns the buffer and slots that point into it."""
        places = np.flatnonzero(_own(slots))
        numbers = slots[places] & MAX_ROWS - 1
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        buffer = self._files.window(len(numbers))
        ends = np.searchsorted(numbers, np.arange(1, len(self._files.tables) + 1) * self.stride).tolist()
        for number, (low, high) in enumerate(zip([0, *ends], ends, strict=False)):
            self._files.read(number, numbers[low:high] - number * self.stride, buffer[low:high], ledger)
        slots = slots.copy()
        slots[places[order]] = make_slots(PEER, np.arange(len(numbers)))
        return PeerTier(slots, (buffer,), max(1, len(numbers)))


def _own(slots: Array) -> Array:
    """Returns bool[n], whether each slot names an own row."""
    return slots >= PEER << ROW_BITS


def open_own_rows(tables: Sequence[FeatureTable], stride: int, where: str, ranks: Ranks, threads: int = 1) -> OwnRows:
    """Opens the shards of a rank in the way of the key `features`; all ranks call it.

    Args:
        where: "memory", "mapped", "direct", or "auto": mapped if the shards of all ranks of this machine take at most half of the memory
            that is free, which leaves the rest to their runs, else direct.

    Raises:
        InputError: a shard is damaged, or direct reads were asked for by name and its file system has none.
    """
    held = sum(table.num_bytes for table in tables)
    together = sum(ranks.beside(held))
    # Ranks look at different moments: if one of them finds too little, all read in the same way.
    fits = all(ranks.beside(fits_memory(together)))
    if where == "direct" or (where == "auto" and not fits):
        try:
            return ShardFiles(tables, stride)
        except InputError as error:
            if where == "direct":
                raise
            sizes = (
                f"the shards of this machine take {format_bytes(together)}, more than half of the memory that is free"
            )
            warn_once(f"{sizes}; their rows go through the page cache, which is slow: {error.problem}")
    return ShardArrays(tables, stride, mapped=where != "memory", fits=fits, threads=threads)
