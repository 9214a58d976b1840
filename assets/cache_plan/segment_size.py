"""How many batches share a disk cache: the smallest segment whose bytes fit the disk budget, found on exact numbers.

kernels/disk_cache/segment_size.py knows the rows of every size after one pass over the batches. Bytes are whole pages, a
little more than the rows: where the budget leaves room for the most that padding can add, that is proof; otherwise the
bytes of a size are counted, by one more pass, before it is taken. When no size fits, the error names what one segment of
all batches needs, the least that is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from assets.building.stage import Progress
from assets.samples.read import Samples
from assets.sizes import format_bytes
from kernels.disk_cache.segment_plan import stored_bytes
from kernels.disk_cache.segment_size import SegmentSizes
from kernels.disk_cache.segments import disk_state, split_segment
from kernels.errors import InputError
from kernels.rows.pages import PAGE_BYTES
from kernels.rows.slots import ELSEWHERE
from kernels.types import Array

AT_ONCE = 8


class SegmentBatches:
    """The input ids of stored batches, by epoch and step, any run of them at a time; a context manager.

    Args:
        samples: where they are stored; each batch is verified when it is read.
        threads: batches that are read at once.
    """

    def __init__(self, samples: Samples, threads: int):
        self.samples, self.threads = samples, threads
        self.num_batches = samples.num_epochs * samples.num_batches
        self._pool = ThreadPoolExecutor(threads)

    def __enter__(self) -> SegmentBatches:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def load(self, first: int, last: int) -> tuple[Array, Array]:
        """Returns (ptr i64[n+1], node_ids) of batches first to last - 1.

        Raises:
            InputError: a batch is damaged.
        """
        ids = list(self._pool.map(self._input_ids, range(first, last)))
        return np.cumsum([0, *map(len, ids)]), np.concatenate(ids)

    def _input_ids(self, number: int) -> Array:
        blocks = self.samples.batch(*divmod(number, self.samples.num_batches))[1]
        return blocks[0].src_ids.copy()  # a view would keep the whole record


@dataclass(frozen=True, kw_only=True)
class Room:
    """What a size has to fit: bytes of a row, the disk budget in bytes, and a size that was asked for (0 = none)."""

    row_bytes: int
    disk_bytes: int
    segment_size: int


@dataclass(frozen=True, kw_only=True)
class SegmentChoice:
    """A segment size and the numbers it was chosen by.

    Attributes:
        size: batches a segment; rows: what all segments store; full_rows: what packing alone would.
        as_printed: the size that Algorithm 2 takes as printed, None where it finds none; rows_as_printed: what that stores.
        pairs: i64[B], rows that each batch needs from disk; full_rows is their sum.
        row_bytes, disk_budget, asked_size: as in `Room`.
    """

    size: int
    rows: int
    full_rows: int
    as_printed: int | None
    rows_as_printed: int
    pairs: Array
    row_bytes: int
    disk_budget: int
    asked_size: int

    def segments(self, num_batches: int) -> Sequence[tuple[int, int]]:
        """Returns (first batch, one behind the last) of each segment."""
        return [(first, min(first + self.size, num_batches)) for first in range(0, num_batches, self.size)]


def choose_size(batches: SegmentBatches, slot: Array, visits: Array, room: Room, progress: Progress) -> SegmentChoice:
    """Returns the smallest segment size whose bytes fit, or the one that was asked for.

    Args:
        batches: of all epochs.
        slot: i32[N] of the static tiers.
        visits: u32[N], batches that need a node.
        room: the budget.
        progress: listener.

    Raises:
        InputError: no size fits, or not the one that was asked for; the text says what would.
    """
    sizes = _count(batches, slot, progress)
    most_rows = room.disk_bytes // room.row_bytes if room.row_bytes else sizes.rows(1)
    if room.segment_size:
        size = min(room.segment_size, batches.num_batches)
        size = size if size in set(sizes.sizes()) else None
        if size is None:
            raise InputError(f"segment_size = {room.segment_size}", "give a smaller size, or 0 for the search")
        if not _fits(batches, slot, sizes, size, room):
            problem = f"segment_size = {size} needs about {format_bytes(sizes.rows(size) * room.row_bytes)} of disk"
            raise InputError(
                f"{problem}, the budget has {format_bytes(room.disk_bytes)}", "set it to 0, or raise `disk`"
            )
    else:
        size = sizes.smallest(most_rows)
        while size is not None and not _fits(batches, slot, sizes, size, room):
            size = sizes.smallest(most_rows, above=size)
    if size is None:
        raise _too_small(batches, slot, visits, room)
    printed = sizes.as_printed(most_rows)
    known = printed if printed is not None and printed in set(sizes.sizes()) else None
    return SegmentChoice(
        size=size,
        rows=sizes.rows(size),
        full_rows=sizes.rows(1),
        as_printed=printed,
        rows_as_printed=sizes.rows(known) if known else 0,
        pairs=sizes.pairs(),
        row_bytes=room.row_bytes,
        disk_budget=room.disk_bytes,
        asked_size=room.segment_size,
    )


def _count(batches: SegmentBatches, slot: Array, progress: Progress) -> SegmentSizes:
    sizes = SegmentSizes(slot, batches.num_batches)
    progress.start("rows of every segment size", batches.num_batches, "batches")
    for first in range(0, batches.num_batches, AT_ONCE):
        last = min(first + AT_ONCE, batches.num_batches)
        sizes.add(*batches.load(first, last), threads=batches.threads)
        progress.advance(last - first)
    progress.done()
    return sizes


def _fits(batches: SegmentBatches, slot: Array, sizes: SegmentSizes, size: int, room: Room) -> bool:
    """Tells whether the pages of a size fit the budget."""
    num_segments = -(-batches.num_batches // size)
    padding = (num_segments + batches.num_batches) * (PAGE_BYTES - 1)
    rows_bytes = sizes.rows(size) * room.row_bytes
    if rows_bytes + padding <= room.disk_bytes or rows_bytes > room.disk_bytes:
        return rows_bytes <= room.disk_bytes
    state, total = disk_state(slot), 0
    for first in range(0, batches.num_batches, size):
        found = split_segment(
            *batches.load(first, min(first + size, batches.num_batches)), state, threads=batches.threads
        )
        total += stored_bytes(len(found.cache_ids), np.diff(found.packed_ptr), room.row_bytes)
    return total <= room.disk_bytes


def _too_small(batches: SegmentBatches, slot: Array, visits: Array, room: Room) -> InputError:
    """Returns the error that names what one segment of all batches takes: a row is packed when only one batch needs it."""
    on_disk = slot == ELSEWHERE
    packed: list[Any] = []
    for number in range(batches.num_batches):
        ids = batches.load(number, number + 1)[1]
        packed.append(int(np.count_nonzero(on_disk[ids] & (visits[ids] == 1))))
    least = stored_bytes(int(np.count_nonzero(on_disk & (visits > 1))), np.array(packed), room.row_bytes)
    return InputError(
        f"the disk budget of {room.disk_bytes} bytes ({format_bytes(room.disk_bytes)}) is too small: with one disk cache for all "
        f"{batches.num_batches} batches, the least that is possible, they need {least} bytes ({format_bytes(least)})",
        f"set disk = {least} or more in [memory], or raise device or host, or store fewer epochs",
    )
