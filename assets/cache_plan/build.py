"""The work of the cache_plan stage: segments are read, planned and written one after the other, and counted by batch.

assets/cache_plan/layout.py decides their layout; the files and the peak memory stand in assets/cache_plan/__init__.py.
"""

from contextlib import ExitStack

import numpy as np

from graphmill.assets.building.stage import Progress
from graphmill.assets.cache_plan.layout import Layout, NoSpace, SegmentPlanner, choose_layout, one_copy
from graphmill.assets.cache_plan.segment_size import SegmentBatches, SegmentChoice
from graphmill.assets.storage.local.writer import Writer
from graphmill.kernels.disk_cache.segment_plan import CountedPlan
from graphmill.kernels.rows.placement import Placement
from graphmill.kernels.rows.slots import DEVICE, HOST, NO_FEATURES, split_slots
from graphmill.kernels.types import Array

STREAMED = ("cache_ids", "packed_ids", "members")
"""Arrays that are written segment by segment."""


class PlanTotals:
    """Counts the segments of a plan as they are added.

    Args:
        num_batches, num_nodes: numbers of batches of all epochs, and of nodes.
        order: the decided order of the disk caches' rows.

    Attributes:
        tier_rows: i64[B, 4], rows of each batch on the device, on the host, in the disk cache and in its chunk.
        without_features: i64[B], inputs of each batch that have no row.
        pages, runs: i64[B], pages, and ranges of adjacent pages, that each batch reads of the disk cache.
        pages_by_id: i64[B], pages that it would read were the cache ordered by node id.
        packed_bytes: i64[B], bytes of the rows section of each batch's chunk.
        cache_ptr: the first row of each segment's disk cache among those of all, and the end.
        disk_bytes: bytes of all caches and rows sections.
        overlaps: number of rows that some batch reads from the cache and from its chunk.
    """

    def __init__(self, num_batches: int, num_nodes: int, order: str):
        self._reader = np.full(num_nodes, -1, np.int32)  # the last batch that read a node from a cache
        self.order = order
        self.tier_rows = np.zeros((num_batches, 4), np.int64)
        self.without_features = np.zeros(num_batches, np.int64)
        self.pages, self.runs, self.pages_by_id, self.packed_bytes = np.zeros((4, num_batches), np.int64)
        self.cache_ptr, self.disk_bytes, self.overlaps = [0], 0, 0

    @property
    def num_segments(self) -> int:
        """Number of segments."""
        return len(self.cache_ptr) - 1

    @property
    def num_cached(self) -> int:
        """Number of rows of all disk caches."""
        return self.cache_ptr[-1]

    def add(self, first: int, last: int, tier_rows: Array, without_features: Array, segment: CountedPlan) -> None:
        """Adds the segment of batches first to last - 1."""
        self.tier_rows[first:last] = tier_rows
        self.without_features[first:last] = without_features
        for name in ("pages", "runs", "pages_by_id", "packed_bytes"):
            getattr(self, name)[first:last] = getattr(segment, name)
        self.cache_ptr.append(self.cache_ptr[-1] + len(segment.cache_ids))
        self.disk_bytes += segment.disk_bytes
        for batch in range(last - first):
            self._reader[segment.cache(0)[segment.cached(batch)]] = first + batch
            self.overlaps += int(np.count_nonzero(self._reader[segment.packed(batch)] == first + batch))


def plan_all(
    batches: SegmentBatches,
    placement: Placement,
    choice: SegmentChoice,
    order: str,
    seed: int,
    writer: Writer,
    progress: Progress,
) -> PlanTotals:
    """Plans segment after segment and writes the arrays.

    Args:
        order, seed: order of the disk caches' rows, and the seed that draws it, as the table gives them.

    Raises:
        InputError: copies were asked for and the disk budget has no space for them.
    """
    planner = SegmentPlanner(batches, placement.slot, choice, seed)
    layout = choose_layout(planner, order, progress)
    try:
        return _plan_layout(planner, layout, placement, writer, progress)
    except NoSpace:
        if order == "copies":
            raise
        for name in STREAMED:
            writer.path(f"{name}.npy").unlink()
        return _plan_layout(planner, one_copy(choice, "filled"), placement, writer, progress)


def _plan_layout(
    planner: SegmentPlanner, layout: Layout, placement: Placement, writer: Writer, progress: Progress
) -> PlanTotals:
    num_batches, ids = planner.batches.num_batches, placement.device_ids.dtype
    totals = PlanTotals(num_batches, len(placement.slot), layout.order)
    progress.start("plan segments", num_batches, "batches")
    with ExitStack() as opened:
        files = {
            name: opened.enter_context(writer.append(name, dtype))
            for name, dtype in zip(STREAMED, (ids, ids, np.dtype(np.int32)), strict=True)
        }
        for first, last in layout.cuts:
            ptr, node_ids = planner.load(first, last)
            segment = planner.plan(layout, first, last)
            for name, file in files.items():
                file.append(getattr(segment, name))
            static, without = _static_rows(ptr, node_ids, placement.slot)
            tier_rows = np.stack([*static, segment.cached_rows, segment.packed_rows], axis=1)
            totals.add(first, last, tier_rows, without, segment)
            progress.advance(last - first)
    progress.done()
    sizes = [last - first for first, last in layout.cuts]
    writer.save("segment_of", np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))
    writer.save("cache_ptr", np.array(totals.cache_ptr, np.int64))
    for name, column in (("member_ptr", 2), ("packed_ptr", 3)):
        writer.save(name, np.concatenate([[0], np.cumsum(totals.tier_rows[:, column])]))
    for name in ("tier_rows", "pages", "runs", "pages_by_id"):
        writer.save(name, getattr(totals, name))
    return totals


def _static_rows(ptr: Array, node_ids: Array, slot: Array) -> tuple[list[Array], Array]:
    """Returns (i64[s] for the device and for the host: rows of each batch there; i64[s], inputs of each batch without features)."""
    tier = split_slots(slot[node_ids])[0]
    batch = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    *static, without = (
        np.bincount(batch[tier == each], minlength=len(ptr) - 1) for each in (DEVICE, HOST, NO_FEATURES)
    )
    return static, without
