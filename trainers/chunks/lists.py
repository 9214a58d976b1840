"""Which rows move in a step of a full-graph pass, by mode and direction (HongTu, sections 5.1 and 5.3).

A `ChunkStep` says what comes into a device's buffer when steps run upwards. Everything else follows from it:

    mode           comes from the host                       comes from the peers
    vanilla        every neighbour of the chunk: V_ori       nothing
    p2p            the batch's rows of the own part: V_+p2p  the chunk's neighbours of other parts
    p2p+reuse      those that the step before had not: V_+ru the same, less those that the step before had

The backward pass walks the steps downwards. What came in on the way up is then exactly what no later step needs, so the rows that were
loaded are those whose gradients leave for the host, and the rows that were fetched are those whose gradients are pulled by their owner.
(Algorithm 3 of the paper walks upwards with the same lists, which would lose the gradients of rows that a later step uses as well.)
A backward pass that computes a layer again needs the rows themselves a second time, on the way down: those that the step above had not.
Their number over all steps is V_+ru as well, since two neighbouring sets share the same rows in either order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from kernels.types import Array, ChunkStep

Mode = Literal["vanilla", "p2p", "p2p+reuse"]


class Steps(Protocol):
    """Where chunk steps come from: an artifact, or a list in memory.

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
    """Rows that come into a part's buffer before a step.

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


def step_lists(steps: Steps, mode: Mode) -> list[list[StepLists]]:
    """Returns lists[part][step] of a mode.

    Memory: 12 bytes per row that moves, for both directions.
    """
    if mode == "vanilla":
        return _each(steps, _whole)
    if mode == "p2p":
        owners = _Owners(steps)
        return _each(steps, owners.shared)
    return _reusing(steps)


def _each(steps: Steps, of_step: object) -> list[list[StepLists]]:
    lists = [[] for _ in range(steps.num_parts)]
    for j in range(steps.chunks_per_part):
        for i, incoming in enumerate(of_step([steps.step(i, j) for i in range(steps.num_parts)])):  # type: ignore[operator]
            lists[i].append(StepLists(up=incoming, down=incoming))
    return lists


def used_rows(step: ChunkStep) -> Array:
    """Returns i32[|N_ij|], ascending: the buffer's rows that the chunk itself reads; others serve peers."""
    used = np.zeros(step.block.num_src, bool)
    used[step.block.indices] = True
    if step.block.dst_pos is not None:
        used[step.block.dst_pos] = True
    return np.flatnonzero(used).astype(np.int32)


def _whole(batch: Sequence[ChunkStep]) -> list[Incoming]:
    rows = [used_rows(step) for step in batch]
    return [Incoming(ids=step.block.src_ids[own], rows=own) for step, own in zip(batch, rows, strict=True)]


class _Owners:
    """Knows of every row of every buffer whether it is the part's own, and which row of which peer it was fetched from.

    A fetched row keeps its place for as long as successive steps use it, and so does the peer's row that it was fetched from.
    """

    def __init__(self, steps: Steps):
        num_rows = [
            max(steps.step(i, j).block.num_src for j in range(steps.chunks_per_part)) for i in range(steps.num_parts)
        ]
        self.num_parts = steps.num_parts
        self.peer = [np.full(n, i, np.int32) for i, n in enumerate(num_rows)]
        self.row = [np.full(n, -1, np.int32) for n in num_rows]

    def walk(self, batch: Sequence[ChunkStep]) -> None:
        """Goes on to the next step."""
        for i, step in enumerate(batch):
            self.peer[i][step.load_rows] = i
            for peer, theirs, mine in step.fetch:
                self.peer[i][mine], self.row[i][mine] = peer, theirs

    def incoming(self, i: int, step: ChunkStep, rows: Array) -> Incoming:
        """Returns where chosen rows of a part's buffer come from in the present step."""
        peers = self.peer[i][rows]
        own, fetch = rows[peers == i], []
        for peer in ((i + k) % self.num_parts for k in range(1, self.num_parts)):
            mine = rows[peers == peer]
            if len(mine):
                fetch.append((peer, self.row[i][mine], mine))
        return Incoming(ids=step.block.src_ids[own], rows=own, fetch=tuple(fetch))

    def shared(self, batch: Sequence[ChunkStep]) -> list[Incoming]:
        """Returns all rows of the next step's buffers."""
        self.walk(batch)
        return [self.incoming(i, step, _held(step)) for i, step in enumerate(batch)]


def _held(step: ChunkStep) -> Array:
    return np.flatnonzero(step.block.src_ids >= 0).astype(np.int32)


def _reusing(steps: Steps) -> list[list[StepLists]]:
    owners, lists = _Owners(steps), [[] for _ in range(steps.num_parts)]
    for j in range(steps.chunks_per_part):
        batch = [steps.step(i, j) for i in range(steps.num_parts)]
        owners.walk(batch)
        for i, step in enumerate(batch):
            above = steps.step(i, j + 1).block.src_ids if j + 1 < steps.chunks_per_part else step.block.src_ids[:0]
            held = _held(step)
            stays = held[held < len(above)]
            stays = stays[above[stays] == step.block.src_ids[stays]]
            rows = np.setdiff1d(held, stays, assume_unique=True)
            up = Incoming(ids=step.load_ids, rows=step.load_rows, fetch=step.fetch)
            lists[i].append(StepLists(up=up, down=owners.incoming(i, step, rows)))
    return lists
