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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from kernels.types import Array, ChunkStep

Mode = Literal["vanilla", "p2p", "p2p+reuse"]


class Steps(Protocol):
    """A source of chunk steps: an artifact, or a list in memory.

    Attributes:
        num_parts, chunks_per_part: m and n.
    """

    num_parts: int
    chunks_per_part: int

    def step(self, part: int, step: int) -> ChunkStep:
        """Returns step j of part i."""
        ...


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """Rows that enter a part's buffer before a step.

    Attributes:
        ids, rows: ids[c] from the host, and i32[c], their rows of the buffer.
        fetch: (peer, i32[f] the peer's rows, i32[f] own rows), peers in the order i + 1, i + 2, ... modulo parts.
    """

    ids: Array
    rows: Array
    fetch: tuple[tuple[int, Array, Array], ...] = ()

    @property
    def num_fetched(self) -> int:
        """Number of rows that come from peers."""
        return sum(len(rows) for _, rows, _ in self.fetch)


@dataclass(frozen=True, kw_only=True)
class StepLists:
    """The rows that a part moves in one step: `up` when steps run upwards, `down` when they run downwards.

    `up` also names the gradients that leave after the step on the way down.
    """

    up: Incoming
    down: Incoming


@dataclass(frozen=True, kw_only=True)
class Walk:
    """The data of all steps that a trainer keeps in memory: everything except the blocks.

    Attributes:
        dst_ids: ids[v] by part and step, the destinations.
        lists: rows that move, by part and step.
        buffer_rows: rows of each part's buffer.
    """

    dst_ids: Sequence[Sequence[Array]]
    lists: Sequence[Sequence[StepLists]]
    buffer_rows: Sequence[int]


def walk(steps: Steps, mode: Mode) -> Walk:
    """Reads every step once, upwards, and returns the rows that a mode moves.

    Memory: 4 or 8 bytes per node for destinations, 12 per row that moves, for both directions; two batches of steps at a time.
    """
    parts, num_steps = range(steps.num_parts), steps.chunks_per_part
    owners = _Owners(steps.num_parts)
    dst_ids, lists, buffer_rows = [[] for _ in parts], [[] for _ in parts], [0 for _ in parts]
    batch = [steps.step(i, 0) for i in parts]
    for j in range(num_steps):
        above = [steps.step(i, j + 1) for i in parts] if j + 1 < num_steps else None
        owners.walk(batch)
        for i, step in enumerate(batch):
            dst_ids[i].append(np.array(step.dst_ids))
            lists[i].append(_moved(i, step, None if above is None else above[i], owners, mode))
            buffer_rows[i] = max(buffer_rows[i], step.block.num_src)
        batch = above or []
    return Walk(dst_ids=dst_ids, lists=lists, buffer_rows=buffer_rows)


def _moved(i: int, step: ChunkStep, above: ChunkStep | None, owners: _Owners, mode: Mode) -> StepLists:
    """Returns the rows that a part moves in a step."""
    ids = step.block.src_ids
    if mode == "vanilla":
        rows = used_rows(step)
        whole = Incoming(ids=ids[rows], rows=rows)
        return StepLists(up=whole, down=whole)
    held = np.flatnonzero(ids >= 0).astype(np.int32)
    if mode == "p2p":
        shared = owners.incoming(i, step, held)
        return StepLists(up=shared, down=shared)
    later = ids[:0] if above is None else above.block.src_ids
    stays = held[held < len(later)]
    stays = stays[later[stays] == ids[stays]]
    up = Incoming(ids=np.array(step.load_ids), rows=np.array(step.load_rows), fetch=step.fetch)
    return StepLists(up=up, down=owners.incoming(i, step, np.setdiff1d(held, stays, assume_unique=True)))


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
