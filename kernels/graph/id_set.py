"""The different integer ids at both ends of edges, and where each stands among them.

`unique_places` sorts the ids of a batch by counting digits of 11 bits: time in proportion to their number and to the digits of their span,
16 to 32 bytes per id beside the results.

`IdSet` takes ids batch by batch: those from 0 to 2^28 - 1 are bits, others stand in a table with open addressing. `rank_index` finds the
ranks of ids again.

Peak memory: `IdSet` 64 MiB at most for the bits, of which only touched pages count, and at most 41 bytes for each other id; 8 more for each
id of the result. `rank_index` 6 to 12 bytes per id beside the ids, twice that from 2^31 ids on.
"""

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.types import Array


class IdSet:
    """The ids that were added, and at which end."""

    def __init__(self):
        self._ids = _native.IdSet()

    def add(self, ids: Array, side: int) -> None:
        """Adds ids i64[n] of a side, 0 or 1."""
        assert side in (0, 1), f"side {side}"
        self._ids.add(np.ascontiguousarray(ids, np.int64), side)

    def sorted(self) -> tuple[Array, int]:
        """Returns (the ids i64[N] in ascending order, the number of those that were added for both sides); the set ends with it."""
        return self._ids.sorted()


def unique_places(ids: Array) -> tuple[Array, Array]:
    """Returns the different ids of i64[n] in ascending order, i64[U], and the place of each given id among them, i32[n]."""
    return _native.unique_places(np.ascontiguousarray(ids, np.int64))


def unique_places_reference(ids: Array) -> tuple[Array, Array]:
    """Returns the same as `unique_places` (the rule in NumPy)."""
    found, places = np.unique(ids, return_inverse=True)
    return found.astype(np.int64), places.astype(np.int32)


def id_set_reference(ids: Array, others: Array) -> tuple[Array, int]:
    """Returns the same as `IdSet.sorted` for ids of side 0 and of side 1 (the rule in NumPy)."""
    return np.union1d(ids, others).astype(np.int64), len(np.intersect1d(ids, others))


class RankIndex:
    """Finds the places of ids in i64[N], ascending and without repeats."""

    def __init__(self, ids: Array):
        index = _native.IdIndex32 if len(ids) < 2**31 else _native.IdIndex64
        self._index = index(np.ascontiguousarray(ids, np.int64))

    def look_up(self, given: Array, threads: int = 1) -> Array:
        """Returns i64[n], the place of each id of `given` i64[n], -1 for one that is not in the list."""
        return self._index.look_up(np.ascontiguousarray(given, np.int64), check_threads(threads))


def look_up_reference(ids: Array, given: Array) -> Array:
    """Returns the same as `RankIndex(ids).look_up(given)` (the rule in NumPy)."""
    if not len(ids):
        return np.full(len(given), -1, np.int64)
    place = np.minimum(np.searchsorted(ids, given), len(ids) - 1)
    return np.where(ids[place] == given, place, -1)
