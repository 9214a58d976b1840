"""What other systems would read from disk for the same batches: pure counting functions, for the benchmarks of disk training.

All take batches as arrays: batch b needs node_ids[ptr[b]:ptr[b+1]], each node once. `slot` is that of the static tiers; a node whose
slot is ELSEWHERE comes from disk. Every one returns `Reads` over all batches: requests, bytes moved, bytes asked for.

    one_read_a_row       DGL on disk: one read of the pages of each missed row
    merged_rows          the missed rows of a batch sorted, each page read once, adjacent pages in one request
    belady               Ginex: a cache of so many rows that always evicts the row whose next use is farthest; a read for each missed row
    global_cache         one disk cache for all batches instead of segments (DiskGNN, Fig. 5a); the others are packed
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphmill.kernels.disk_cache.segment_plan import Order, plan_segment
from graphmill.kernels.disk_cache.segments import disk_state
from graphmill.kernels.rows.pages import PAGE_BYTES, touched_pages
from graphmill.kernels.rows.slots import ELSEWHERE
from graphmill.kernels.types import Array


class Reads(NamedTuple):
    """Requests, and bytes that they move and that were asked for, over all batches."""

    requests: int
    moved_bytes: int
    asked_bytes: int

    @property
    def amplification(self) -> float:
        """Moved bytes / asked bytes; 1 where nothing was asked for."""
        return self.moved_bytes / self.asked_bytes if self.asked_bytes else 1.0


def one_read_a_row(node_ids: Array, slot: Array, row_bytes: int) -> Reads:
    """Counts one read a missed row."""
    return _row_reads(node_ids[slot[node_ids] == ELSEWHERE], row_bytes)


def merged_rows(ptr: Array, node_ids: Array, slot: Array, row_bytes: int, threads: int = 1) -> Reads:
    """Counts each page of the feature table once a batch."""
    missed = slot[node_ids] == ELSEWHERE
    cut = np.concatenate([[0], np.cumsum(missed)])[ptr]
    pages, runs = touched_pages(cut, node_ids[missed], len(slot), row_bytes, threads)
    return Reads(int(runs.sum()), int(pages.sum()) * PAGE_BYTES, int(missed.sum()) * row_bytes)


def belady(ptr: Array, node_ids: Array, num_nodes: int, cache_rows: int, row_bytes: int) -> Reads:
    """Counts the reads that miss an optimal cache: it knows all batches, and may decline to keep a row."""
    missed = belady_misses(ptr, node_ids, num_nodes, cache_rows)
    misses = _row_reads(np.concatenate([node_ids[:0], *missed]), row_bytes)
    return misses._replace(asked_bytes=len(node_ids) * row_bytes)


def belady_misses(ptr: Array, node_ids: Array, num_nodes: int, cache_rows: int) -> list[Array]:
    """Returns the ids that miss the optimal cache, ids[m] for each batch in its own order."""
    never = len(ptr)
    next_of, upcoming = np.empty(len(node_ids), np.int32), np.full(num_nodes, never, np.int32)
    for b in range(len(ptr) - 2, -1, -1):
        ids = node_ids[ptr[b] : ptr[b + 1]]
        next_of[ptr[b] : ptr[b + 1]] = upcoming[ids]
        upcoming[ids] = b
    cached, missed = np.zeros(num_nodes, bool), []
    for b in range(len(ptr) - 1):
        ids = node_ids[ptr[b] : ptr[b + 1]]
        missed.append(ids[~cached[ids]])
        upcoming[ids] = next_of[ptr[b] : ptr[b + 1]]
        kept = np.concatenate([np.flatnonzero(cached), missed[-1]])
        kept = kept[upcoming[kept] < never]
        if len(kept) > cache_rows:
            kept = kept[np.lexsort((kept, upcoming[kept]))[:cache_rows]]
        cached[:] = False
        cached[kept] = True
    return missed


def global_cache(
    ptr: Array, node_ids: Array, slot: Array, row_bytes: int, most_cached: int, order: Order, threads: int = 1
) -> Reads:
    """Counts the reads with the most visited `most_cached` missed rows in one disk cache and the others packed."""
    plan = plan_segment(
        ptr, node_ids, disk_state(slot), row_bytes, order=order, most_cached=most_cached, threads=threads
    )
    chunks = int(np.count_nonzero(plan.packed_rows))
    return Reads(int(plan.runs.sum()) + chunks, int(plan.moved_bytes.sum()), int(plan.asked_bytes.sum()))


def _row_reads(rows: Array, row_bytes: int) -> Reads:
    first = rows.astype(np.int64) * row_bytes
    pages = (first + row_bytes - 1) // PAGE_BYTES - first // PAGE_BYTES + 1 if row_bytes else first
    return Reads(len(rows), int(pages.sum()) * PAGE_BYTES, len(rows) * row_bytes)
