"""The rows that move in a step of a full-graph pass, by mode and direction (HongTu, sections 5.1 and 5.3).

A `ChunkStep` lists the rows that enter a device's buffer when steps run upwards. Everything else follows from it:

    mode           comes from the host                       comes from the peers
    vanilla        every neighbour of the chunk: V_ori       nothing
    p2p            the batch's rows of the own part: V_+p2p  the chunk's neighbours of other parts
    p2p+reuse      those new since the step before: V_+ru    the same, less those that the step before had

The backward pass walks the steps downwards. The rows that entered on the way up are then exactly those that no later step needs, so the
gradients of loaded rows leave for the host, and the gradients of fetched rows are pulled by their owner. (Algorithm 3 of the paper walks
upwards with the same lists, which would lose the gradients of rows that a later step uses as well.) A backward pass that computes a layer
again needs the rows themselves a second time, on the way down: those that the step above did not have. Their number over all steps is V_+ru
as well, since two neighbouring sets share the same rows in either order.

If ranks share the parts, each keeps the lists of its own ones. What crosses between two ranks is listed at both in the same order, so a
message needs no ids: rows that a part fetches from a part of another rank, and in mode vanilla those that another rank has on its host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from graphmill.kernels.types import Array, ChunkStep

Mode = Literal["vanilla", "p2p", "p2p+reuse"]
T = TypeVar("T")


class Steps(Protocol):
    """A source of chunk steps, of m parts and n chunks per part: an artifact, or a list in memory."""

    num_parts: int
    chunks_per_part: int

    def step(self, part: int, step: int) -> ChunkStep:
        """Returns step j of part i."""
        ...


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """Rows that enter a part's buffer before a step."""

    # ids[c] from the host, and i32[c], their rows of the buffer.
    ids: Array
    rows: Array
    # (peer, i32[f] the peer's rows, i32[f] own rows), peers in the order i + 1, i + 2, ... modulo parts.
    fetch: tuple[tuple[int, Array, Array], ...] = ()
    # Positions in `ids` of the nodes of this rank's parts, i64[h]; None for all.
    here: Array | None = None

    def of(self, sharded: bool) -> Incoming:
        """Returns the rows that come from this rank's host: all, or those of its own nodes if it has no others."""
        if not sharded or self.here is None:
            return self
        return Incoming(ids=self.ids[self.here], rows=self.rows[self.here], fetch=self.fetch)


class Ways(NamedTuple, Generic[T]):
    """What moves in a step in either direction: the rows of a part, those that cross between ranks, or their number."""

    # If steps run upwards, also the gradients that leave after the step on the way down.
    up: T
    # If steps run downwards.
    down: T

    def way(self, down: bool) -> T:
        """Returns the rows of a direction, or their number."""
        return self.down if down else self.up


HOST = -1
"""The owner of rows that are on a rank's host, and in no part's buffer."""


class Crossing(NamedTuple):
    """Rows that cross between this rank and another one in a step.

    Attributes:
        owner: the part whose buffer has them, or `HOST`.
        rows: i32[c], their rows of the buffer that is here; ids[c], if this rank's host has them.
    """

    rank: int
    part: int
    owner: int
    rows: Array


@dataclass(frozen=True, kw_only=True)
class Trade:
    """The rows that cross between ranks in one step, by rank, part and owner in the order of its fetches."""

    # Those that the parts of this rank read.
    gets: tuple[Crossing, ...] = ()
    # Those that parts of other ranks read.
    gives: tuple[Crossing, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Walk:
    """The data of all steps that a trainer keeps in memory: everything except the blocks."""

    # m, the parts of all ranks.
    num_parts: int
    # ids[v] by part and step, the destinations, of this rank's parts.
    dst_ids: Mapping[int, Sequence[Array]]
    # Rows that move, by part and step.
    lists: Mapping[int, Sequence[Ways[Incoming]]]
    # Rows of each part's buffer.
    buffer_rows: Mapping[int, int]
    # Rows that cross between ranks, by step; empty for one process.
    trades: Sequence[Ways[Trade]] = ()

    @property
    def num_steps(self) -> int:
        """Number of steps of a pass."""
        return len(next(iter(self.dst_ids.values())))


def walk(steps: Steps, mode: Mode, share: PartShare | None = None) -> Walk:
    """Reads every step once, upwards, and returns the rows that a mode moves.

    Args:
        share: the parts of this rank; None for one process with all.

    Memory: 4 or 8 bytes per node of own parts for destinations, 12 per row that moves, for both directions; two batches of steps at a time.
    """
    parts, num_steps = range(steps.num_parts), steps.chunks_per_part
    mine = parts if share is None else share.parts
    owners = _Owners(steps.num_parts)
    dst_ids, lists, buffer_rows = {i: [] for i in mine}, {i: [] for i in mine}, {i: 0 for i in mine}
    trades: list[Ways[Trade]] = []
    batch = [steps.step(i, 0) for i in parts]
    for j in range(num_steps):
        above = [steps.step(i, j + 1) for i in parts] if j + 1 < num_steps else None
        owners.walk(batch)
        moved = [_moved(i, step, None if above is None else above[i], owners, mode) for i, step in enumerate(batch)]
        if share is not None:
            up = share.trade([each.up for each in moved])
            down = up if mode != "p2p+reuse" else share.trade([each.down for each in moved])
            trades.append(Ways(up, down))
            moved = [share.kept(each) for each in moved]
        for i in mine:
            dst_ids[i].append(np.array(batch[i].dst_ids))
            lists[i].append(moved[i])
            buffer_rows[i] = max(buffer_rows[i], batch[i].block.num_src)
        batch = above or []
    return Walk(num_parts=len(parts), dst_ids=dst_ids, lists=lists, buffer_rows=buffer_rows, trades=trades)


class PartShare:
    """The parts of a rank: as many at each, in order.

    Args:
        num_parts: m, a multiple of the ranks.
        rank_of: u16[N], the rank of every node, if chunks read rows of hosts; None if parts fetch them from each other.

    Attributes:
    """

    def __init__(self, rank: int, world: int, num_parts: int, rank_of: Array | None = None):
        self.rank, self.world, self.rank_of = rank, world, rank_of
        self._each = num_parts // world
        self.parts = range(rank * self._each, (rank + 1) * self._each)

    def kept(self, lists: Ways[Incoming]) -> Ways[Incoming]:
        """Returns the lists of an own part, with the nodes that are here and without what comes from other ranks."""
        up = self._kept(lists.up)
        return Ways(up, up if lists.down is lists.up else self._kept(lists.down))

    def _kept(self, incoming: Incoming) -> Incoming:
        here = None if self.rank_of is None else np.flatnonzero(self.rank_of[incoming.ids] == self.rank)
        return replace(incoming, fetch=tuple(each for each in incoming.fetch if each[0] in self.parts), here=here)

    def trade(self, incoming: Sequence[Incoming]) -> Trade:
        """Returns the rows that cross, from the rows that enter the buffers of all parts."""
        crossing = [each for part, lists in enumerate(incoming) for each in self._crossing(part, lists)]
        # Sorting keeps the order of parts and fetches, which is the same at both ranks.
        gets = sorted((get for get, _ in crossing if get is not None), key=lambda each: each.rank)
        gives = sorted((give for _, give in crossing if give is not None), key=lambda each: each.rank)
        return Trade(gets=tuple(gets), gives=tuple(gives))

    def _crossing(self, part: int, incoming: Incoming) -> Iterator[tuple[Crossing | None, Crossing | None]]:
        """Yields what a part gets from other ranks, if it is here; what this rank gives to it, if it is not."""
        reader = part // self._each
        for owner, theirs, mine in incoming.fetch:
            if reader == self.rank and owner not in self.parts:
                yield Crossing(owner // self._each, part, owner, mine), None
            elif reader != self.rank and owner in self.parts:
                yield None, Crossing(reader, part, owner, theirs)
        if self.rank_of is None:
            return
        ranks = self.rank_of[incoming.ids]
        if reader != self.rank:
            wanted = incoming.ids[ranks == self.rank]
            if len(wanted):
                yield None, Crossing(reader, part, HOST, wanted)
            return
        for rank in np.unique(ranks[ranks != self.rank]).tolist():
            yield Crossing(rank, part, HOST, incoming.rows[ranks == rank]), None


def _moved(i: int, step: ChunkStep, above: ChunkStep | None, owners: _Owners, mode: Mode) -> Ways[Incoming]:
    ids = step.block.src_ids
    if mode == "vanilla":
        rows = used_rows(step)
        whole = Incoming(ids=ids[rows], rows=rows)
        return Ways(whole, whole)
    held = np.flatnonzero(ids >= 0).astype(np.int32)
    if mode == "p2p":
        shared = owners.incoming(i, step, held)
        return Ways(shared, shared)
    later = ids[:0] if above is None else above.block.src_ids
    stays = held[held < len(later)]
    stays = stays[later[stays] == ids[stays]]
    up = Incoming(ids=np.array(step.load_ids), rows=np.array(step.load_rows), fetch=step.fetch)
    return Ways(up, owners.incoming(i, step, np.setdiff1d(held, stays, assume_unique=True)))


def used_rows(step: ChunkStep) -> Array:
    """Returns i32[|N_ij|], ascending: the buffer's rows that the chunk itself reads; others serve peers."""
    used = np.zeros(step.block.num_src, bool)
    used[step.block.indices] = True
    if step.block.dst_pos is not None:
        used[step.block.dst_pos] = True
    return np.flatnonzero(used).astype(np.int32)


class _Owners:
    """The origin of every row of every buffer: the part itself, or the peer and its row that it was fetched from.

    A fetched row keeps its place for as long as successive steps use it, and so does the peer's row that it was fetched from.
    """

    def __init__(self, num_parts: int):
        self.num_parts = num_parts
        self.peer = [np.empty(0, np.int32) for _ in range(num_parts)]
        self.row = [np.empty(0, np.int32) for _ in range(num_parts)]

    def walk(self, batch: Sequence[ChunkStep]) -> None:
        """Goes on to the next step."""
        for i, step in enumerate(batch):
            new = step.block.num_src - len(self.peer[i])
            if new > 0:
                self.peer[i], self.row[i] = (
                    np.concatenate([array, np.full(new, -1, np.int32)]) for array in (self.peer[i], self.row[i])
                )
            self.peer[i][step.load_rows] = i
            for peer, theirs, mine in step.fetch:
                self.peer[i][mine], self.row[i][mine] = peer, theirs

    def incoming(self, i: int, step: ChunkStep, rows: Array) -> Incoming:
        """Returns the origins of chosen rows of a part's buffer in the present step."""
        peers = self.peer[i][rows]
        own, fetch = rows[peers == i], []
        for peer in ((i + k) % self.num_parts for k in range(1, self.num_parts)):
            mine = rows[peers == peer]
            if len(mine):
                fetch.append((peer, self.row[i][mine], mine))
        return Incoming(ids=step.block.src_ids[own], rows=own, fetch=tuple(fetch))
