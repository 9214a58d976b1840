"""Bytes of an epoch from disk: measured against the plan, and against what other systems would read for the same batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.disk_baselines import belady, global_cache, merged_rows, one_read_a_row
from benchmarks.disk_inputs import THREADS, Case
from graphmill.assets.cache_plan.read import open_placement
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.rows.direct_io import ReadExecution
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes
from graphmill.kernels.rows.slots import ELSEWHERE
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.packed_loader import PackedLoader

UNCUT = ReadExecution(depth=8, range_pages=8192, piece_bytes=1 << 30, fallback="error")
"""Runs and chunks are one request each, as the plan counts them."""

ROW_BYTES = {"100 x f32": 400, "128 x f32": 512, "172 x f32": 688, "300 x f32": 1200, "768 x f16": 1536}


def check_ledger(case: Case, plan: Artifact, chunks: PackedChunks) -> dict[str, Any]:
    """Loads every batch once; bytes, pages and requests must be those that the plan predicts.

    Raises:
        AssertionError: one is not.
    """
    table, total = case.opened.features, Ledger()
    loader = PackedLoader(chunks, table.width, table.dtype, table.row_bytes, BufferPool(), UNCUT)
    for number in range(chunks.num_batches):
        staged = loader.load(number)
        total.merge(staged.ledger)
        staged.release()
    loader.close()
    (features,) = (row for row in total.rows()["moves"] if row["kind"] == "feature")
    numbers, asked = plan.summary["numbers"], plan.summary["numbers"]["asked_bytes"]
    predicted = {
        "requests": numbers["num_page_runs"] + chunks.num_batches,
        "asked_bytes": asked,
        "moved_bytes": numbers["moved_bytes"],
    }
    found = {name: features[name] for name in predicted}
    assert found == predicted, (found, predicted)
    found["pages"] = numbers["num_pages"]
    print(f"ledger equals the plan: {found}, amplification {found['moved_bytes'] / asked:.5f}")
    return found | {"amplification": round(found["moved_bytes"] / asked, 6)}


def against_systems(case: Case, plan: Artifact) -> dict[str, Any]:
    """Counts an epoch's bytes, packed only, against other ways to read the rows that the same hot set misses."""
    batches, slot = case.batches(), np.asarray(open_placement(plan).slot)
    ptr, ids = batches.ptr, batches.node_ids
    missed = slot[ids] == ELSEWHERE
    misses = np.diff(np.concatenate([[0], np.cumsum(missed)])[ptr])
    shared = int(np.count_nonzero(np.bincount(ids[missed], minlength=len(slot)) > 1))
    found: dict[str, Any] = {}
    for name, row_bytes in ROW_BYTES.items():
        packed = int(padded_bytes(misses * row_bytes).sum())
        each, merged = one_read_a_row(ids, slot, row_bytes), merged_rows(ptr, ids, slot, row_bytes, THREADS)
        least = _pages_of_a_row(row_bytes) * PAGE_BYTES / row_bytes
        found[name] = {
            "a read a row": round(each.moved_bytes / packed, 3),
            "sorted and merged": round(merged.moved_bytes / packed, 3),
            "arithmetic": round(least, 3),
            "amplification": round(packed / (int(misses.sum()) * row_bytes), 6),
        }
        if row_bytes == case.opened.features.row_bytes:
            held = int(np.count_nonzero(slot != ELSEWHERE))
            optimal = belady(ptr, ids, len(slot), held, row_bytes).moved_bytes
            found[name] |= {"Belady's cache": round(optimal / packed, 3)}
            for order in ("id", "minhash"):
                reads = global_cache(ptr, ids, slot, row_bytes, shared, order, THREADS)
                found[name][f"one disk cache, {order}"] = round(reads.moved_bytes / packed, 3)
        print(f"bytes as multiples of ours, packed only, {name}: {found[name]}")
    return found


def _pages_of_a_row(row_bytes: int) -> float:
    """Mean pages that a row touches, over all rows of a table."""
    first = np.arange(PAGE_BYTES, dtype=np.int64) * row_bytes
    return float(((first + row_bytes - 1) // PAGE_BYTES - first // PAGE_BYTES + 1).mean())
