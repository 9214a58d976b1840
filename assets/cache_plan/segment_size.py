"""The number of batches that share a disk cache: the smallest segment whose bytes fit the disk budget, found on exact numbers.

kernels/disk_cache/segment_size.py knows the rows of every size after one pass over the batches. Bytes are whole pages, a little more than
the rows: if the budget leaves space for the largest possible padding, that is proof; otherwise one more pass counts the bytes of a size
before it is taken. If no size fits, the error names the bytes of one segment of all batches, the least that is possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from graphmill.assets.building.stage import Progress
from graphmill.assets.samples.wanted import WantedRows
from graphmill.assets.sizes import format_bytes
from graphmill.kernels.disk_cache.segment_plan import stored_bytes
from graphmill.kernels.disk_cache.segment_size import EXACT_SIZES, SegmentSizes
from graphmill.kernels.disk_cache.segments import disk_state, split_segment
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.rows.slots import ELSEWHERE
from graphmill.kernels.types import Array

AT_ONCE = 8
"""Batches that are read together while sizes are counted."""


Blocks = Sequence[tuple[int, int]]
"""(first batch, one behind the last) of consecutive batches that share no segment with others."""


def cut(blocks: Blocks, size: int) -> Blocks:
    """Returns (first batch, one behind the last) of each segment of at most `size` batches."""
    return [(first, min(first + size, last)) for low, last in blocks for first in range(low, last, size)]


class SegmentBatches:
    """The rows that stored batches need, in the order of the batches, read in ranges of any length; a context manager.

    A batch that was drawn as of times may have a node several times, whose row it reads from disk once.

    Args:
        slot: i32[N], slots of the static tiers.
        threads: number of batches that are read at the same time.

    Attributes:
        repeated: i64[B], inputs of each batch that has been read whose row on disk is that of another input.
    """

    def __init__(self, wanted: WantedRows, slot: Array, threads: int):
        self.wanted, self.slot, self.threads, samples = wanted, slot, threads, wanted.samples
        self.num_batches, self.blocks = samples.num_stored, samples.order.blocks
        self.repeated = np.zeros(self.num_batches, np.int64)
        self._repeats = samples.artifact.config.get("before") is not None
        self._pool = ThreadPoolExecutor(threads)

    def __enter__(self) -> SegmentBatches:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def load(self, first: int, last: int) -> tuple[Array, Array]:
        """Returns (ptr i64[n+1], row ids) of batches first to last - 1, rows on disk once; raises InputError if a batch is damaged."""
        ids = list(self._pool.map(self._ids, range(first, last)))
        return np.cumsum([0, *map(len, ids)]), np.concatenate(ids)

    def _ids(self, number: int) -> Array:
        ids = self.wanted.ids(number)
        if not self._repeats:
            return ids
        kept = self.slot[ids] != ELSEWHERE
        on_disk = np.flatnonzero(~kept)
        kept[on_disk[np.unique(ids[on_disk], return_index=True)[1]]] = True
        self.repeated[number] = len(ids) - np.count_nonzero(kept)
        return ids[kept]


@dataclass(frozen=True, kw_only=True)
class SizeLimits:
    """The limits of a segment size.

    Attributes:
        segment_size: the configured size in batches; 0 = none.
        keys: keys of `[memory]` for the disk and for the static tiers, for errors.
    """

    row_bytes: int
    disk_bytes: int
    segment_size: int
    keys: tuple[str, str] = ("disk", "device or host")


@dataclass(frozen=True, kw_only=True)
class SegmentChoice:
    """A segment size and the numbers it was chosen by.

    Attributes:
        size: batches per segment.
        rows, full_rows: rows that all segments store, and rows that packing alone would store.
        as_printed: the size that Algorithm 2 takes as printed, None if it finds none.
        rows_as_printed: rows that segments of that size store.
        pairs: i64[B], rows that each batch needs from disk; full_rows is their sum.
        row_bytes, disk_budget, asked_size: `row_bytes`, `disk_bytes` and `segment_size` of `SizeLimits`.
        blocks: batches that share no segment with others.
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
    blocks: Blocks

    def segments(self) -> Blocks:
        """Returns (first batch, one behind the last) of each segment."""
        return cut(self.blocks, self.size)


class BlockSizes:
    """The rows that segments of every size store in all blocks, whose batches were added; methods are those of `SegmentSizes`."""

    def __init__(self, blocks: Sequence[SegmentSizes]):
        self.blocks = blocks

    def sizes(self) -> Iterator[int]:
        """Yields the sizes whose rows are known in every block, ascending; a larger one makes a block one segment."""
        known = [{*each.sizes()} for each in self.blocks]
        for size in max(self.blocks, key=lambda each: each.num_batches).sizes():
            if all(min(size, each.num_batches) in sizes for each, sizes in zip(self.blocks, known, strict=True)):
                yield size

    def rows(self, size: int) -> int:
        """Returns the rows that segments of at most `size` batches store."""
        return sum(each.rows(min(size, each.num_batches)) for each in self.blocks)

    def pairs(self) -> Array:
        """Returns i64[B], the rows that each batch needs from disk."""
        return np.concatenate([each.pairs() for each in self.blocks])

    def smallest(self, most_rows: int, above: int = 0) -> int | None:
        """Returns the smallest size above `above` whose rows are at most `most_rows`, or None."""
        return next((size for size in self.sizes() if size > above and self.rows(size) <= most_rows), None)

    def as_printed(self, most_rows: int) -> int | None:
        """Returns the size that Algorithm 2 takes as printed; None if it finds none, or if there are several blocks."""
        return self.blocks[0].as_printed(most_rows) if len(self.blocks) == 1 else None


def choose_size(batches: SegmentBatches, slot: Array, limits: SizeLimits, progress: Progress) -> SegmentChoice:
    """Returns the smallest segment size whose bytes fit, or the configured one.

    Args:
        slot: i32[N], slots of the static tiers.

    Raises:
        InputError: no size fits, or the configured one does not; the text names one that would.
    """
    sizes = _count(batches, slot, progress)
    most_rows = limits.disk_bytes // limits.row_bytes if limits.row_bytes else sizes.rows(1)
    if limits.segment_size:
        size = min(limits.segment_size, max(last - first for first, last in batches.blocks))
        counted = list(sizes.sizes())
        if size not in counted:
            below, above = max(n for n in counted if n < size), min(n for n in counted if n > size)
            problem = f"segment_size = {size}: of {batches.num_batches:,} batches not every size above {EXACT_SIZES:,} is counted"
            raise InputError(problem, f"give {below} or {above}, or 0 for the search")
        if not _fits(batches, slot, sizes, size, limits):
            needed = max(sizes.rows(size) * limits.row_bytes, _page_bytes(batches, slot, size, limits))
            problem = f"segment_size = {size} needs {format_bytes(needed)} of disk, the budget has {format_bytes(limits.disk_bytes)}"
            raise InputError(problem, f"set segment_size = 0 in [cache_plan], or raise {limits.keys[0]} in [memory]")
    else:
        size = sizes.smallest(most_rows)
        while size is not None and not _fits(batches, slot, sizes, size, limits):
            size = sizes.smallest(most_rows, above=size)
    if size is None:
        raise _too_small(batches, slot, limits)
    printed = sizes.as_printed(most_rows)
    known = printed if printed is not None and printed in set(sizes.sizes()) else None
    return SegmentChoice(
        size=size,
        rows=sizes.rows(size),
        full_rows=sizes.rows(1),
        as_printed=printed,
        rows_as_printed=sizes.rows(known) if known else 0,
        pairs=sizes.pairs(),
        row_bytes=limits.row_bytes,
        disk_budget=limits.disk_bytes,
        asked_size=limits.segment_size,
        blocks=batches.blocks,
    )


def _count(batches: SegmentBatches, slot: Array, progress: Progress) -> BlockSizes:
    found = []
    progress.start("rows of every segment size", batches.num_batches, "batches")
    for block in batches.blocks:
        found.append(SegmentSizes(slot, block[1] - block[0]))
        for first, last in cut([block], AT_ONCE):
            found[-1].add(*batches.load(first, last), threads=batches.threads)
            progress.advance(last - first)
    progress.done()
    return BlockSizes(found)


def _fits(batches: SegmentBatches, slot: Array, sizes: BlockSizes, size: int, limits: SizeLimits) -> bool:
    padding = (len(cut(batches.blocks, size)) + batches.num_batches) * (PAGE_BYTES - 1)
    rows_bytes = sizes.rows(size) * limits.row_bytes
    if rows_bytes + padding <= limits.disk_bytes or rows_bytes > limits.disk_bytes:
        return rows_bytes <= limits.disk_bytes
    return _page_bytes(batches, slot, size, limits) <= limits.disk_bytes


def _page_bytes(batches: SegmentBatches, slot: Array, size: int, limits: SizeLimits) -> int:
    state, total = disk_state(slot), 0
    for first, last in cut(batches.blocks, size):
        found = split_segment(*batches.load(first, last), state, threads=batches.threads)
        total += stored_bytes(len(found.cache_ids), np.diff(found.packed_ptr), limits.row_bytes)
    return total


def _too_small(batches: SegmentBatches, slot: Array, limits: SizeLimits) -> InputError:
    """Returns the error that names the bytes of one segment per block: a row is packed if only one batch of it needs the row."""
    on_disk, least = slot == ELSEWHERE, 0
    for block in batches.blocks:
        packed, visits = [], np.zeros(len(slot), np.uint32)  # of evaluations, too
        for number in range(*block):
            visits[batches.load(number, number + 1)[1]] += 1
        for number in range(*block):
            ids = batches.load(number, number + 1)[1]
            packed.append(int(np.count_nonzero(on_disk[ids] & (visits[ids] == 1))))
        least += stored_bytes(int(np.count_nonzero(on_disk & (visits > 1))), np.array(packed), limits.row_bytes)
    of = f"all {batches.num_batches} batches" if len(batches.blocks) == 1 else "the batches of each part"
    return InputError(
        f"the disk budget of {limits.disk_bytes} bytes ({format_bytes(limits.disk_bytes)}) is too small: with one disk cache for {of}, "
        f"the least that is possible, they need {least} bytes ({format_bytes(least)})",
        f"set {limits.keys[0]} = {least} or more in [memory], or raise {limits.keys[1]}, or store fewer epochs",
    )
