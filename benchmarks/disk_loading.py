"""Seconds to load the rows of batches: the trainer's loader against one io_uring request a row, and both rooflines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from benchmarks.disk_inputs import Case
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.samples.read import open_samples
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.rows.direct_io import PageReader, ReadExecution
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes
from graphmill.kernels.rows.slots import STAGED, split_slots
from graphmill.kernels.types import Array
from graphmill.trainers.batches.source import NUM_LOADERS
from graphmill.trainers.rows.packed_loader import PackedLoader, loader_reading

DEPTHS = (64, 256)
BASIS = "packed only"
CHUNKS_A_BATCH, QUICK_TURNS = 12, 3
SECTOR_BYTES, SEQUENTIAL = 512, 24
"""What is copied of a random page, and chunks that a sequential turn reads."""

SEQUENTIALLY = {
    "sequential": loader_reading(fallback="error"),
    "sequential, whole chunks": ReadExecution(fallback="error"),
}
"""As the loaders read, and with all of a chunk in flight in pieces of 4 MiB: the faster one is the roofline."""


def measure_loading(case: Case, chunks: Mapping[str, PackedChunks], rounds: int, batches: int) -> dict[str, Any]:
    """Loads other batches in each turn, in drawn order; a contestant's first turn is not counted.

    The order is drawn because a virtual disk is slow for a moment after many small requests: whoever always comes after them, in whatever
    round, looks half as fast as it is. Every contestant's rows must be the features. Ratios are of seconds a row that comes from disk, so
    that a setup with a larger tier is not credited for the rows that it does not load. A chunk is quickly read, so chunks are loaded
    `CHUNKS_A_BATCH` times as many and, like the sequential roofline, `QUICK_TURNS` times a round: the disk's rate changes from second to
    second, and a median of so short turns needs many. Chunks and the sequential roofline share one pool: what memory a read lands in may
    be worth half.
    """
    pool = BufferPool()
    contestants: dict[str, Callable[[list[int]], int]] = {
        name: _ours(case, each, pool) for name, each in chunks.items()
    }
    contestants |= {f"a request a row, depth {depth}": _rows(case, chunks[BASIS], depth) for depth in DEPTHS}
    roofline = {name: _sequential(chunks[BASIS], pool, reading) for name, reading in SEQUENTIALLY.items()}
    roofline |= {f"random, depth {depth}": _random(case, depth) for depth in DEPTHS}
    rates: dict[str, list[float]] = {name: [] for name in (*contestants, *roofline)}
    numbers = np.random.default_rng(0).permutation(chunks[BASIS].num_batches)
    order = np.random.default_rng(1)
    turns = [*rates, *(QUICK_TURNS - 1) * [*chunks, *SEQUENTIALLY]]
    for _ in range(rounds + 1):
        for name in order.permutation(turns).tolist():
            turn = len(rates[name])
            if name in roofline:
                rates[name].append(roofline[name](turn))
                continue
            count = batches * (CHUNKS_A_BATCH if name in chunks else 1)
            chosen = numbers[np.arange(turn * count, (turn + 1) * count) % len(numbers)].tolist()
            started = time.perf_counter()
            rows = contestants[name](chosen)
            rates[name].append(rows / (time.perf_counter() - started))
    medians = {name: statistics.median(values[1:]) for name, values in rates.items()}
    return _compare(case, medians, list(chunks))


def _compare(case: Case, medians: dict[str, float], names: list[str]) -> dict[str, Any]:
    row_bytes = case.opened.features.row_bytes
    found: dict[str, Any] = {"rows_a_second": {k: round(v) for k, v in medians.items()}}
    sequential = max(medians[name] for name in SEQUENTIALLY)
    print(f"sequential {' and '.join(f'{medians[name] / 1e9:.2f}' for name in SEQUENTIALLY)} GB/s; " + "; ".join(
        f"depth {depth}: {medians[f'random, depth {depth}']:,.0f} random reads/s" for depth in DEPTHS))  # fmt: skip
    for name in names:
        found[name] = {}
        for depth in DEPTHS:
            ratio = medians[name] / medians[f"a request a row, depth {depth}"]
            ceiling = sequential / row_bytes / medians[f"random, depth {depth}"]
            found[name][str(depth)] = {"ratio": round(ratio, 2), "of_roofline": round(ratio / ceiling, 3)}
            print(
                f"loading, {name}: {ratio:.1f}x depth {depth}, {ratio / ceiling:.0%} of the rooflines' {ceiling:.1f}x"
            )
    return found


def _ours(case: Case, chunks: PackedChunks, pool: BufferPool) -> Callable[[list[int]], int]:
    """Loads as the trainer does: its threads take the batches in turn."""
    table = case.opened.features
    shape = (table.width, table.dtype, table.row_bytes)
    loaders = [PackedLoader(chunks, *shape, pool, loader_reading()) for _ in range(NUM_LOADERS)]
    samples, rows = open_samples(case.samples), table.open()
    ids = samples.record(0, 0).blocks[0].src_ids
    staged = loaders[0].load(0)
    tier, place = split_slots(staged.slots)
    here = tier == STAGED
    assert np.array_equal(staged.rows[place[here]], rows[ids[here]])
    staged.release()

    def loaded(which: int, numbers: list[int]) -> int:
        rows = 0
        for number in numbers[which::NUM_LOADERS]:
            staged = loaders[which].load(number)
            rows += len(staged.rows)
            staged.release()
        return rows

    def load(numbers: list[int]) -> int:
        with ThreadPoolExecutor(NUM_LOADERS) as threads:
            return sum(threads.map(partial(loaded, numbers=numbers), range(NUM_LOADERS)))

    return load


def _rows(case: Case, chunks: PackedChunks, depth: int) -> Callable[[list[int]], int]:
    """The rows that miss the hot set, in the order of the batch."""
    table, samples = case.opened.features, open_samples(case.samples, verify=False)
    loader = PackedLoader(chunks, table.width, table.dtype, table.row_bytes, BufferPool(), loader_reading())
    reader = PageReader(ReadExecution(depth=depth, range_pages=16, fallback="error"))
    file = reader.open(table.path)
    out = np.zeros((1 << 18, table.row_bytes), np.uint8)

    def missed(number: int) -> Array:
        staged = loader.load(number)
        ids = samples.record(*divmod(number, samples.num_batches)).blocks[0].src_ids
        ids = ids[split_slots(staged.slots)[0] == STAGED].copy()
        staged.release()
        return ids

    wanted = [missed(number) for number in range(chunks.num_batches)]

    def load(numbers: list[int]) -> int:
        for number in numbers:
            ids = wanted[number]
            assert len(ids) <= len(out)
            options: dict[str, Any] = {"row_bytes": table.row_bytes, "offset": table.offset, "merge": False}
            reader.read_rows(file, ids, out=out[: len(ids)], **options)
        return sum(len(wanted[number]) for number in numbers)

    load([0])
    rows = np.ascontiguousarray(table.open()[wanted[0]])
    assert len(rows), "the first batch misses nothing, so there is nothing to compare"
    assert np.array_equal(out[: len(rows)], rows.view(np.uint8).reshape(len(rows), -1)), "rows differ from the features"
    return load


def _sequential(chunks: PackedChunks, pool: BufferPool, reading: ReadExecution) -> Callable[[int], float]:
    """Bytes a second of reading drawn chunks by as many threads as load; nothing is checked or copied."""
    extents = [chunks.place(number).extent for number in range(chunks.num_batches)]
    drawn = np.random.default_rng(1).permutation(len(extents))
    readers = [PageReader(reading) for _ in range(NUM_LOADERS)]
    files = {path: readers[0].open(path) for path in {extent.path for extent in extents}}

    def read(which: int, turn: int) -> int:
        moved = 0
        for number in drawn[np.arange(turn * SEQUENTIAL + which, (turn + 1) * SEQUENTIAL, NUM_LOADERS) % len(drawn)]:
            extent = extents[number]
            with pool.take(int(padded_bytes(extent.num_bytes))) as buffer:
                readers[which].read_chunk(files[extent.path], extent.offset, extent.num_bytes, buffer.data)
            moved += extent.num_bytes
        return moved

    def rate(turn: int) -> float:
        started = time.perf_counter()
        with ThreadPoolExecutor(NUM_LOADERS) as threads:
            moved = sum(threads.map(partial(read, turn=turn), range(NUM_LOADERS)))
        return moved / (time.perf_counter() - started)

    return rate


def _random(case: Case, depth: int) -> Callable[[int], float]:
    """Random pages a second of the feature table. Of a page that came only a sector is copied: the device is asked, not the memory."""
    table, count = case.opened.features, 100_000
    reader = PageReader(ReadExecution(depth=depth, fallback="error"))
    file = reader.open(table.path)
    pages = table.num_rows * table.row_bytes // PAGE_BYTES
    out = np.zeros((count, SECTOR_BYTES), np.uint8)

    def rate(turn: int) -> float:
        ids = np.random.default_rng([turn, depth]).integers(0, pages, count) * (PAGE_BYTES // SECTOR_BYTES)
        started = time.perf_counter()
        reader.read_rows(file, ids, row_bytes=SECTOR_BYTES, offset=table.offset, out=out, merge=False)
        return count / (time.perf_counter() - started)

    return rate
