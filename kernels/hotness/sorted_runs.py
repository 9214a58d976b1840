"""Sorting of more keys than memory holds: ranges are sorted one by one, and merged by the values at which they are cut.

`cuts` finds, for a place p of the sorted whole, how many keys of each run stand before it. The value at p is found by bisection over all
64-bit numbers, with a binary search in every run; of keys that equal it, those of the first runs come first. Two successive cuts give each
run's share of a block, which is sorted on its own: ties stay in the order of their runs, so the merge is stable.

This is an external merge sort with exact splitters. Cost: n log n comparisons; 64 searches per run and block. Memory: one range and one
block; `Allocate` gives the runs, 8 bytes per key, and 4 more per key for `order`, or 8 from 2^31 keys on.
"""

from collections.abc import Callable, Sequence

import numpy as np

from graphmill.kernels.ranges import Allocate, key_ranges
from graphmill.kernels.types import Array, id_dtype


def order_reference(keys: Array) -> Array:
    """Returns ids[n] as `order` does (the rule in NumPy)."""
    return np.argsort(keys, kind="stable").astype(id_dtype(len(keys)))


def order(count: int, keys_of: Callable[[int, int], Array], out: Array, allocate: Allocate = np.zeros) -> None:
    """Writes the places of the u64 keys of `keys_of(low, high)` to `out`, ids[n], by ascending key, ties by ascending place."""
    ranges = list(key_ranges(count))
    if len(ranges) < 2:
        for low, high in ranges:
            out[low:high] = np.argsort(keys_of(low, high), kind="stable")
        return
    keys, places = allocate(count, np.uint64), allocate(count, out.dtype)
    for low, high in ranges:
        found = keys_of(low, high)
        ascending = np.argsort(found, kind="stable")
        keys[low:high], places[low:high] = found[ascending], ascending + low
    runs = [keys[low:high] for low, high in ranges]
    ends = cuts(runs, np.array([high for _, high in ranges]))
    starts = np.zeros(len(runs), np.int64)
    for (low, high), stops in zip(ranges, ends, strict=True):
        shares = [
            slice(first + start, first + stop) for (first, _), start, stop in zip(ranges, starts, stops, strict=True)
        ]
        ascending = np.argsort(np.concatenate([keys[share] for share in shares]), kind="stable")
        out[low:high] = np.concatenate([places[share] for share in shares])[ascending]
        starts = stops


def cuts(runs: Sequence[Array], places: Array) -> Array:
    """Returns i64[k, runs]: how many keys of each ascending u64 run stand before each place (i64[k] in 0..n) of all keys in order."""
    total = sum(map(len, runs))
    if not total:
        return np.zeros((len(places), len(runs)), np.int64)
    # A cut at the end lies before no key; the last key is found instead, and counted in.
    values = order_statistics(runs, np.minimum(places, total - 1))
    before, through = (
        np.stack([np.searchsorted(run, values, side) for run in runs], axis=1) for side in ("left", "right")
    )
    ties = through - before
    # Of the keys that equal the value at a place, the first runs give theirs first.
    wanted = (places - before.sum(axis=1))[:, None]
    earlier = np.cumsum(ties, axis=1) - ties
    return before + np.clip(wanted - earlier, 0, ties)


def order_statistics(runs: Sequence[Array], places: Array) -> Array:
    """Returns u64[k]: the keys at `places`, i64[k] in 0..n-1, of all keys of the ascending u64 `runs` in ascending order."""
    low, high = np.zeros(len(places), np.uint64), np.full(len(places), 2**64 - 1, np.uint64)
    while (low < high).any():
        middle = low + (high - low) // np.uint64(2)
        through = sum(np.searchsorted(run, middle, "right") for run in runs)
        enough = through > places
        low, high = np.where(enough, low, middle + np.uint64(1)), np.where(enough, middle, high)
    return low
