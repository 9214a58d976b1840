"""How the segments of a plan are laid out: with one copy of each row in a disk cache, or with copies for sets of batches.

One copy is DiskGNN's layout, in segments of the fewest batches that fit the budget (Algorithm 2). If the budget is close to the bytes of
full packing, batches want whole pages. If it is a third or a half of that, segments get long and pages sparse, and copies
(kernels/disk_cache/copies.py) move fewer bytes in the same space. Below a quarter both read many unwanted bytes, copies in more and shorter
reads. So "auto" considers copies from a quarter on, if one copy moves more than 1 % of unwanted bytes: it plans the first segment of both
and takes the better one.

Segments with copies should be as long as memory allows, since longer ones have more sets of batches to choose from. Its share of the budget
is its share of the rows.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from graphmill.assets.building.stage import Progress
from graphmill.assets.cache_plan.segment_size import SegmentBatches, SegmentChoice
from graphmill.assets.sizes import format_bytes
from graphmill.kernels.disk_cache.copies_plan import plan_copies
from graphmill.kernels.disk_cache.segment_plan import CountedPlan, Order, plan_segment
from graphmill.kernels.disk_cache.segments import disk_state
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

PAIRS_WITH_COPIES = 1 << 25
"""Largest number of (batch, node) pairs in a segment with copies; a segment of one batch may have more."""
GOOD = 1.01
"""Amplification up to which no other layout is tried."""
WORTH = 0.25
"""Share of full packing below which no other layout is tried."""


class NoSpace(InputError):
    """A segment with copies does not fit its share of the disk budget."""


class Layout(NamedTuple):
    """The order of the disk caches' rows, or "copies", and (first batch, one behind the last) of each segment."""

    order: str
    cuts: Sequence[tuple[int, int]]


class SegmentPlanner:
    """Plans segments of stored batches; remembers the segment that was last planned for the decision, since it is often taken.

    Args:
        slot: i32[N], slots of the static tiers.
        seed: seed that draws the permutations of "minhash".
    """

    def __init__(self, batches: SegmentBatches, slot: Array, choice: SegmentChoice, seed: int):
        self.batches, self.choice, self._seed = batches, choice, seed
        self._state = disk_state(slot)
        self._loaded: tuple[tuple[int, int], tuple[Array, Array]] | None = None
        self._planned: dict[tuple[str, int, int], CountedPlan] = {}

    def load(self, first: int, last: int) -> tuple[Array, Array]:
        """Returns (ptr i64[n+1], node_ids) of batches first to last - 1."""
        if self._loaded is None or self._loaded[0] != (first, last):
            self._loaded = None  # before the next one takes memory
            self._loaded = (first, last), self.batches.load(first, last)
        return self._loaded[1]

    def plan(self, layout: Layout, first: int, last: int) -> CountedPlan:
        """Plans a segment, batches first to last - 1; raises NoSpace if its share of the budget is too small for copies."""
        key = layout.order, first, last
        if key not in self._planned:
            return self._plan(layout.order, first, last)
        return self._planned.pop(key)

    def amplification(self, layout: Layout) -> float:
        """Plans the first segment. Returns its bytes read per byte needed; infinite if copies do not fit."""
        self._planned.clear()
        try:
            segment = self._plan(layout.order, *layout.cuts[0])
        except NoSpace:
            return np.inf
        self._planned[layout.order, *layout.cuts[0]] = segment
        return segment.amplification

    def _plan(self, order: str, first: int, last: int) -> CountedPlan:
        choice, threads = self.choice, self.batches.threads
        ptr, node_ids = self.load(first, last)
        if order != "copies":
            single: Order = order  # pyright: ignore[reportAssignmentType]
            return plan_segment(
                ptr,
                node_ids,
                self._state,
                choice.row_bytes,
                order=single,
                seed=self._seed,
                compare=True,
                threads=threads,
            )
        space = choice.disk_budget * int(choice.pairs[first:last].sum()) // max(1, choice.full_rows)
        found = plan_copies(ptr, node_ids, self._state, choice.row_bytes, space, compare=True, threads=threads)
        if found is None:
            problem = (
                f"copies of rows for batches {first} to {last - 1} do not fit {format_bytes(space)} of the disk budget"
            )
            raise NoSpace(problem, 'set order = "auto" in [cache_plan], or raise `disk`, of rows of edges `edge_disk`')
        return found


def choose_layout(planner: SegmentPlanner, order: str, progress: Progress) -> Layout:
    """Returns the layout of `order`; for "auto" the one whose first segment moves fewer bytes per byte needed."""
    choice = planner.choice
    if order == "copies" and choice.row_bytes:
        return with_copies(choice)
    single = one_copy(choice, "filled" if order == "auto" else order)
    worth = WORTH * choice.full_rows * choice.row_bytes
    if order != "auto" or choice.size == 1 or choice.asked_size or not 0 < worth <= choice.disk_budget:
        return single
    progress.start("compare layouts", 2, "layouts")
    moved = planner.amplification(single)
    progress.advance(1)
    copies = with_copies(choice)
    better = moved > GOOD and planner.amplification(copies) < moved
    progress.advance(1)
    progress.done()
    return copies if better else single


def one_copy(choice: SegmentChoice, order: str) -> Layout:
    """Returns segments of the chosen size."""
    return Layout("filled" if order == "copies" else order, choice.segments())


def with_copies(choice: SegmentChoice) -> Layout:
    """Returns segments of about equally many (batch, node) pairs, as few as `PAIRS_WITH_COPIES` or the configured size allows."""
    num_batches = len(choice.pairs)
    fewest = -(-num_batches // choice.asked_size) if choice.asked_size else -(-choice.full_rows // PAIRS_WITH_COPIES)
    count = min(num_batches, max(1, fewest))
    ends = np.searchsorted(np.cumsum(choice.pairs), choice.full_rows * np.arange(1, count) / count) + 1
    edges = [edge for block in choice.blocks for edge in block]
    cuts = np.unique(np.concatenate([edges, np.minimum(ends, num_batches)])).tolist()
    return Layout("copies", list(pairwise(cuts)))
