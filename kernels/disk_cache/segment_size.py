"""The number of batches of a segment: DiskGNN's Algorithm 2, on exact numbers of all segments instead of the first one's.

Larger segments take less space, for fewer copies, and move more pages. Algorithm 2 therefore takes the smallest segment whose space
fits the budget, starting at s = 1, where nothing is shared and every batch is packed whole. As printed it knows only the first segment
and multiplies: ((|V_d| + |V_p|) |G| / i) rows for s = i. Batches differ, so that estimate is too small for some graphs and too large
for others.

Exact numbers cost one pass. A row is stored once for each segment that needs it, in its cache or in one chunk. So the rows stored at size s
are all (batch, node) pairs from disk less those whose node was used before in the same segment; and since a segment's batches are
consecutive, that is so exactly when the node's LAST use lies in it. One histogram of gaps g between consecutive uses, a row per batch,
answers for every s at once:

    rows(s) = pairs - sum over b, 1 <= g <= b mod s, of gaps[b, g]

Such gaps are also called inter-reference intervals; they give the working set of a cache as well (Denning, 1968).

Up to `EXACT_SIZES` every size is known, beyond it the multiples of u = ceil(B / EXACT_SIZES), from a second histogram over groups of u
batches, and B itself. The pass reads each id once and its last use at random: about 8 bytes per pair.

Memory: 4 N bytes of last uses and 4 B min(B, EXACT_SIZES) bytes of gaps (8 while one is summed up), twice that if B is larger.

Source: DiskGNN, section 5.1, Algorithm 2. Erratum: it starts at s = 1, which is pure packing.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, check_threads
from graphmill.kernels.disk_cache.segments import disk_state
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import check_ptr
from graphmill.kernels.types import Array

EXACT_SIZES = 1024


def stored_rows_reference(ptr: Array, node_ids: Array, slot: Array, size: int) -> int:
    """Returns the rows that segments of `size` batches store: distinct (segment, node) pairs from disk (the rule in NumPy)."""
    on_disk, total = disk_state(slot) == 0, 0
    for first in range(0, len(ptr) - 1, size):
        ids = node_ids[ptr[first] : ptr[min(first + size, len(ptr) - 1)]]
        total += len(np.unique(ids[on_disk[ids]]))
    return total


class SegmentSizes:
    """The rows that segments of every size store; all batches are added in their order before the first query.

    Args:
        slot: i32[N] of the placement that holds the static tiers.
        num_batches: B, batches of all epochs.
        exact_sizes: size up to which every size is known.
    """

    def __init__(self, slot: Array, num_batches: int, exact_sizes: int = EXACT_SIZES):
        if not 1 <= num_batches < 2**31 or exact_sizes < 1:
            raise InputError(f"{num_batches} batches, {exact_sizes} exact sizes", "give at least one of each")
        self.num_batches, self._added = num_batches, 0
        self._last = disk_state(slot) - 1  # -1 not used yet, -2 not on disk
        band = min(num_batches, exact_sizes)
        self._unit = -(-num_batches // band)
        groups = -(-num_batches // self._unit) if self._unit > 1 else 0
        self._near = np.zeros((num_batches, band), np.int32)
        self._far = np.zeros((groups, groups), np.int32)
        self._uses = np.zeros((num_batches, 2), np.int64)  # first uses, all uses

    def add(self, ptr: Any, node_ids: Any, threads: int = 1) -> None:
        """Takes the next batches.

        Args:
            ptr: i64[s+1], batch b needs node_ids[ptr[b]:ptr[b+1]], each node once.
            node_ids: ids[n], global.

        Raises:
            InputError: more batches than announced, a node twice in a batch, or an id out of range.
        """
        node_ids = as_ids(node_ids, "node_ids")
        ptr = check_ptr(ptr, len(node_ids))
        first, last = self._added, self._added + len(ptr) - 1
        if last > self.num_batches:
            raise InputError(f"batch {last} of {self.num_batches}", "announce as many batches as will be added")
        _native.count_gaps(
            first, ptr, node_ids, self._last, self._near[first:last], self._unit, self._far, self._uses[first:last],
            check_threads(threads),
        )  # fmt: skip
        self._added = last
        if last == self.num_batches:
            self._last = self._last[:0].copy()  # as large as the graph, and not needed any more
            for gaps in (self._near, self._far):
                np.cumsum(gaps, axis=1, dtype=np.int32, out=gaps)

    def sizes(self) -> Iterator[int]:
        """Yields the sizes whose rows are known, ascending: 1 first, B last."""
        band = self._near.shape[1]
        yield from range(1, band + 1)
        yield from range((band // self._unit + 1) * self._unit, self.num_batches, self._unit)
        if self.num_batches > band:
            yield self.num_batches

    def rows(self, size: int) -> int:
        """Returns the rows that segments of a size of `sizes()` store, exactly; at 1 those of full packing."""
        assert self._added == self.num_batches, f"{self._added} of {self.num_batches} batches were added"
        if size >= self.num_batches:
            return int(self._uses[:, 0].sum())
        gaps, step = (self._near, size) if size <= self._near.shape[1] else (self._far, size // self._unit)
        assert gaps is self._near or size % self._unit == 0, f"size {size} is not known"
        index = np.arange(len(gaps))
        return int(self._uses[:, 1].sum()) - int(gaps[index, index % step].sum(dtype=np.int64))

    def pairs(self) -> Array:
        """Returns i64[B], the rows that each batch needs from disk."""
        return self._uses[:, 1].copy()

    def smallest(self, most_rows: int, above: int = 0) -> int | None:
        """Returns the smallest size above `above` whose rows fit into the budget's `most_rows`, or None."""
        return next((size for size in self.sizes() if size > above and self.rows(size) <= most_rows), None)

    def as_printed(self, most_rows: int) -> int | None:
        """Returns the size that Algorithm 2 takes as printed, from the first segment's rows times B / s; or None."""
        distinct = np.cumsum(self._uses[:, 0])
        fits = distinct * self.num_batches <= most_rows * np.arange(1, self.num_batches + 1)
        return int(np.argmax(fits)) + 1 if fits.any() else None
