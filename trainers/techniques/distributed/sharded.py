"""Rows that are split by parts among ranks: own rows are gathered, the others are fetched (FastSample, section 3.3).

    tier      rows                                              a row of a batch costs
    peer      the shards of this rank's parts, one array each   its bytes to the device
    host      hot rows of other ranks, copied at the start      its bytes to the device
    staged    rows that were fetched for this batch             its bytes over the network and to the device

The artifact `hotness` ranks the rows, and [memory] host bounds the number of cached ones: the paper's future work. A sampler thread marks
the slot of each row and makes the request for distinct rows of other ranks; the one exchanging thread sends it
(trainers/techniques/distributed/exchange.py); one gather writes all rows of the batch. No rank opens the shard of another.

Memory beside the shards, which are mapped or in memory: 10 bytes per node for places, the cached rows, and the fetched rows of one batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from assets.shards.read import Shards
from assets.storage.arrays import expect_random_reads
from assets.storage.read_verified import read_table
from assets.storage.table import FeatureTable
from assets.storage.verified import VerifiedRows
from kernels.errors import InputError
from kernels.rows.gather import gather_tiered
from kernels.rows.slots import ELSEWHERE, HOST, MAX_ROWS, NO_FEATURES, PEER, ROW_BITS, STAGED, Tiers, make_slots
from kernels.types import Array
from trainers.devices.protocol import Device, kernel_array
from trainers.ranks.group import Lane
from trainers.record.ledger import Ledger
from trainers.rows.source import H2D, MAPPED, FeatureSource, RowRequest, fits_memory
from trainers.techniques.distributed.exchange import Exchange, Request, make_request

FILL_ROWS = 1 << 16
"""Rows of the cache that one exchange brings when it is filled."""


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """The owner of each node.

    Attributes:
        rank, world: this rank, and the number of ranks.
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
        shards: the index of the shards.
        owned: the owner of each node.
        lane: the lane of the exchange; every rank calls `fetch` and `gather` for every batch, in order, from one thread at a time.
        device: the device that computes.
        where: the key `features`; shards are mapped unless it is "memory".
        threads: number of threads of a gather.

    Attributes:
        held_bytes: bytes of this rank's shards.
        cached_rows: number of rows of other ranks that are kept here.
    """

    collective = slotted = True

    def __init__(self, shards: Shards, owned: Ownership, lane: Lane, device: Device, where: str, threads: int = 1):
        self.owned, self.device, self.threads, self.mapped = owned, device, threads, where != "memory"
        self.width, self.dtype, self.row_bytes = shards.width, shards.dtype, shards.row_bytes
        tables = shards.tables(owned.parts)
        opened = [_opened(table, where, threads) for table in tables]
        self.own = tuple(rows for rows, _ in opened)
        self._verified = [verified for _, verified in opened]
        self.held_bytes = sum(table.num_bytes for table in tables)
        if self.mapped and not fits_memory(self.held_bytes):
            for rows in self.own:
                expect_random_reads(rows)
        # One stride for all ranks, so that a row's number at its owner is known without a request.
        self.stride = max(1, int(shards.num_rows.max(initial=0)))
        share = owned.num_parts // owned.world
        if share * self.stride > MAX_ROWS:
            problem = f"a rank would have up to {share * self.stride:,} rows, more than a slot can name"
            raise InputError(problem, "start more ranks")
        self.exchange = Exchange(lane, self._serve, self.width, self.dtype)
        row_of, part_of = shards.row_of, owned.part_of
        self._number = np.where(row_of >= 0, part_of % share * self.stride + row_of, -1).astype(np.int32)
        mine = (part_of // share == owned.rank) & (row_of >= 0)
        self._slot = np.where(row_of >= 0, ELSEWHERE, NO_FEATURES).astype(np.int32)
        self._slot[mine] = make_slots(PEER, self._number[mine])
        self.cached_rows, self._cache = 0, np.empty((0, self.width), self.dtype)

    def fill(self, node_ids: Array) -> None:
        """Copies rows of other ranks here; every rank calls it, with its own choice of nodes.

        Args:
            node_ids: ids[c], distinct nodes with features that other ranks have.
        """
        ledger, cache = Ledger(), np.empty((len(node_ids), self.width), self.dtype)
        lane = self.exchange.lane
        for low in range(0, max(FILL_ROWS, lane.most(len(node_ids))), FILL_ROWS):
            wanted = node_ids[low : low + FILL_ROWS]
            request = self._request(wanted, np.arange(len(wanted)))
            rows, places = self.exchange.fetch(request, None, ledger)
            cache[low : low + len(wanted)][request.places] = rows[places]
        self.device.traffic.merge(ledger)
        self._slot[node_ids] = make_slots(HOST, np.arange(len(node_ids)))
        self._cache, self.cached_rows = cache, len(node_ids)

    def mark(self, node_ids: Array, out: Array) -> None:
        """Writes slot i of out: i32[n] for node_ids[i] (global); -2 for a row that must be fetched."""
        np.take(self._slot, node_ids, out=out)

    def request(self, node_ids: Array, slots: Array) -> Request:
        """Returns the request for the rows of a batch that other ranks have. Pure, so any thread may call it.

        Args:
            node_ids: ids[n], distinct.
            slots: i32[n], written by `mark`.
        """
        places = np.flatnonzero(slots == ELSEWHERE)
        return self._request(node_ids[places], places)

    def _request(self, node_ids: Array, places: Array) -> Request:
        return make_request(self.owned.ranks_of(node_ids), self._number[node_ids], places, self.owned.world)

    def fetch(self, slots: Array, request: Request, following: Array | None, ledger: Ledger) -> tuple[Array, Array]:
        """Fetches the rows of a request; collective.

        Args:
            slots: i32[n], slots of the batch.
            request: request of the batch.
            following: i64[world], counts of the next batch's request; None after the last batch of an epoch.
            ledger: receives rounds and bytes.

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
            self.mark(batch.input_ids, slots)
            staged = self.fetch(slots, self.request(batch.input_ids, slots), None, ledger)
        slots, rows = staged
        # A device with memory of its own gets the converted rows by one copy.
        here = kernel_array(out) if out.device.type == "cpu" else torch.empty(out.shape, dtype=out.dtype).numpy()
        self._gather(slots, rows, here)
        if out.device.type != "cpu":
            out.copy_(torch.from_numpy(here))
        self._book(slots, ledger)

    def gather_own(self, node_ids: Array, out: Array) -> None:
        """Writes row i of out: float[n, F] from node_ids[i], nodes of this rank's parts; asks no other rank and books nothing."""
        slots = np.empty(len(node_ids), np.int32)
        self.mark(node_ids, slots)
        self._gather(slots, np.empty((0, self.width), self.dtype), out)

    def _gather(self, slots: Array, fetched: Array, out: Array) -> None:
        self._require_own(slots)
        tiers = Tiers(host=self._cache, staged=fetched, peers=self.own, peer_stride=self.stride)
        gather_tiered(slots, tiers, out, threads=self.threads)

    def _require_own(self, slots: Array) -> None:
        """Compares the blocks of mapped shards that are read for the first time."""
        if not any(verified is not None and verified.pending for verified in self._verified):
            return
        numbers = slots[(slots >= 0) & (slots >> ROW_BITS == PEER)] & MAX_ROWS - 1
        shard, rows = np.divmod(numbers, self.stride)
        for place, verified in enumerate(self._verified):
            if verified is not None:
                verified.require(rows[shard == place])

    def _serve(self, numbers: Array, out: Array) -> None:
        """Writes own rows by their numbers, for another rank."""
        if len(numbers):
            self._gather(make_slots(PEER, numbers), np.empty((0, self.width), self.dtype), out)

    def _book(self, slots: Array, ledger: Ledger) -> None:
        counts = [int(np.count_nonzero((slots >= 0) & (slots >> ROW_BITS == tier))) for tier in (PEER, HOST, STAGED)]
        for name, count in zip(("hits_own", "hits_host", "hits_remote"), counts, strict=True):
            ledger.count(name, 0, count)
        if without := int(np.count_nonzero(slots == NO_FEATURES)):
            ledger.count("without_features", 0, without)
        num_bytes = sum(counts) * self.row_bytes
        if self.mapped and counts[0]:
            ledger.move(MAPPED, requests=1, asked_bytes=counts[0] * self.row_bytes, moved_bytes=0)
        ledger.crossed(H2D, num_bytes)


def _opened(table: FeatureTable, where: str, threads: int) -> tuple[Array, VerifiedRows | None]:
    """Returns the rows of a shard, and the object that compares their blocks if they are mapped."""
    if table.num_rows == 0:  # an empty file cannot be mapped
        return np.empty((0, table.width), table.dtype), None
    return (read_table(table, threads), None) if where == "memory" else (table.open(), VerifiedRows(table))
