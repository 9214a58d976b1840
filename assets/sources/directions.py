"""Which relations hold the edges of another one in reverse, or their own: a sample of the different edges of each, by their hash.

Of each relation the `KEPT` smallest hashes of its edges are kept, and those of its reversed edges. The share of two relations' smallest
hashes that both have estimates the share of edges that they have in common, whatever the order and the number of repeats.

Peak memory: 16 KiB per relation and direction, and 40 bytes per edge of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphmill.kernels.rng import absorb_ids, key
from graphmill.kernels.types import Array

KEPT = 1024
LEAST_SHARE, LEAST_EDGES = 0.5, 4
"""Share of common edges from which a relation counts as the reverse of another one, and edges below which it may be chance."""


class Sample:
    """The smallest hashes of different edges, u64[up to KEPT], ascending."""

    def __init__(self) -> None:
        self.hashes = np.zeros(0, np.uint64)

    def add(self, hashes: Array) -> None:
        """Takes u64[n]."""
        if len(self.hashes) == KEPT:
            hashes = hashes[hashes < self.hashes[-1]]
        if len(hashes):
            self.hashes = np.unique(np.concatenate([self.hashes, hashes]))[:KEPT]

    def shared(self, other: Sample) -> float:
        """Returns the share of the edges of both that both have."""
        smallest = np.union1d(self.hashes, other.hashes)[:KEPT]
        both = np.isin(smallest, self.hashes) & np.isin(smallest, other.hashes)
        return float(np.count_nonzero(both)) / max(1, len(smallest))


class Directions:
    """Samples of the relations of a graph, filled while its edges pass."""

    def __init__(self) -> None:
        self._forth: dict[int, Sample] = {}
        self._back: dict[int, Sample] = {}

    def add(self, src: Array, dst: Array, types: Array | int) -> None:
        """Takes edges src[n] -> dst[n] of relations u8[n], or of one; loops, which are their own reverse, are left out."""
        proper = np.flatnonzero(np.asarray(src) != np.asarray(dst))
        if len(proper) == 0:
            return
        forth, back = _hashes(src[proper], dst[proper]), _hashes(dst[proper], src[proper])
        if isinstance(types, int):
            self._take(types, forth, back)
            return
        types = types[proper]
        for number in np.unique(types).tolist():
            mine = types == number
            self._take(number, forth[mine], back[mine])

    def _take(self, number: int, forth: Array, back: Array) -> None:
        self._forth.setdefault(number, Sample()).add(forth)
        self._back.setdefault(number, Sample()).add(back)

    def reverse_pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yields (relation, relation, share of common edges) where the second holds the edges of the first in reverse; both may be one."""
        numbers = sorted(self._forth)
        for place, one in enumerate(numbers):
            for other in numbers[place:]:
                share = self._forth[one].shared(self._back[other])
                if share >= LEAST_SHARE and len(self._forth[one].hashes) >= LEAST_EDGES:
                    yield one, other, share


def _hashes(src: Array, dst: Array) -> Array:
    """Returns u64[n], a hash of each edge, which is another one than that of its reverse."""
    return absorb_ids(key(1), src) ^ absorb_ids(key(2), dst)
