"""Packing all batches by the stage against packing them one by one; both end with what they wrote on the disk."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from assets.artifact import Artifact
from assets.cache_plan import open_segment_plan
from assets.packed_chunks import PACKED_CHUNKS, PackedConfig, PackedExecution
from assets.stage import materialize
from assets.store import Store
from assets.stored_chunks import Chunks
from benchmarks.disk_inputs import THREADS, Case, drop_pages
from kernels.direct_io import PageReader, ReadExecution
from kernels.types import Array


def measure_packing(case: Case, packs: Store, plan: Artifact, sampled: int) -> tuple[dict[str, Any], Chunks]:
    """Packs by the stage, between two halves of a sample of lists that are packed one by one.

    A list is what a batch packs, or what a segment caches. One by one, a list's rows are read by io_uring at depth 64, one request a row,
    and written side by side. Its seconds are those of the sample times all rows / rows of the sample; addresses, digests and checks,
    which the stage's time includes, are left out of it. The least seconds are those of writing all rows at the rate of a plain write that
    is synced, measured right before.
    """
    segments = open_segment_plan(plan)
    lists = [
        (np.asarray(ptr), np.asarray(ids), number)
        for ptr, ids in ((segments.packed_ptr, segments.packed_ids), (segments.cache_ptr, segments.cache_ids))
        for number in np.unique(np.linspace(0, len(ptr) - 2, sampled).astype(int)).tolist()
    ]
    wanted = [np.array(ids[ptr[number] : ptr[number + 1]][:60_000]) for ptr, ids, number in lists]
    wanted = [ids for ids in wanted if len(ids)]
    half = len(wanted) // 2
    seconds = _one_by_one(case, wanted[:half])
    for artifact in (case.samples, case.graph):
        drop_pages(artifact)
    rate = _write_rate(case)
    inputs = {"graph": case.graph, "samples": case.samples, "cache_plan": plan}
    started = time.perf_counter()
    packed = materialize(packs, PACKED_CHUNKS, PackedConfig(), PackedExecution(threads=THREADS), inputs)
    batched = time.perf_counter() - started
    drop_pages(packed)
    seconds += _one_by_one(case, wanted[half:])
    all_rows, sampled_rows = len(segments.packed_ids) + len(segments.cache_ids), sum(map(len, wanted))
    individual = seconds * all_rows / sampled_rows
    table = case.opened.features
    found = {
        "volume": round(all_rows / table.num_rows, 3),
        "stage_seconds": round(batched, 2),
        "one_by_one_seconds": round(individual, 1),
        "sampled_rows": sampled_rows,
        "write_gbps": round(rate / 1e9, 2),
        "least_seconds": round(all_rows * table.row_bytes / rate, 2),
        "ratio": round(individual / batched, 2),
    }
    return found, Chunks(packed, plan, case.samples)


def _one_by_one(case: Case, lists: list[Array]) -> float:
    """Seconds of packing some lists of rows, synced."""
    table = case.opened.features
    reader = PageReader(ReadExecution(depth=64, fallback="error"))
    with reader.open(table.path) as file, tempfile.TemporaryDirectory(dir=case.store.home) as folder:
        out = np.zeros((max(map(len, lists)), table.row_bytes), np.uint8)
        started = time.perf_counter()
        with (Path(folder) / "packed").open("wb", buffering=0) as target:
            for ids in lists:
                options: dict[str, Any] = {"row_bytes": table.row_bytes, "offset": table.offset, "merge": False}
                rows, _ = reader.read_rows(file, ids, out=out[: len(ids)], **options)
                target.write(rows.data)
            os.fsync(target.fileno())
        return time.perf_counter() - started


def _write_rate(case: Case, num_bytes: int = 1 << 30) -> float:
    """Bytes a second of writing one file in pieces of 64 MiB, synced."""
    piece = np.random.default_rng(0).integers(0, 2**63, 8 << 20, np.int64)
    with tempfile.TemporaryDirectory(dir=case.store.home) as folder:
        started = time.perf_counter()
        with (Path(folder) / "written").open("wb", buffering=0) as target:
            for _ in range(num_bytes // piece.nbytes):
                target.write(piece.data)
            os.fsync(target.fileno())
        return num_bytes / (time.perf_counter() - started)
