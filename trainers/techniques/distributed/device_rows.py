"""Hot rows on the devices of a machine's ranks, which read those of each other in place (FreshGNN section 6, HongTu section 6).

    rows                                     lie on                          a row of a batch costs
    the hottest of all nodes                 every device                    a read of the device's own memory
    the next ones of this machine's parts    the device of their part        a read over the link between two devices, or of the own memory
    others                                   the shards of the ranks         see trainers/techniques/distributed/sharded.py

Reads are one-sided: no request is sent, and the process that has a row takes no part. One gather of the device reads all three (the tier of
peers of kernels/rows/gather.py), in the order of the batch, in which the rows of all devices are mixed, so no device is read by all others
at a time. Every rank finds the place of each row by itself, since all choose by the same order and the same budgets.

A device has room for `[memory] device` bytes of rows, of which a share is for those that every device has. Rows of parts of other machines
are on a device only if they are among the hottest: no device of this machine has their part.

All this is with `exchange = "peer"`. With another exchange every device has the hottest rows of all nodes for its own rank. No device is
read by another one, so ranks may be on machines that share nothing (FGNN, section 6).

A gather is not waited for, so rows may be read that their rank has no use for any more. They are given back in `DeviceRows.close`, which
all ranks call when they are done; a rank that fails does not call it, and keeps them until its process ends.

Memory: the rows, within the budget, and 4 bytes per node for their places.

The rows of a rank's own shards: in memory, mapped, or read past the page cache for each batch.

    memory, mapped   one array per shard, from which a batch's gather takes rows in place
    direct           a batch's rows are read into a buffer first (trainers/rows/direct.py)

Slots name a row as `shard * stride + row` on the peer tier. Rows that take more than `WINDOW_BYTES` are read in the order of their files, a
window at a time, so the buffer is bounded and a page that several rows share is read once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.files.arrays import expect_random_reads
from graphmill.assets.storage.files.verified import VerifiedRows
from graphmill.assets.storage.local.read_verified import read_table
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.slots import MAX_ROWS, PEER, ROW_BITS, Tiers, make_slots
from graphmill.kernels.types import Array
from graphmill.kernels.warn_once import warn_once
from graphmill.trainers.devices.protocol import CACHE, Device, kernel_array
from graphmill.trainers.ranks.group import Ranks
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.direct import DirectTables
from graphmill.trainers.rows.source import D2D
from graphmill.trainers.techniques.distributed.hot_rows import HotRows
from graphmill.trainers.techniques.distributed.settings import WINDOW_BYTES

_READ_BY_OTHERS: dict[int, Any] = {}
"""Rows of this process that other ranks may read, by their identity: a rank that fails keeps them until its process ends."""


class DeviceRows:
    """The hot rows as the device of one rank reads them.

    Args:
        everywhere: the rows that every device has, a tensor or as kernels take them.
        peers: the rows of each rank's device, in the order of `hot.by_rank`, as `device` takes them; none if ranks do not read them.
        own: the place of this rank's device among the peers.

    Raises:
        InputError: they are more than slots can name.
    """

    def __init__(self, hot: HotRows, device: Device, everywhere: Any, peers: Sequence[Any], own: int, num_nodes: int):
        self.device, self.own, self._rows = device, own, everywhere
        self.stride = max([1, *(len(ids) for ids in hot.by_rank)])
        self.first = len(hot.everywhere)
        if self.first + len(peers) * self.stride > MAX_ROWS:
            problem = f"{len(peers)} devices with {self.stride:,} rows each have more rows than a slot can name"
            raise InputError(problem, "lower `device` in [memory]")
        there = kernel_array(everywhere) if isinstance(everywhere, torch.Tensor) else everywhere
        self.tiers: dict[str, Any] = {"device": there, "peers": tuple(peers), "peer_stride": self.stride}
        # The number of a row: its place among those that every device has, or behind these: peer * stride + row.
        self.number = np.full(num_nodes, -1, np.int32)
        self.number[hot.everywhere] = np.arange(self.first)
        for peer, ids in enumerate(hot.by_rank):
            self.number[ids] = self.first + peer * self.stride + np.arange(len(ids))

    def serves(self, out: torch.Tensor) -> bool:
        """Returns whether the rows can be read for a gather into `out`: it is where the device computes."""
        return out.device == self.device.torch_device

    def mark(self, node_ids: Array, out: Array) -> None:
        """Replaces slot i of out: i32[n] if the row of node_ids[i] is on a device: by its number, a slot of the device tier."""
        numbers = self.number[node_ids]
        np.copyto(out, numbers, where=numbers >= 0)

    def slots(self, numbers: Array) -> Array:
        """Returns i32[n], the slots of rows in `tiers` by their numbers."""
        return np.where(numbers < self.first, numbers, numbers - self.first | PEER << ROW_BITS).astype(np.int32)

    def on_devices(self, node_ids: Array) -> Array:
        """Returns bool[n], whether the row of each node is on a device."""
        return self.number[node_ids] >= 0

    def gather_tiers(self, staged: Any) -> Tiers:
        """Returns the tiers of a gather of hot rows and of rows that were staged for the batch."""
        return Tiers(staged=staged, **self.tiers)

    def book(self, numbers: Array, row_bytes: int, ledger: Ledger) -> None:
        """Books rows that were read, by their numbers: those of the device's own memory, and those of other devices."""
        peer = (numbers - self.first) // self.stride
        own = int(np.count_nonzero((numbers < self.first) | (peer == self.own)))
        ledger.count("hits_device", 0, own)
        ledger.count("hits_peer", 0, len(numbers) - own)
        if len(numbers):
            ledger.crossed(D2D, len(numbers) * row_bytes)

    def close(self, ranks: Ranks) -> None:
        """Drops the rows: those of other devices first, and the own ones when no rank reads them any more; all ranks call it."""
        own, rows, self._rows = self.tiers["peers"][self.own : self.own + 1], self._rows, None
        self.tiers.clear()
        ranks.main.gather_values(0)
        for each in own:
            _READ_BY_OTHERS.pop(id(each), None)
        del own, rows


def open_device_rows(
    hot: HotRows, device: Device, everywhere: Array, own: Array | None, num_nodes: int, ranks: Ranks
) -> DeviceRows:
    """Puts the hot rows of a rank on its device, and opens those of the others of this machine; all ranks call it.

    Args:
        everywhere, own: stored dtype[r, F], the rows that every device has, and those of this rank's device; None for `own` if no device
            reads the rows of another one.

    Raises:
        InputError: a device has too little memory, or cannot read that of another; every rank raises it, with the name of the first
            rank that failed.
    """
    problem, remedy, kept, own_rows, handle, peers = "", "", None, None, None, []
    try:
        if own is None:
            kept = _copied_rows(device, everywhere)
        else:
            kept, _ = device.export_rows(everywhere)
            own_rows, handle = device.export_rows(own)
    except InputError as error:
        problem, remedy = error.problem, error.remedy
    handles = ranks.beside([ranks.rank, handle])
    try:
        for rank, shown in handles:
            if shown is not None:
                peers.append(own_rows if rank == ranks.rank else device.open_peer(shown))
    except InputError as error:
        problem, remedy = problem or error.problem, remedy or error.remedy
    for rank, (said, what) in enumerate(ranks.main.gather_values([problem, remedy])):
        if said:
            raise InputError(f"rank {rank}: {said}", what)
    if own_rows is not None and len(peers) > 1:
        _READ_BY_OTHERS[id(own_rows)] = own_rows
    place = [rank for rank, _ in handles].index(ranks.rank)
    return DeviceRows(hot, device, kept, peers, place, num_nodes)


def _copied_rows(device: Device, rows: Array) -> torch.Tensor:
    """Returns rows in the memory of a device, which books them for as long as the tensor lives."""
    image = device.alloc(rows.shape, rows.dtype, CACHE)
    with device.filling(kernel_array(image)) as into:
        np.copyto(into, rows)
    return image


class PeerTier(NamedTuple):
    """The own rows of some slots, as the tier of peers of a gather."""

    # The slots, pointing into these arrays, i32[n].
    slots: Array
    # Stored dtype[R, F] each.
    arrays: tuple[Array, ...]
    # Rows between the first slots of neighbouring arrays.
    stride: int


class OwnRows(Protocol):
    """The rows of a rank's shards."""

    # Whether a gather reads the pages of a file; the system's reads for them are unknown, so only asked bytes are counted.
    mapped: bool = False
    # Whether each row of a batch is read from the disk.
    direct: bool = False

    def windows(self, slots: Array) -> Sequence[Array | None]:
        """Returns the places of slots that are gathered together: i64[m] each, or None for all of them."""
        ...

    def tier(self, slots: Array, ledger: Ledger) -> PeerTier:
        """Returns the own rows of slots i32[n], and books reads of a disk; raises InputError if a shard is damaged."""
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
    """Shards that are read past the page cache, into a buffer of the reading thread; raises InputError if one is damaged or cannot be."""

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


def open_own_rows(
    tables: Sequence[FeatureTable], stride: int, where: str, ranks: Ranks, threads: int = 1, reserved_bytes: int = 0
) -> OwnRows:
    """Opens the shards of a rank in the way of the key `features`; all ranks call it.

    Args:
        where: "memory", "mapped", "direct", or "auto": mapped if the shards of all ranks of this machine take at most half of the memory
            that is free, and leave what their runs need, else direct.
        reserved_bytes: bytes that the ranks of this machine are still to take.

    Raises:
        InputError: a shard is damaged, or direct reads were asked for by name and its file system has none.
    """
    held = sum(table.num_bytes for table in tables)
    together = sum(ranks.beside(held))
    # Ranks look at different moments: if one of them finds too little, all read in the same way.
    fits = all(ranks.beside(fits_memory(together, reserved_bytes)))
    if where == "direct" or (where == "auto" and not fits):
        try:
            return ShardFiles(tables, stride)
        except InputError as error:
            if where == "direct":
                raise
            sizes = f"the shards of this machine take {format_bytes(together)}, more than the memory that is free has space for"
            warn_once(f"{sizes}; their rows go through the page cache, which is slow: {error.problem}")
    return ShardArrays(tables, stride, mapped=where != "memory", fits=fits, threads=threads)
