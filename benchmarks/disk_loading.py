"""Seconds to load the rows of batches: the trainer's loader against one io_uring request a row, and both rooflines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from assets.stored_chunks import Chunks
from assets.stored_samples import open_samples
from benchmarks.disk_inputs import Case
from kernels.aligned import BufferPool, aligned_empty
from kernels.direct_io import PageReader, ReadExecution
from kernels.pages import PAGE_BYTES
from kernels.slots import STAGED, unpack
from kernels.types import Array
from trainers.staging import ChunkLoader

DEPTHS = (64, 256)
BASIS = "packed only"


def measure_loading(case: Case, chunks: Mapping[str, Chunks], rounds: int, batches: int) -> dict[str, Any]:
    """Loads other batches in each round, every contestant in turn; the first round is not counted.

    Every contestant's rows must be the features. Ratios are of seconds a row that comes from disk, so that a setup with a larger tier
    is not credited for the rows that it does not load.
    """
    contestants: dict[str, Callable[[int], int]] = {name: _ours(case, each) for name, each in chunks.items()}
    contestants |= {f"a request a row, depth {depth}": _rows(case, chunks[BASIS], depth) for depth in DEPTHS}
    roofline = {"sequential": _sequential(chunks[BASIS])}
    roofline |= {f"random, depth {depth}": _random(case, depth) for depth in DEPTHS}
    rates: dict[str, list[float]] = {name: [] for name in (*contestants, *roofline)}
    numbers = np.random.default_rng(0).permutation(chunks[BASIS].num_batches)
    for turn in range(rounds + 1):
        chosen = numbers[np.arange(turn * batches, (turn + 1) * batches) % len(numbers)].tolist()
        for name, load in contestants.items():
            started = time.perf_counter()
            rows = sum(load(number) for number in chosen)
            rates[name].append(rows / (time.perf_counter() - started))
        for name, rate in roofline.items():
            rates[name].append(rate(turn))
    medians = {name: statistics.median(values[1:]) for name, values in rates.items()}
    return _compare(case, medians, list(chunks))


def _compare(case: Case, medians: dict[str, float], names: list[str]) -> dict[str, Any]:
    row_bytes = case.opened.features.row_bytes
    found: dict[str, Any] = {"rows_a_second": {k: round(v) for k, v in medians.items()}}
    print(f"sequential {medians['sequential'] / 1e9:.2f} GB/s; " + "; ".join(
        f"depth {depth}: {medians[f'random, depth {depth}']:,.0f} random reads/s" for depth in DEPTHS))  # fmt: skip
    for name in names:
        found[name] = {}
        for depth in DEPTHS:
            ratio = medians[name] / medians[f"a request a row, depth {depth}"]
            ceiling = medians["sequential"] / row_bytes / medians[f"random, depth {depth}"]
            found[name][str(depth)] = {"ratio": round(ratio, 2), "of_roofline": round(ratio / ceiling, 3)}
            print(
                f"loading, {name}: {ratio:.1f}x depth {depth}, {ratio / ceiling:.0%} of the rooflines' {ceiling:.1f}x"
            )
    return found


def _ours(case: Case, chunks: Chunks) -> Callable[[int], int]:
    table = case.opened.features
    loader = ChunkLoader(chunks, table.width, table.dtype, table.row_bytes, BufferPool(256 << 20), ReadExecution())
    samples, rows = open_samples(case.samples), table.open()
    ids = samples.record(0, 0).blocks[0].src_ids
    staged = loader.load(0)
    tier, place = unpack(staged.slots)
    here = tier == STAGED
    assert np.array_equal(staged.rows[place[here]], rows[ids[here]])
    staged.release()

    def load(number: int) -> int:
        staged = loader.load(number)
        staged.release()
        return len(staged.rows)

    return load


def _rows(case: Case, chunks: Chunks, depth: int) -> Callable[[int], int]:
    """The rows that miss the hot set, in the order of the batch."""
    table, samples = case.opened.features, open_samples(case.samples, verify=False)
    loader = ChunkLoader(chunks, table.width, table.dtype, table.row_bytes, BufferPool(256 << 20), ReadExecution())
    reader = PageReader(ReadExecution(depth=depth, run_pages=16, fallback="error"))
    file = reader.open(table.path)
    out = np.zeros((1 << 18, table.row_bytes), np.uint8)

    def missed(number: int) -> Array:
        staged = loader.load(number)
        ids = samples.record(*divmod(number, samples.num_batches)).blocks[0].src_ids
        ids = ids[unpack(staged.slots)[0] == STAGED].copy()
        staged.release()
        return ids

    wanted = [missed(number) for number in range(chunks.num_batches)]

    def load(number: int) -> int:
        ids = wanted[number]
        assert len(ids) <= len(out)
        options: dict[str, Any] = {"row_bytes": table.row_bytes, "offset": table.offset, "merge": False}
        reader.read_rows(file, ids, out=out[: len(ids)], **options)
        return len(ids)

    return load


def _sequential(chunks: Chunks) -> Callable[[int], float]:
    """Bytes a second of a long read of the chunks' file."""
    reader, place = PageReader(ReadExecution(fallback="error")), chunks.place(0)
    length = min(512 << 20, place.extent.path.stat().st_size // 2 // PAGE_BYTES * PAGE_BYTES)
    out = aligned_empty(length)
    out[:] = 0
    file = reader.open(place.extent.path)
    most = place.extent.path.stat().st_size - length

    def rate(turn: int) -> float:
        offset = (turn * length) % max(1, most) // PAGE_BYTES * PAGE_BYTES
        started = time.perf_counter()
        reader.read_chunk(file, offset, length, out)
        return length / (time.perf_counter() - started)

    return rate


def _random(case: Case, depth: int) -> Callable[[int], float]:
    """Random pages a second of the feature table."""
    table, count = case.opened.features, 40_000
    reader = PageReader(ReadExecution(depth=depth, fallback="error"))
    file = reader.open(table.path)
    pages = table.num_rows * table.row_bytes // PAGE_BYTES
    out = np.zeros((count, PAGE_BYTES), np.uint8)

    def rate(turn: int) -> float:
        ids = np.random.default_rng([turn, depth]).integers(0, pages, count)
        started = time.perf_counter()
        reader.read_rows(file, ids, row_bytes=PAGE_BYTES, offset=table.offset, out=out, merge=False)
        return count / (time.perf_counter() - started)

    return rate
