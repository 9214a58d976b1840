"""Packing one group of segments: addresses batch by batch, then rows by one pass over the features.

First every batch of the group is read and each of its inputs gets its slot; that decides how long each chunk is. Then the files are made,
and the rows come range by range (kernels/pack.py). assets/packed_chunks.py says what the files hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

from assets.arrays import DATA_OFFSET, forget_pages
from assets.graph import open_graph
from assets.stage import Check, Progress, Summary
from assets.stored_samples import Samples, open_samples
from assets.table_ranges import read_ranges
from kernels.errors import InputError
from kernels.pack import PackLists, pack_range
from kernels.pages import padded_bytes
from kernels.slots import ELSEWHERE, STAGED, pack
from kernels.types import Array, FeatureTable

if TYPE_CHECKING:
    from assets.artifact import Artifact
    from assets.packed_chunks import Group
    from assets.writer import Writer

CHECKED_ROWS = 4096
"""Packed and cached rows of a group that are compared with the table by another way."""


class Addresses:
    """Says where each input of a batch will be; batches come segment by segment.

    Memory: 8 bytes a node.

    Args:
        slot: i32[N] of the plan.
    """

    def __init__(self, slot: Array):
        self.slot = slot
        self._packed_row = np.zeros(len(slot), np.int32)
        self._place = np.full(len(slot), -1, np.int32)
        self._cached = np.zeros(0, np.int64)

    def enter(self, cache_ids: Array) -> None:
        """A segment begins, whose disk cache holds these nodes, in this order."""
        self._place[self._cached] = -1
        self._place[cache_ids] = np.arange(len(cache_ids), dtype=np.int32)
        self._cached = cache_ids

    def of(self, input_ids: Array, packed_ids: Array) -> tuple[Array, Array]:
        """Returns (slots i32[n], places i32[c]) of a batch: places ascending, rows of the segment's cache.

        Args:
            input_ids: ids[n] global, each once.
            packed_ids: ids[p] ascending, what is packed with the batch.

        Raises:
            InputError: an input is in no tier, or a packed row is no input.
        """
        slots = self.slot[input_ids]
        from_disk = np.flatnonzero(slots == ELSEWHERE)
        ids = input_ids[from_disk]
        places = self._place[ids]
        cached = places >= 0
        self._packed_row[packed_ids] = np.arange(len(packed_ids), dtype=np.int32)
        packed = self._packed_row[ids[~cached]]
        inside = (packed < len(packed_ids)) & (len(packed) == len(packed_ids))
        if not (inside.all() and np.array_equal(packed_ids[packed], ids[~cached])):
            problem = f"a batch needs {len(packed)} rows packed, the plan packs {len(packed_ids)} for it, or others"
            raise InputError(problem, "build the cache plan for these samples")
        rows = np.empty(len(ids), np.int64)
        rows[~cached] = packed
        order = np.argsort(places[cached], kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        rows[cached] = len(packed) + rank
        slots[from_disk] = pack(STAGED, rows)
        return slots, places[cached][order]


class _Layout(NamedTuple):
    """What the first pass found out: where the sections of each chunk begin."""

    chunks: Array  # i64[n+1] bytes of the file
    places: Array  # i64[n]
    rows: Array  # i64[n]
    num_cached: Array  # i64[n]
    sections: Path  # addresses and places of all chunks, one after the other


class _Plan(NamedTuple):
    """The part of the plan that a group needs, numbered from its first batch and segment."""

    first: int
    segment_of: Array
    cache_ptr: Array
    cache_ids: Array
    packed_ptr: Array
    packed_ids: Array

    def packed(self, batch: int) -> Array:
        return self.packed_ids[self.packed_ptr[batch] : self.packed_ptr[batch + 1]]

    def cache(self, segment: int) -> Array:
        return self.cache_ids[self.cache_ptr[segment] : self.cache_ptr[segment + 1]]


def pack_group(
    inputs: Mapping[str, Artifact], group: Group, threads: int, range_bytes: int, writer: Writer, progress: Progress
) -> Summary:
    """Builds the part of one group; see assets/packed_chunks.py.

    Raises:
        InputError: the plan is not one of these samples, something that is read is damaged, or the disk is full.
    """
    table, samples = open_graph(inputs["graph"]).features, open_samples(inputs["samples"])
    plan = _part_of(inputs["cache_plan"], group)
    layout = _lay_out(np.array(inputs["cache_plan"].array("slot")), plan, samples, table.row_bytes, writer)
    chunks = writer.create("chunks", int(layout.chunks[-1]) - DATA_OFFSET, np.uint8)
    _copy_sections(layout, chunks)
    cache_bytes = padded_bytes(np.diff(plan.cache_ptr) * table.row_bytes)
    cache_bounds = DATA_OFFSET + np.cumsum(np.concatenate([[0], cache_bytes]))
    caches = writer.create("caches", int(cache_bounds[-1]) - DATA_OFFSET, np.uint8)
    deals = [(_chunk_lists(plan, layout), chunks), (_cache_lists(plan, cache_bounds), caches)]
    num_rows = deal(table, range_bytes, deals, threads, progress)
    writer.save("bounds", layout.chunks)
    writer.save("num_cached", layout.num_cached)
    writer.save("digests", _digests(layout.chunks, chunks, threads))
    writer.save("cache_bounds", cache_bounds)
    wrong = _compare(table, plan, layout, chunks, caches, cache_bounds)
    return Summary(
        numbers={"first_segment": group.low, "first_batch": plan.first, "num_batches": len(layout.num_cached), "num_rows": num_rows},
        checks=[Check(name="rows are the features", passed=not wrong, detail=wrong or "drawn rows compared byte by byte")],
    )  # fmt: skip


def _part_of(plan: Artifact, group: Group) -> _Plan:
    segment_of, ptr, cache_ptr = (np.asarray(plan.array(name)) for name in ("segment_of", "packed_ptr", "cache_ptr"))
    first, last = (int(place) for place in np.searchsorted(segment_of, [group.low, group.high]))
    cache_ptr = np.array(cache_ptr[group.low : group.high + 1])
    ptr = np.array(ptr[first : last + 1])
    return _Plan(
        first=first,
        segment_of=np.array(segment_of[first:last]) - group.low,
        cache_ptr=cache_ptr - cache_ptr[0],
        cache_ids=np.array(plan.array("cache_ids")[cache_ptr[0] : cache_ptr[-1]]),
        packed_ptr=ptr - ptr[0],
        packed_ids=np.array(plan.array("packed_ids")[ptr[0] : ptr[-1]]),
    )


def _lay_out(slot: Array, plan: _Plan, samples: Samples, row_bytes: int, writer: Writer) -> _Layout:
    """Computes the addresses of all batches, keeps them in a scratch file, and adds the lengths up."""
    addresses, sections, lengths, segment = Addresses(slot), writer.scratch() / "sections", [], -1
    with sections.open("wb") as file:
        for batch, input_ids in enumerate(_inputs(samples, plan.first, len(plan.segment_of))):
            if plan.segment_of[batch] != segment:
                segment = int(plan.segment_of[batch])
                addresses.enter(plan.cache(segment))
            packed_ids = plan.packed(batch)
            slots, places = addresses.of(input_ids, packed_ids)
            for values in (slots, places):
                file.write(values.tobytes())
                file.write(bytes(int(padded_bytes(values.nbytes)) - values.nbytes))
            lengths.append((slots.nbytes, places.nbytes, len(packed_ids) * row_bytes))
    sizes = padded_bytes(np.array(lengths, np.int64).reshape(-1, 3))
    chunks = DATA_OFFSET + np.cumsum(np.concatenate([[0], sizes.sum(axis=1)]))
    places = chunks[:-1] + sizes[:, 0]
    return _Layout(
        chunks, places, places + sizes[:, 1], np.array([each[1] // 4 for each in lengths], np.int64), sections
    )


def _inputs(samples: Samples, first: int, count: int) -> Iterator[Array]:
    """Yields the input ids of consecutive batches; the next one is read meanwhile."""

    def read(number: int) -> Array:
        return samples.record(*divmod(number, samples.num_batches)).blocks[0].src_ids

    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(read, first)
        for number in range(first, first + count):
            input_ids = coming.result()
            if number + 1 < first + count:
                coming = ahead.submit(read, number + 1)
            yield input_ids


def _copy_sections(layout: _Layout, chunks: Array) -> None:
    """Moves addresses and places to the beginning of each chunk."""
    with layout.sections.open("rb") as file:
        for start, end in zip(layout.chunks[:-1], layout.rows, strict=True):
            chunks[start - DATA_OFFSET : end - DATA_OFFSET] = np.frombuffer(file.read(end - start), np.uint8)
            forget_pages(chunks)


def _chunk_lists(plan: _Plan, layout: _Layout) -> PackLists:
    return PackLists(ptr=plan.packed_ptr, ids=plan.packed_ids, offsets=layout.rows - DATA_OFFSET)


def _cache_lists(plan: _Plan, bounds: Array) -> PackLists:
    """Returns the caches' rows by node id, with their places in the plan's order."""
    places = [np.argsort(plan.cache(segment), kind="stable") for segment in range(len(plan.cache_ptr) - 1)]
    ids = [plan.cache(segment)[place] for segment, place in enumerate(places)]
    return PackLists(
        ptr=plan.cache_ptr,
        ids=np.concatenate([plan.cache_ids[:0], *ids]),
        offsets=bounds[:-1] - DATA_OFFSET,
        places=np.concatenate([np.zeros(0, np.int64), *places]).astype(np.int32),
    )


def deal(
    table: FeatureTable, range_bytes: int, deals: list[tuple[PackLists, Any]], threads: int, progress: Progress
) -> int:
    """Deals all rows of the table; returns how many were stored.

    Raises:
        InputError: the table is damaged, or the lists name rows that it does not have.
    """
    written, total = 0, (table.num_rows * table.row_bytes >> 20) + 1
    progress.start("pack", total, "MiB")
    told = 0
    for first_row, rows in read_ranges(table, range_bytes):
        for lists, out in deals:
            written += pack_range(rows, first_row, lists, out, threads)
            forget_pages(out)
        now = (first_row + len(rows)) * table.row_bytes >> 20
        progress.advance(now - told)
        told = now
    progress.advance(total - told)
    progress.done()
    if not all(lists.done for lists, _ in deals):
        raise InputError("the plan names nodes that the feature table does not have", "build the plan for this graph")
    return written


def _digests(bounds: Array, chunks: Any, threads: int) -> Array:
    def digest(batch: int) -> int:
        value = xxhash.xxh3_64_intdigest(chunks[bounds[batch] - DATA_OFFSET : bounds[batch + 1] - DATA_OFFSET].data)
        forget_pages(chunks)
        return value

    with ThreadPoolExecutor(threads) as pool:
        return np.array(list(pool.map(digest, range(len(bounds) - 1))), np.uint64)


def _compare(table: FeatureTable, plan: _Plan, layout: _Layout, chunks: Array, caches: Array, bounds: Array) -> str:
    """Compares rows at drawn places with the table, found by the plan's lists alone. Returns what is wrong, or ""."""
    rows, row_bytes = table.open().view(np.uint8).reshape(table.num_rows, -1), table.row_bytes
    cases = (
        (plan.packed_ptr, plan.packed_ids, layout.rows, chunks),
        (plan.cache_ptr, plan.cache_ids, bounds[:-1], caches),
    )
    for ptr, ids, starts, out in cases:
        entries = np.unique(np.linspace(0, max(0, len(ids) - 1), min(len(ids), CHECKED_ROWS)).astype(np.int64))
        for entry in entries.tolist():
            number = int(np.searchsorted(ptr, entry, side="right")) - 1
            start = int(starts[number]) - DATA_OFFSET + (entry - int(ptr[number])) * row_bytes
            if not np.array_equal(out[start : start + row_bytes], rows[ids[entry]]):
                return f"row {int(ids[entry])} is another one at byte {start + DATA_OFFSET}"
    forget_pages(chunks)
    forget_pages(caches)
    return ""
