"""Rows that are split by parts among ranks: own rows are gathered, the others are fetched (FastSample, section 3.3).

    tier      rows                                              a row of a batch costs
    peer      the shards of this rank's parts (device_rows.py)  its bytes to the device; its pages of the disk if they are read directly
    host      hot rows, copied at the start                     its bytes to the device
    device    hotter rows, on the devices (device_rows.py)      a read of its device's memory
    staged    rows that were fetched for this batch             its bytes over the network and to the device

The artifact `hotness` ranks the rows, and [memory] host bounds the number of cached ones: the paper's future work. They are rows of other
ranks; of all ranks if own rows are read directly, since each then costs a read of a page. A sampler thread marks the slot of each row and
makes the request for distinct rows of other ranks; the one exchanging thread sends it (trainers/techniques/distributed/exchange.py); one
gather writes all rows of the batch, in windows if they are many and read directly. A device with memory of its own gets rows in their
stored type and converts them. No rank opens the shard of another.

Memory beside shards in memory: 8 bytes per node for parts and places, the cached rows, the fetched rows of one batch, and a window of own
rows that are read directly.
"""

from dataclasses import dataclass

import numpy as np
import torch

from graphmill.assets.shards.read import Shards
from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.rows.gather import gather_tiered
from graphmill.kernels.rows.slots import (
    DEVICE,
    ELSEWHERE,
    HOST,
    MAX_ROWS,
    NO_FEATURES,
    PEER,
    ROW_BITS,
    STAGED,
    Tiers,
    make_slots,
)
from graphmill.kernels.types import Array
from graphmill.trainers.devices.malloc import return_freed_memory
from graphmill.trainers.devices.protocol import Device, kernel_array
from graphmill.trainers.ranks.group import ALONE, Lane, Ranks
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import H2D, MAPPED, FeatureSource, RowRequest
from graphmill.trainers.techniques.distributed.device_rows import DeviceRows, open_device_rows, open_own_rows
from graphmill.trainers.techniques.distributed.exchange import Exchange, Request, make_request
from graphmill.trainers.techniques.distributed.hot_rows import HotRows

FILL_ROWS = 1 << 16
"""Rows of the cache that one exchange brings when it is filled."""
FIRST_NUMBER = ELSEWHERE - 1
"""The slot of row 0 of another rank, in the list of all nodes; those of the next rows go down from it."""


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """The owner of each node.

    Attributes:
        num_parts: P, a multiple of world; part p belongs to rank p // (P / world).
        part_of: i32[N], the part of each node.

    Raises:
        InputError: the ranks cannot share the parts evenly.
    """

    rank: int
    world: int
    num_parts: int
    part_of: Array

    def __post_init__(self):
        if self.num_parts % self.world:
            divisors = [n for n in range(1, self.num_parts + 1) if self.num_parts % n == 0]
            problem = f"{self.world} ranks cannot share {self.num_parts} parts evenly"
            raise InputError(problem, f"start {' or '.join(map(str, divisors))} ranks, or set [partitions] parts")

    @property
    def parts(self) -> range:
        """The parts of this rank."""
        share = self.num_parts // self.world
        return range(self.rank * share, (self.rank + 1) * share)

    def ranks_of(self, node_ids: Array) -> Array:
        """Returns i32[n], the rank of each node."""
        return self.part_of[node_ids] // (self.num_parts // self.world)


class ShardedSource(FeatureSource):
    """Rows of this rank's shards, of its cache, and of the other ranks.

    Args:
        lane: the lane of the exchange; every rank calls `fetch` and `gather` for every batch, in order, from one thread at a time.
        where, reserved_bytes: as of `open_own_rows`.

    Attributes:
        devices: hot rows on the devices of this machine; None if there are none.
    """

    collective = slotted = True

    def __init__(
        self,
        shards: Shards,
        owned: Ownership,
        lane: Lane,
        device: Device,
        where: str,
        ranks: Ranks = ALONE,
        threads: int = 1,
        reserved_bytes: int = 0,
    ):
        self.owned, self.device, self.threads, self.ranks = owned, device, threads, ranks
        self.width, self.dtype, self.row_bytes = shards.width, shards.dtype, shards.row_bytes
        tables = shards.tables(owned.parts)
        self.held_bytes = sum(table.num_bytes for table in tables)
        # One stride for all ranks, so that a row's number at its owner is known without a request.
        self.stride = max(1, int(shards.num_rows.max(initial=0)))
        share = owned.num_parts // owned.world
        if share * self.stride > MAX_ROWS:
            problem = f"a rank would have up to {share * self.stride:,} rows, more than a slot can name"
            raise InputError(problem, "start more ranks")
        self.own = open_own_rows(tables, self.stride, where, ranks, threads, reserved_bytes)
        self.exchange = Exchange(lane, self._serve, self.width, self.dtype)
        self.devices: DeviceRows | None = None
        self._slot = _all_slots(shards.row_of, owned, self.stride)
        self.cached_rows, self._cache = 0, np.empty((0, self.width), self.dtype)

    def fill(self, node_ids: Array) -> None:
        """Copies rows to the host's cache; every rank calls it, with its own choice of nodes.

        Args:
            node_ids: ids[c], distinct nodes with features, in ascending order: rows of a file are then read forwards.
        """
        self._cache, self.cached_rows = self._copied(node_ids), len(node_ids)
        self._slot[node_ids] = make_slots(HOST, np.arange(len(node_ids)))

    def fill_devices(self, hot: HotRows) -> None:
        """Copies rows to the devices of this machine; every rank calls it, before `fill`.

        Raises:
            InputError: a device has too little memory, or cannot read that of another.
        """
        here, own = self.ranks.beside(self.ranks.rank).index(self.ranks.rank), None
        everywhere = self._copied(hot.everywhere)
        if hot.by_rank:
            own = self._copied(hot.by_rank[here])
        self.devices = open_device_rows(hot, self.device, everywhere, own, len(self._slot), self.ranks)

    def close(self) -> None:
        """Drops the rows on devices; all ranks call it."""
        if self.devices is not None:
            self.devices.close(self.ranks)
            self.devices = None

    def _copied(self, node_ids: Array) -> Array:
        """Returns stored dtype[c, F], the rows of nodes, own ones and others'; every rank calls it, with nodes as for `fill`."""
        ledger, copied = Ledger(), np.empty((len(node_ids), self.width), self.dtype)
        here = self.owned.ranks_of(node_ids) == self.owned.rank
        own, others = np.flatnonzero(here), np.flatnonzero(~here)
        for low in range(0, len(own), FILL_ROWS):
            places = own[low : low + FILL_ROWS]
            copied[places] = self._own_rows(node_ids[places], ledger)
        for low in range(0, max(FILL_ROWS, self.exchange.lane.most(len(others))), FILL_ROWS):
            wanted = others[low : low + FILL_ROWS]
            request = self._request(node_ids[wanted], wanted)
            rows, places = self.exchange.fetch(request, None, ledger)
            copied[request.places] = rows[places]
            del rows, request
        return_freed_memory()  # what rows came and went in is of no size that a batch has
        self.device.traffic.merge(ledger)
        return copied

    def _own_rows(self, node_ids: Array, ledger: Ledger) -> Array:
        """Returns stored dtype[n, F], rows of nodes of this rank's parts."""
        rows = np.empty((len(node_ids), self.width), self.dtype)
        self._gather(self._slot[node_ids], self._no_rows, rows, ledger)
        return rows

    def mark(self, node_ids: Array, out: Array) -> None:
        """Writes slot i of out: i32[n] for node_ids[i] (global), for a gather on the device; -2 for a row that must be fetched."""
        self._mark(node_ids, out)
        if self.devices is not None:
            self.devices.mark(node_ids, out)

    def _mark(self, node_ids: Array, out: Array) -> None:
        """Does the same without rows on devices."""
        np.take(self._slot, node_ids, out=out)
        np.maximum(out, ELSEWHERE, out=out)

    def request(self, node_ids: Array, slots: Array) -> Request:
        """Returns the request, from any thread, for rows of distinct ids[n] at other ranks, by i32[n] of `mark`."""
        places = np.flatnonzero(slots == ELSEWHERE)
        return self._request(node_ids[places], places)

    def _request(self, node_ids: Array, places: Array) -> Request:
        numbers = FIRST_NUMBER - self._slot[node_ids]
        return make_request(self.owned.ranks_of(node_ids), numbers, places, self.owned.world)

    def fetch(self, slots: Array, request: Request, following: Array | None, ledger: Ledger) -> tuple[Array, Array]:
        """Fetches the rows of a request; collective.

        Args:
            slots: i32[n], slots of the batch.
            following: i64[world], counts of the next batch's request; None after the last batch of an epoch.

        Returns:
            i32[n], the slots with those of the fetched rows, and the buffer that they point into.
        """
        rows, places = self.exchange.fetch(request, following, ledger)
        slots = slots.copy()
        slots[request.places] = make_slots(STAGED, places)
        return slots, rows

    def gather(self, batch: RowRequest, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes row i of out: float[n, F] from batch.input_ids[i]; collective if nothing was staged, with a round of sizes."""
        staged = batch.staged
        if staged is None:
            slots = np.empty(len(batch.input_ids), np.int32)
            here = self.devices is None or self.devices.serves(out)
            (self.mark if here else self._mark)(batch.input_ids, slots)
            staged = self.fetch(slots, self.request(batch.input_ids, slots), None, ledger)
        slots, rows = staged
        if on_device(out):
            self._send(slots, rows, out, ledger)
        else:
            self._write(slots, rows, kernel_array(out), ledger)
        self._book(slots, ledger)

    def _write(self, slots: Array, fetched: Array, out: Array, ledger: Ledger) -> None:
        """Writes row i of out, on a device that shares the host's memory, from slots[i]."""
        hot = _is_hot(slots)
        if self.devices is None or not hot.any():
            self._gather(slots, fetched, out, ledger)
            return
        for places, write in ((np.flatnonzero(hot), self._write_hot), (np.flatnonzero(~hot), self._gather)):
            part = np.empty((len(places), self.width), out.dtype)
            write(slots[places], fetched, part, ledger)
            out[places] = part

    def _write_hot(self, slots: Array, fetched: Array, out: Array, ledger: Ledger) -> None:
        assert self.devices is not None
        gather_tiered(self.devices.slots(slots), self.devices.gather_tiers(None), out, threads=self.threads)

    def _send(self, slots: Array, fetched: Array, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes row i of out, on a device with memory of its own, from slots[i]; rows cross to it in their stored type."""
        hot, kernels = _is_hot(slots), device_of(out)
        present = np.flatnonzero((slots != NO_FEATURES) & ~hot)
        copied = kernels.pinned((len(present), self.width), np.dtype(self.dtype))
        self._gather(slots[present], fetched, copied, ledger)
        found = np.full(len(slots), NO_FEATURES, np.int32)
        found[present] = make_slots(STAGED, np.arange(len(present)))
        if self.devices is not None:
            found[hot] = self.devices.slots(slots[hot])
        tiers = Tiers(staged=copied) if self.devices is None else self.devices.gather_tiers(copied)
        ledger.carried(gather_tiered(found, tiers, out), "ids")
        kernels.hold(copied)  # the device may still read the copied rows, whose memory would be lent again

    def gather_own(self, node_ids: Array, out: Array) -> None:
        """Writes row i of out: float[n, F] from node_ids[i], nodes of this rank's parts; asks no other rank and books nothing."""
        slots = np.empty(len(node_ids), np.int32)
        self._mark(node_ids, slots)
        self._gather(slots, self._no_rows, out, Ledger())

    @property
    def _no_rows(self) -> Array:
        return np.empty((0, self.width), self.dtype)

    def _gather(self, slots: Array, fetched: Array, out: Array, ledger: Ledger) -> None:
        """Writes row i of out from slots[i], and books reads of a disk."""
        for places in self.own.windows(slots):
            here = slots if places is None else slots[places]
            part = out if places is None else np.empty((len(places), self.width), out.dtype)
            own = self.own.tier(here, ledger)
            tiers = Tiers(host=self._cache, staged=fetched, peers=own.arrays, peer_stride=own.stride)
            gather_tiered(own.slots, tiers, part, threads=self.threads)
            if places is not None:
                out[places] = part

    def _serve(self, numbers: Array, out: Array, ledger: Ledger) -> None:
        """Writes own rows by their numbers, for another rank."""
        if len(numbers):
            self._gather(make_slots(PEER, numbers), self._no_rows, out, ledger)

    def _book(self, slots: Array, ledger: Ledger) -> None:
        counts = [int(np.count_nonzero((slots >= 0) & (slots >> ROW_BITS == tier))) for tier in (PEER, HOST, STAGED)]
        for name, count in zip(("hits_own", "hits_host", "hits_remote"), counts, strict=True):
            ledger.count(name, 0, count)
        if self.devices is not None:
            self.devices.book(slots[_is_hot(slots)], self.row_bytes, ledger)
        if without := int(np.count_nonzero(slots == NO_FEATURES)):
            ledger.count("without_features", 0, without)
        num_bytes = sum(counts) * self.row_bytes
        if self.own.mapped and counts[0]:
            ledger.move(MAPPED, requests=1, asked_bytes=counts[0] * self.row_bytes, moved_bytes=0)
        ledger.crossed(H2D, num_bytes)


def _is_hot(slots: Array) -> Array:
    """Returns bool[n], whether each slot names a row on a device."""
    return (slots >= 0) & (slots >> ROW_BITS == DEVICE)


def _all_slots(row_of: Array, owned: Ownership, stride: int) -> Array:
    """Returns i32[N], the slot of each node's row: of the peer tier if it is this rank's, else `FIRST_NUMBER` - its number at its owner.

    Args:
        row_of: i32[N], row of each node in the shard of its part, -1 without features.
    """
    slots, share = np.empty(len(row_of), np.int32), owned.num_parts // owned.world
    for low, high in node_ranges(len(slots)):
        nodes = slice(low, high)
        row, part = np.asarray(row_of[nodes]), owned.part_of[nodes]
        number = part % share * stride + row
        slot = np.where(part // share == owned.rank, number | PEER << ROW_BITS, FIRST_NUMBER - number)
        slots[nodes] = np.where(row >= 0, slot, NO_FEATURES)
    return slots
