"""Packing all batches by the stage against packing them one by one (DiskGNN, Figure 14); both end with files and digests on the disk.

    1.5x          host tier of 5%, a disk budget of 1.5 times the features: most of what is stored are disk caches, with copies of rows
    3x            the same within 3 times the features
    packed only   the same without a bound: every row that a batch needs from disk is packed with it

One by one, the rows of a chunk or of a cache are read by io_uring at depth 64, one request a row as in the paper, then digested and
written past the page cache like the stage does it, and synced. Only a sample of chunks and caches is packed so, half of it before the stage
and half after it; its seconds are scaled by rows. Its bytes must be those that the stage wrote, or there is no row. Addresses, checks, the
images of the static tiers and publication are in the stage's time and not in that of one by one, so the ratios are, if anything, too small.

What the disk itself takes is measured right after the stage: all bytes of table and batches at the rate of sequential reads, and all bytes
that are stored at the rate of large writes by four threads, one after the other. `others_cpu` is the share of all cores that other
processes had during the stage, which computes for about as long as the disk works.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import xxhash

from benchmarks.disk_inputs import FULL, QUICK, THREADS, Case, build_case, drop_pages, home
from benchmarks.record import record
from graphmill.assets.cache_plan.read import open_segment_plan
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.storage.files.arrays import DATA_OFFSET
from graphmill.assets.storage.files.direct_array import DirectArray, RegionWriter
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.filesystem import sync_path
from graphmill.kernels.disk_cache.segments import SegmentPlan
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.direct_io import PageReader, ReadExecution
from graphmill.kernels.rows.pages import PAGE_BYTES, chunk_digest, padded_bytes
from graphmill.kernels.types import Array

SETUPS: dict[str, dict[str, Any]] = {
    "1.5x": {"device": "0", "host": "5%", "disk": "1.5x"},
    "3x": {"device": "0", "host": "5%", "disk": "3x"},
    "packed only": {"device": "0", "host": "5%", "disk": "100x"},
}
MOST_ROWS = 60_000
"""Of one chunk or cache in the sample."""

ALL = 1_000_000
"""Chunks in a sample that leaves none out: where all of them are few, the file and its sync are not scaled by rows."""


def main(quick: bool) -> None:
    size, ratio, fanouts, batch = (QUICK, 0.1, (10, 10), 200) if quick else (FULL, 0.05, (20, 15, 10), 1024)
    with home() as store, tempfile.TemporaryDirectory(dir=store.home) as folder:
        case = build_case(store, size, ratio, fanouts, batch)
        found = {}
        for name, setup in SETUPS.items():
            found[name], chunks = measure_packing(case, Store(Path(folder)), case.plan(**setup), ALL if quick else 6)
            print(f"{name}: {found[name]}")
            remove(chunks.artifact)
    row = {"scale": "quick" if quick else "full", "part": "packing", "graph": size, "batches": case.num_batches}
    record("disk", row | {"packing": found})


def measure_packing(case: Case, packs: Store, plan: Artifact, sampled: int) -> tuple[dict[str, Any], PackedChunks]:
    """Packs by the stage, between two halves of a sample that is packed one by one.

    Args:
        case: graph and batches.
        packs: where the stage writes.
        plan: what to pack.
        sampled: chunks, and as many caches, that are packed one by one.
    """
    segments, table = open_segment_plan(plan), case.opened.features
    wanted = _sample("chunk", segments.packed_ptr, segments.packed_ids, sampled)
    wanted += _sample("cache", segments.cache_ptr, segments.cache_ids, sampled)
    # By turns, so that both halves have chunks and caches.
    before, after = wanted[::2], wanted[1::2]
    times = [_one_by_one(case, before)]
    for artifact in (case.samples, case.graph, plan):
        drop_pages(artifact)
    others, started = _others_seconds(), time.perf_counter()
    chunks = case.pack(packs, plan)
    batched, others = time.perf_counter() - started, _others_seconds() - others
    read_rate, write_rate = _read_rate(case), _write_rate(case)
    packed = chunks.artifact
    drop_pages(packed)
    times.append(_one_by_one(case, after))
    for piece, digest in zip([*before, *after], [*times[0][2], *times[1][2]], strict=True):
        assert digest == _stage_digest(chunks, segments, piece, table.row_bytes), f"{piece} differs from the stage's"
    all_rows, sampled_rows = len(segments.packed_ids) + len(segments.cache_ids), sum(len(each.ids) for each in wanted)
    seconds, reading = (sum(each[part] for each in times) * all_rows / sampled_rows for part in (0, 1))
    read_bytes = table.num_rows * table.row_bytes + case.samples.summary["numbers"]["sample_bytes"]
    stored = sum(packed.open_part(name).num_bytes for name in packed.parts)
    least = read_bytes / read_rate + stored / write_rate
    found = {
        "volume": round(all_rows / table.num_rows, 3),
        "cached": round(len(segments.cache_ids) / all_rows, 3),
        "stage_seconds": round(batched, 2),
        "others_cpu": round(others / batched / (os.cpu_count() or 1), 2),
        "one_by_one_seconds": round(seconds, 1),
        "of_these_reading": round(reading, 1),
        "sampled_rows": sampled_rows,
        "read_gbps": round(read_rate / 1e9, 2),
        "write_gbps": round(write_rate / 1e9, 2),
        "least_seconds": round(least, 2),
        "of_least": round(least / batched, 3),
        "ratio": round(seconds / batched, 2),
        "largest_ratio": round(seconds / least, 2),
    }
    return found, chunks


def remove(packed: Artifact) -> None:
    """Deletes packed chunks with their parts."""
    for path in (packed.path, *(packed.open_part(name).path for name in packed.parts)):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()


class _Piece(NamedTuple):
    """The first rows of a chunk or cache."""

    kind: Literal["chunk", "cache"]
    number: int
    ids: Array


def _sample(kind: Literal["chunk", "cache"], ptr: Array, ids: Array, count: int) -> list[_Piece]:
    drawn = np.unique(np.linspace(0, len(ptr) - 2, min(count, len(ptr) - 1)).astype(int)).tolist()
    pieces = [_Piece(kind, number, np.array(ids[ptr[number] : ptr[number + 1]][:MOST_ROWS])) for number in drawn]
    return [each for each in pieces if len(each.ids)]


def _one_by_one(case: Case, pieces: Sequence[_Piece]) -> tuple[float, float, list[int]]:
    """Returns seconds of packing lists of rows, and of reading alone; and the digest of the rows of each."""
    table = case.opened.features
    bounds = DATA_OFFSET + np.cumsum([0, *(int(padded_bytes(len(each.ids) * table.row_bytes)) for each in pieces)])
    buffer = aligned_empty(int(np.diff(bounds).max()))
    buffer[:] = 0
    reader, reading, digests = PageReader(ReadExecution(depth=64, fallback="error")), 0.0, []
    with reader.open(table.path) as source, tempfile.TemporaryDirectory(dir=case.store.home) as folder:
        started = time.perf_counter()
        file = DirectArray(Path(folder) / "packed.npy", int(bounds[-1]) - DATA_OFFSET, np.uint8)
        for piece, (start, end) in zip(pieces, pairwise(bounds.tolist()), strict=True):
            out = buffer[: len(piece.ids) * table.row_bytes].reshape(-1, table.row_bytes)
            asked = time.perf_counter()
            reader.read_rows(source, piece.ids, row_bytes=table.row_bytes, offset=table.offset, out=out, merge=False)
            reading += time.perf_counter() - asked
            words = np.zeros((end - start) // PAGE_BYTES, np.uint64)
            RegionWriter(file, start, end, page_words=words).fill_up(buffer, out.size)
            assert chunk_digest(words)
        file.finish(THREADS)
        sync_path(file.path)
        seconds = time.perf_counter() - started
        for piece, start in zip(pieces, bounds.tolist(), strict=False):
            digests.append(_digest(file.path, start, len(piece.ids) * table.row_bytes))
        return seconds, reading, digests


def _stage_digest(chunks: PackedChunks, segments: SegmentPlan, piece: _Piece, row_bytes: int) -> int:
    """Returns the digest of the same rows where the stage wrote them."""
    num_bytes = len(piece.ids) * row_bytes
    if piece.kind == "chunk":
        place = chunks.place(piece.number)
        *_, rows = place.sections(row_bytes)
        return _digest(place.extent.path, place.extent.offset + rows.start, num_bytes)
    cache = chunks.place(int(np.searchsorted(segments.segment_of, piece.number))).cache
    return _digest(cache.path, cache.offset, num_bytes)


def _digest(path: Path, start: int, num_bytes: int) -> int:
    with open(path, "rb") as file:
        file.seek(start)
        return xxhash.xxh3_64_intdigest(file.read(num_bytes))


def _others_seconds() -> float:
    """CPU seconds of all processes but this one since the machine was started; 0 where the system does not tell."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq = (int(word) for word in stat.read_text().split()[1:8])
    own = resource.getrusage(resource.RUSAGE_SELF)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK") - own.ru_utime - own.ru_stime


def _read_rate(case: Case, piece_bytes: int = 64 << 20) -> float:
    """Bytes a second of reading the table from end to end, past the page cache."""
    reader, path = PageReader(ReadExecution(fallback="error")), case.opened.features.path
    buffer, num_bytes = aligned_empty(piece_bytes), path.stat().st_size
    with reader.open(path) as file:
        started = time.perf_counter()
        for start in range(0, num_bytes, piece_bytes):
            reader.read_chunk(file, start, min(piece_bytes, num_bytes - start), buffer)
        return num_bytes / (time.perf_counter() - started)


def _write_rate(case: Case, num_bytes: int = 2 << 30, piece_bytes: int = 1 << 20, writers: int = 4) -> float:
    """Bytes a second of writing a reserved file past the page cache, synced."""
    pieces = [aligned_empty(piece_bytes) for _ in range(writers)]
    for piece in pieces:
        piece[:] = np.random.default_rng(0).integers(0, 256, piece_bytes, np.uint8)
    with tempfile.TemporaryDirectory(dir=case.store.home) as folder:
        file = DirectArray(Path(folder) / "written.npy", num_bytes, np.uint8)

        def write(first: int) -> None:
            for start in range(DATA_OFFSET + first * piece_bytes, num_bytes, writers * piece_bytes):
                file.write(start, pieces[first])

        started = time.perf_counter()
        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(write, range(writers)))
        file.close()
        sync_path(file.path)
        return num_bytes / (time.perf_counter() - started)
