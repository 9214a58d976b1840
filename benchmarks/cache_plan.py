"""Algorithm 2 on exact numbers against a search over whole epochs (DiskGNN, Table 4), and the planned bytes against other systems.

An exhaustive search plans the whole epoch for every segment size and every bound on the rows a segment caches, and takes the one that moves
the fewest bytes within the budget. Ours takes the smallest segment that fits. First some segments' predictions are recounted in plain
NumPy. Then, at 30, 50, 70 and 90% of full packing: the bytes of our plan stay within the budget, its amplification is compared with the
best of the exhaustive search, and what Algorithm 2 takes as printed with the budget; beside it what copies of rows move within the same
budget (kernels/disk_cache/copies.py), all batches being one segment. Searches are timed between the configurations.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from benchmarks.disk_baselines import belady, global_cache, merged_rows, one_read_a_row
from benchmarks.record import record
from benchmarks.sampled_batches import LOW_SKEW, Batches, sample_batches
from graphmill.kernels.disk_cache.copies_plan import plan_copies
from graphmill.kernels.disk_cache.segment_plan import CountedPlan, plan_segment
from graphmill.kernels.disk_cache.segment_size import SegmentSizes
from graphmill.kernels.disk_cache.segments import ALL, disk_state
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes
from graphmill.kernels.rows.placement import place_rows
from graphmill.kernels.rows.slots import ELSEWHERE
from graphmill.kernels.types import Array

THREADS, ROW_BYTES = 2, 512
SIZES = (2, 4, 7, 12, 20, 33, 55, 90, 140, 200)
CACHED_SHARES = (0.02, 0.05, 0.1, None)
"""Bounds on the rows of a segment's cache, as shares of all nodes; None = every row that two batches share."""

BUDGETS = (0.3, 0.5, 0.7, 0.9)
TIERS = (0.05, 0.1)
"""Hottest nodes in memory, as shares of all; the searches run at the first."""

SKEWED = (0.57, 0.19, 0.19, 0.05)
GRAPHS = {
    "quick": {"skewed": (200_000, 1_500_000, 0.1, 100, (10, 10), SKEWED)},
    "full": {
        "skewed": (4_000_000, 30_000_000, 0.05, 1000, (20, 15, 10), SKEWED),
        "low skew": (1_000_000, 10_000_000, 0.1, 500, (10, 10), LOW_SKEW),
        "low skew, 5%": (2_000_000, 20_000_000, 0.05, 500, (10, 10), LOW_SKEW),
    },
}


class Outcome(NamedTuple):
    """An epoch's plan: bytes on disk, bytes moved and bytes asked for."""

    disk_bytes: int
    moved_bytes: int
    asked_bytes: int

    @property
    def amplification(self) -> float:
        return self.moved_bytes / max(1, self.asked_bytes)


def main(quick: bool) -> None:
    scale = "quick" if quick else "full"
    for name in GRAPHS[scale]:
        measure(scale, name)


def measure(scale: str, name: str) -> None:
    """Records the row of one graph."""
    batches = sample_batches(*GRAPHS[scale][name], threads=THREADS)
    hottest = rank(np.bincount(batches.node_ids, minlength=batches.num_nodes))
    print(f"{name}: {batches.num_nodes:,} nodes, {batches.num_edges:,} edges, {len(batches.ptr) - 1} batches")
    row = {"scale": scale, "graph": name, "row_bytes": ROW_BYTES, "batches": len(batches.ptr) - 1, "order": "filled"}
    systems: dict[str, object] = {}
    for tier in TIERS:
        held = int(tier * batches.num_nodes)
        slot = place_rows(hottest, held, 0).slot
        if tier == TIERS[0]:
            check_predictions(batches, slot)
            row |= {"tier": tier} | compare_searches(batches, slot)
        systems[f"{tier:.0%}"] = compare_systems(batches, slot, held)
    record("cache_plan", row | {"systems": systems}, ("numpy",))


def segments(batches: Batches, size: int) -> Iterator[tuple[Array, Array]]:
    """Yields (ptr, node_ids) of every segment."""
    for first in range(0, len(batches.ptr) - 1, size):
        ptr = batches.ptr[first : first + size + 1]
        yield ptr - ptr[0], batches.node_ids[ptr[0] : ptr[-1]]


def plan_epoch(batches: Batches, slot: Array, size: int, most_cached: int = ALL) -> Outcome:
    """Plans every segment."""
    state, total = disk_state(slot), np.zeros(3, np.int64)
    for ptr, node_ids in segments(batches, size):
        plan = plan_segment(ptr, node_ids, state, ROW_BYTES, most_cached=most_cached, threads=THREADS)
        total += (plan.disk_bytes, int(plan.moved_bytes.sum()), int(plan.asked_bytes.sum()))
    return Outcome(*total.tolist())


def check_predictions(batches: Batches, slot: Array) -> None:
    """Recounts the first segment of some sizes without the kernels.

    Raises:
        AssertionError: a prediction differs.
    """
    for size in (1, 3, 10):
        ptr, node_ids = next(segments(batches, size))
        plan = plan_segment(ptr, node_ids, disk_state(slot), ROW_BYTES, threads=THREADS)
        assert recounted(ptr, node_ids, slot, plan) == (plan.disk_bytes, plan.moved_bytes.tolist()), size


def recounted(ptr: Array, node_ids: Array, slot: Array, plan: CountedPlan) -> tuple[int, list[int]]:
    """Returns the bytes on disk and the bytes that each batch moves, from the ids alone."""
    row_of = np.full(len(slot), -1)
    row_of[plan.cache_ids] = np.arange(len(plan.cache_ids))
    disk, moved = int(padded_bytes(len(plan.cache_ids) * ROW_BYTES)), []
    for low, high in pairwise(ptr):
        wanted = node_ids[low:high][slot[node_ids[low:high]] == ELSEWHERE]
        rows = row_of[wanted]
        rows, packed = rows[rows >= 0] * ROW_BYTES, int(np.count_nonzero(rows < 0))
        pages = np.unique(np.concatenate([rows // PAGE_BYTES, (rows + ROW_BYTES - 1) // PAGE_BYTES]))
        section = int(padded_bytes(packed * ROW_BYTES))
        disk, moved = disk + section, [*moved, section + len(pages) * PAGE_BYTES]
    return disk, moved


def compare_searches(batches: Batches, slot: Array) -> dict[str, object]:
    """Runs both searches and prints what they find."""
    num_batches, outcomes, ours, theirs = len(batches.ptr) - 1, [], [], []

    def search() -> SegmentSizes:
        started = time.perf_counter()
        sizes = SegmentSizes(slot, num_batches)
        sizes.add(batches.ptr, batches.node_ids, THREADS)
        for budget in BUDGETS:
            sizes.smallest(int(budget * sizes.rows(1)))
        ours.append(time.perf_counter() - started)
        return sizes

    sizes = search()
    for size in SIZES:
        for share in CACHED_SHARES:
            started = time.perf_counter()
            bound = ALL if share is None else int(share * batches.num_nodes)
            outcomes.append(plan_epoch(batches, slot, min(size, num_batches), bound))
            theirs.append(time.perf_counter() - started)
            search()
    speedup, found = sum(theirs) / statistics.median(ours), []
    print(f"search: {statistics.median(ours):.3f} s for 4 budgets; {len(outcomes)} whole epochs: {sum(theirs):.1f} s")
    full = sizes.rows(1)
    for budget in BUDGETS:
        most = int(budget * full) * ROW_BYTES
        size, printed = sizes.smallest(int(budget * full)), sizes.as_printed(int(budget * full))
        fitting = [outcome.amplification for outcome in outcomes if outcome.disk_bytes <= most]
        if size is None:
            print(f"  {budget:.0%}: no size fits")
            continue
        plan = plan_epoch(batches, slot, size)
        while plan.disk_bytes > most:  # padding to whole pages
            size = sizes.smallest(int(budget * full), above=size)
            assert size is not None
            plan = plan_epoch(batches, slot, size)
        entry = {"budget": budget, "size": size, "amplification": round(plan.amplification, 4)}
        entry["disk_of_full"] = round(plan.disk_bytes / (full * ROW_BYTES), 4)
        entry["best_of_grid"] = round(min(fitting), 4) if fitting else None
        entry["printed_size"], entry["printed_of_full"] = (
            printed,
            round(sizes.rows(printed) / full, 4) if printed else None,
        )
        entry |= with_copies(batches, slot, most)
        print(f"  {entry}")
        found.append(entry)
    times = {"search_seconds": round(statistics.median(ours), 4), "grid_seconds": round(sum(theirs), 2)}
    print(f"  {speedup:.0f} times as fast")
    return {"ratio": round(speedup, 1), "configurations": len(outcomes), "budgets": found} | times


def with_copies(batches: Batches, slot: Array, disk_bytes: int) -> dict[str, object]:
    """Plans copies of rows within a budget."""
    started = time.perf_counter()
    plan = plan_copies(batches.ptr, batches.node_ids, disk_state(slot), ROW_BYTES, disk_bytes, threads=THREADS)
    if plan is None:
        return {"copies": None}
    assert plan.disk_bytes <= disk_bytes
    return {
        "copies": round(plan.amplification, 4),
        "copies_share_of_budget": round(plan.disk_bytes / disk_bytes, 4),
        "copies_seconds": round(time.perf_counter() - started, 1),
    }


def compare_systems(batches: Batches, slot: Array, cache_rows: int) -> dict[str, object]:
    """Prints what an epoch reads packed only, and what other systems read."""
    ptr, node_ids = batches.ptr, batches.node_ids
    packed = plan_epoch(batches, slot, 1)
    shared = int(np.count_nonzero(np.bincount(node_ids[slot[node_ids] == ELSEWHERE], minlength=len(slot)) > 1))
    reads = {
        "one page read a row": one_read_a_row(node_ids, slot, ROW_BYTES).moved_bytes,
        "the same, sorted and merged": merged_rows(ptr, node_ids, slot, ROW_BYTES, THREADS).moved_bytes,
        "Belady's cache of as many rows": belady(ptr, node_ids, len(slot), cache_rows, ROW_BYTES).moved_bytes,
        "global disk cache by id": global_cache(ptr, node_ids, slot, ROW_BYTES, shared, "id", THREADS).moved_bytes,
        "global disk cache, minhash": global_cache(
            ptr, node_ids, slot, ROW_BYTES, shared, "minhash", THREADS
        ).moved_bytes,
    }
    print(
        f"bytes an epoch, packed only, {cache_rows:,} rows in memory: {packed.moved_bytes:,}, amplification {packed.amplification:.5f}"
    )
    for name, moved in reads.items():
        print(f"  {name}: {moved / packed.moved_bytes:.2f} times as many")
    ratios = {name: round(moved / packed.moved_bytes, 3) for name, moved in reads.items()}
    return {"packed_amplification": round(packed.amplification, 6), "times_the_packed_bytes": ratios}
