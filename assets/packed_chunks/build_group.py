"""Packs one group of segments: all rows that its batches want from disk, by one pass over the features.

The plan has the number of rows of a batch in each tier, so the place of every chunk is known before anything is read. While the first range
of the table is on its way, each batch of the group is read and its inputs get their slots, which go in front of its rows; then the rows
come range by range (assets/packed_chunks/distribute.py); those of caches and images are put in order at the end (reorder.py beside it).

The slot of an input is its row in a static tier, in the batch's chunk, or in the disk cache of its segment. Inputs that the device or the
host holds keep the slot of the plan. The others are looked up among the batch's packed nodes, and among the nodes that the batch reads from
its segment's cache. Inputs and both lists are sorted, so all look-ups go from left to right, and no array as long as the graph is needed.
assets/packed_chunks/__init__.py describes the files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from graphmill.assets.building.stage import Building, Check, Summary
from graphmill.assets.cache_plan.read import open_segment_plan, wanted_counts
from graphmill.assets.features.read import open_features
from graphmill.assets.packed_chunks.config import PackedConfig, PackedExecution, SegmentRange
from graphmill.assets.packed_chunks.distribute import WAITING_THREADS, BufferSizes, RowDistributor, Streamed, distribute
from graphmill.assets.packed_chunks.expected_reads import read_orders
from graphmill.assets.packed_chunks.reorder import Reorderer
from graphmill.assets.samples.read import Samples, open_samples
from graphmill.assets.samples.wanted import WantedRows
from graphmill.assets.storage.files.arrays import DATA_OFFSET
from graphmill.assets.storage.files.direct_array import DirectArray, RegionWriter
from graphmill.assets.storage.files.read_ranges import table_reader
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.disk_cache.segments import SegmentPlan
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES, chunk_digest, padded_bytes
from graphmill.kernels.rows.slots import ELSEWHERE, STAGED, make_slots
from graphmill.kernels.types import Array

ROWS_CHECK = "rows are the features"
CHECKED_LISTS, CHECKED_ROWS, CHECKED_BYTES = 64, 64, 1 << 20
"""Most chunks, caches and images of a group that are compared with the table in another way, and most rows and bytes of each."""


class _Layout(NamedTuple):
    """First bytes, in the files, of the sections of each chunk and of each cache."""

    chunks: Array  # i64[n+1]
    places: Array  # i64[n]
    rows: Array  # i64[n]
    caches: Array  # i64[s+1]


class _Region(NamedTuple):
    """Nodes whose rows should lie in a file one after the other, and the array for the digests of its pages."""

    file: DirectArray
    start: int
    end: int
    node_ids: Array
    page_words: Array | None = None


def _tiers_in(segments: SegmentRange, samples: Samples) -> tuple[str, ...]:
    """Returns the static tiers of a part: they are in that of segment 0, or in one of their own beside parts that machines read apart."""
    first = segments.low == 0 and (samples.order.num_parts == 1 or segments.high == 0)
    return ("device", "host") if first else ()


def build_group(building: Building[PackedConfig, PackedExecution], stored: Sequence[str]) -> Summary:
    """Builds the part of one group of segments; see assets/packed_chunks/__init__.py.

    Args:
        stored: names of the parts of the samples that have its batches, the only ones that are opened.

    Raises:
        InputError: the plan is of other samples, an input is damaged, or the disk is full.
    """
    inputs, writer, segments = building.inputs, building.writer, SegmentRange.of(building.part)
    threads = building.execution.threads_each
    table, samples = open_features(inputs["features"], verified=True), open_samples(inputs["samples"], stored=stored)
    plan = open_segment_plan(inputs["cache_plan"]).group(segments.low, segments.high)
    sizes = BufferSizes.of(building.execution.process_bytes)
    wanted = WantedRows(samples, table.num_rows if building.semantic.of_edges else None)
    layout = _lay_out(plan, wanted_counts(inputs["cache_plan"], inputs["samples"]), table.row_bytes)
    chunk_file = writer.create_direct("chunks", int(layout.chunks[-1]) - DATA_OFFSET, np.uint8)
    chunk_words = np.zeros((layout.chunks[-1] - DATA_OFFSET) // PAGE_BYTES, np.uint64)
    orders = read_orders(samples, plan) if building.semantic.order == "reads" else None
    packed = _packed_regions(plan, layout, chunk_file, chunk_words, orders)
    chunks = _chunk_sinks(layout, table, packed, chunk_words, streams=orders is None)
    cache_words = np.zeros((layout.caches[-1] - DATA_OFFSET) // PAGE_BYTES, np.uint64)
    tiers = _tiers_in(segments, samples)
    regions = _placed_regions(inputs["cache_plan"], plan, layout, cache_words, table, tiers, writer)
    reorderer = Reorderer(table.row_bytes, sizes.span_bytes)
    for region in regions if orders is None else [*packed, *regions]:
        reorderer.add(region.file, region.start, region.end, table.rows_of(region.node_ids), region.page_words)
    distributor = RowDistributor([*chunks, *reorderer.spans], table.row_bytes, sizes.buffer_bytes)
    heads = _heads(np.array(inputs["cache_plan"].array("slot")), plan, wanted, distributor, threads, orders)
    clocks = [time.perf_counter()]
    distribute(table, distributor, sizes.range_bytes, threads, building.progress, heads)
    clocks.append(time.perf_counter())
    reorderer.write_in_order(distributor, threads)
    clocks.append(time.perf_counter())
    _save(writer, plan, layout, chunk_words, cache_words)
    check = _compare(table, [*packed, *regions])
    seconds = np.diff([*clocks, time.perf_counter()]).tolist()
    writer.note(phase_seconds=dict(zip(("distribute", "reorder", "compare"), seconds, strict=True)))
    numbers = {"first_segment": segments.low, "first_batch": plan.first_batch}
    numbers |= {"num_batches": len(chunks), "num_rows": len(distributor.lists.ids)}
    return Summary(numbers=numbers, checks=[check])


def _save(writer: Writer, plan: SegmentPlan, layout: _Layout, chunk_words: Array, cache_words: Array) -> None:
    """Writes the first bytes of a group's chunks and caches, their contents and their digests."""
    pages = pairwise(((layout.chunks - DATA_OFFSET) // PAGE_BYTES).tolist())
    digests = np.array([chunk_digest(chunk_words[low:high]) for low, high in pages], np.uint64)
    for name, array in (
        ("bounds", layout.chunks), ("num_cached", plan.cached_rows), ("digests", digests),
        ("chunk_digests", chunk_words), ("cache_bounds", layout.caches), ("cache_digests", cache_words),
    ):  # fmt: skip
        writer.save(name, array)


def _lay_out(plan: SegmentPlan, num_wanted: Array, row_bytes: int) -> _Layout:
    """Returns the places of chunks and caches; `num_wanted` i64[B] are the rows that each of all batches needs."""
    count = len(plan.segment_of)
    lengths = (
        4 * np.array(num_wanted[plan.first_batch : plan.first_batch + count]),
        4 * plan.cached_rows,
        plan.packed_rows * row_bytes,
    )
    slots, places, rows = (padded_bytes(each.astype(np.int64)) for each in lengths)
    chunks = DATA_OFFSET + np.cumsum(np.concatenate([[0], slots + places + rows]))
    caches = padded_bytes(np.diff(plan.cache_ptr) * row_bytes)
    return _Layout(
        chunks=chunks,
        places=chunks[:-1] + slots,
        rows=chunks[:-1] + slots + places,
        caches=DATA_OFFSET + np.cumsum(np.concatenate([[0], caches])),
    )


def _packed_regions(
    plan: SegmentPlan, layout: _Layout, file: DirectArray, words: Array, orders: Sequence[Array] | None
) -> list[_Region]:
    """Returns the region of the rows of each chunk, with the digests of its pages; `orders` as of `_heads`."""
    bounds = zip(layout.rows.tolist(), layout.chunks[1:].tolist(), strict=True)
    return [
        _Region(
            file, low, high, _in_order(plan.packed(batch), orders, batch), words[(low - DATA_OFFSET) // PAGE_BYTES :]
        )
        for batch, (low, high) in enumerate(bounds)
    ]


def _in_order(packed: Array, orders: Sequence[Array] | None, batch: int) -> Array:
    return packed if orders is None else packed[orders[batch]]


def _chunk_sinks(
    layout: _Layout, table: FeatureTable, packed: Sequence[_Region], words: Array, *, streams: bool
) -> list[Streamed]:
    """Returns the sinks of the chunks, rows included if they are streamed; else of what is in front of the rows."""
    sinks = []
    for low, rows in zip(layout.chunks[:-1].tolist(), packed, strict=True):
        # Rows stand in the order of their nodes, so the rows of ascending nodes are ascending.
        ids, end = (rows.node_ids, rows.end) if streams else (rows.node_ids[:0], rows.start)
        region = RegionWriter(rows.file, low, end, page_words=words[(low - DATA_OFFSET) // PAGE_BYTES :])
        sinks.append(Streamed(table.rows_of(ids), rows.start - low, region))
    return sinks


def _placed_regions(
    artifact: Artifact,
    plan: SegmentPlan,
    layout: _Layout,
    words: Array,
    table: FeatureTable,
    tiers: Sequence[str],
    writer: Writer,
) -> list[_Region]:
    """Makes the files of the caches and of the images of `tiers`; returns their regions."""
    bounds = layout.caches.tolist()
    caches = writer.create_direct("caches", bounds[-1] - DATA_OFFSET, np.uint8)
    found = [
        _Region(caches, low, high, plan.cache(segment), words[(low - DATA_OFFSET) // PAGE_BYTES :])
        for segment, (low, high) in enumerate(pairwise(bounds))
    ]
    for tier in tiers:
        node_ids = np.asarray(artifact.array(f"{tier}_ids"))
        image = writer.create_direct(f"{tier}_image", (len(node_ids), table.width), table.dtype)
        found.append(_Region(image, DATA_OFFSET, image.num_bytes, node_ids))
    return found


def _heads(
    slot: Array,
    plan: SegmentPlan,
    wanted: WantedRows,
    distributor: RowDistributor,
    threads: int,
    orders: Sequence[Array] | None,
) -> list[Callable[[], None]]:
    """Returns functions that put slots and places in front of the rows of every chunk, cut for some threads.

    Args:
        orders: for each batch i32[p], the places in its list of packed rows in the order of its chunk; None for the order of the list.
    """

    def put(batch: int) -> None:
        input_ids = wanted.ids(plan.first_batch + batch)
        cached = CachedNodes.of(plan.cache(int(plan.segment_of[batch])), plan.cached(batch))
        order = None if orders is None else orders[batch]
        slots, places = input_slots(slot[input_ids], input_ids, plan.packed(batch), cached, order)
        if len(places) != len(cached.ids) or distributor.sinks[batch].head_bytes != sum(
            int(padded_bytes(each.nbytes)) for each in (slots, places)
        ):
            problem = (
                f"batch {plan.first_batch + batch} has {len(slots)} inputs, {len(places)} of them in the disk cache"
            )
            raise InputError(f"{problem}; the plan expects others", "build the cache plan for these samples")
        for values in (slots, places):
            distributor.put(batch, values.view(np.uint8))
            distributor.put(batch, np.zeros(int(padded_bytes(values.nbytes)) - values.nbytes, np.uint8))

    def put_all(batches: Array) -> None:
        for batch in batches.tolist():
            put(batch)

    pieces = np.array_split(np.arange(len(plan.segment_of)), threads + WAITING_THREADS)
    return [partial(put_all, piece) for piece in pieces if len(piece)]


def _compare(table: FeatureTable, regions: list[_Region]) -> Check:
    """Compares rows at sampled places with rows of the table that the plan's lists name."""
    wrong, compared = _first_wrong(table, regions)
    total = sum(len(region.node_ids) for region in regions)
    return Check(
        name=ROWS_CHECK,
        passed=not wrong,
        detail=wrong or f"{compared:,} drawn rows of {total:,} are those of the table, byte by byte",
        numbers={"rows compared": compared, "rows that differ": int(bool(wrong)), "rows": total},
    )


def _first_wrong(table: FeatureTable, regions: list[_Region]) -> tuple[str, int]:
    """Returns (the first sampled row that differs, in words, "" for none; number of compared rows)."""
    compared = 0
    regions = [each for each in regions if len(each.node_ids)]
    reader, row_bytes = table_reader(), table.row_bytes
    most = max(1, min(CHECKED_ROWS, CHECKED_BYTES // row_bytes))
    drawn = np.unique(np.linspace(0, len(regions) - 1, min(len(regions), CHECKED_LISTS)).astype(np.int64))
    with reader.open(table.path) as features:
        for region in (regions[number] for number in drawn.tolist()):
            count = len(region.node_ids)
            entries = np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
            ids = np.asarray(region.node_ids)[entries]
            expected, _ = reader.read_rows(features, table.rows_of(ids), row_bytes=row_bytes, offset=table.offset)
            with reader.open(region.file.path) as file:
                found, _ = reader.read_rows(file, entries, row_bytes=row_bytes, offset=region.start)
            compared += len(ids)
            different = np.flatnonzero((found != expected).any(axis=1))
            if len(different):
                place = int(entries[different[0]])
                at = region.start + place * row_bytes
                return f"row {int(ids[different[0]])} is another one at byte {at} of {region.file.path.name}", compared
    return "", compared


class CachedNodes(NamedTuple):
    """The nodes whose rows a batch reads from its segment's disk cache.

    Attributes:
        ids: ids[c], ascending, the nodes, each once.
        rows: i64[c], the row of the cache of each node.
    """

    ids: Array
    rows: Array

    @staticmethod
    def of(cache_ids: Array, members: Array) -> CachedNodes:
        """Returns a batch's rows (`members`, i32[c]) of a cache whose rows have the nodes `cache_ids`, ids[m]; sorted by their node."""
        ids = cache_ids[members]
        order = np.argsort(ids)
        return CachedNodes(ids[order], members[order].astype(np.int64))


def input_slots(
    slots: Array, input_ids: Array, packed_ids: Array, cached: CachedNodes, order: Array | None = None
) -> tuple[Array, Array]:
    """Returns (slots i32[n], places i32[c]) of a batch; places are the rows of its segment's cache that it reads, ascending.

    Args:
        slots: i32[n], the plan's slots of the inputs; the array is written to.
        input_ids: ids[n], global, the inputs; those of a batch that was drawn as of times may be repeated, and share a slot.
        packed_ids: ids[p], ascending, the nodes of the batch's chunk.
        cached: the nodes that the batch reads from its segment's cache.
        order: i32[p], places in `packed_ids` in the order of the chunk's rows; None for ascending ones.

    Raises:
        InputError: an input is in no tier, or a packed row is not an input.
    """
    from_disk = np.flatnonzero(slots == ELSEWHERE)
    ids, of_input = np.unique(input_ids[from_disk], return_inverse=True)
    row_of = np.arange(len(packed_ids))
    if order is not None:
        row_of[order] = np.arange(len(order))
    if np.array_equal(ids, packed_ids):  # none of its rows is cached
        slots[from_disk] = make_slots(STAGED, row_of[of_input])
        return slots, np.zeros(0, np.int32)
    packed, at = _among(packed_ids, ids)
    in_cache, row = _among(cached.ids, ids)
    if np.count_nonzero(packed) != len(packed_ids) or not (packed ^ in_cache).all():
        problem = f"a batch needs {len(ids)} rows from disk, the plan packs {len(packed_ids)} for it, or others"
        raise InputError(problem, "build the cache plan for these samples")
    places = cached.rows[row[in_cache]]
    ascending = np.argsort(places)
    rank = np.empty(len(places), np.int64)
    rank[ascending] = np.arange(len(places))
    at[packed], at[in_cache] = row_of[at[packed]], len(packed_ids) + rank
    slots[from_disk] = make_slots(STAGED, at[of_input])
    return slots, places[ascending].astype(np.int32)


def _among(ids: Array, wanted: Array) -> tuple[Array, Array]:
    """Returns whether each of `wanted` is in `ids`, both ascending, and its place there; the place of a missing one means nothing."""
    if not len(ids):
        return np.zeros(len(wanted), bool), np.zeros(len(wanted), np.int64)
    at = np.searchsorted(ids, wanted)
    at[at == len(ids)] = 0
    return ids[at] == wanted, at
