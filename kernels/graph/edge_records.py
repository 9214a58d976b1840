"""Edges as records on their way through the out-of-core sort (assets/graph/edge_sort.py): dealt to ranges of nodes, then sorted.

A record begins with destination and source in the graph's id type; attributes may follow, the edge type last. `deal_records` moves whole
records of any width. `sort_ends` sorts records that are ends alone, by buckets of destinations as `build_csc` does; edges with attributes
need `edge_order`.

Peak memory beside the input: `deal_records` the records it returns; `sort_ends` two ids for each edge while the rows are sorted, three at
the end, and 16 bytes for each node of the range.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.types import Array


def deal_records(
    records: Array, range_of: Array, shift: int, num_ranges: int, *, reverse: bool, drop_loops: bool, type_step: int = 0
) -> tuple[Array, list[int], int]:
    """Deals records to ranges of destinations.

    Args:
        records: records[n] whose first fields are `dst` and `src`, both of one id type, and whose `type`, if there is one, comes last.
        range_of: u16[bins], the range of each bin of destinations; a destination's bin is its id >> shift.
        reverse: whether the reverse of every edge that is not a self-loop is added.
        type_step: number that is added to the type of a reverse edge.

    Returns:
        (the records, range after range; the number of each range; the number of self-loops in `records`). Within a range records keep
        their order, and a reverse follows its edge.
    """
    assert not type_step or (records.dtype.names or ("",))[-1] == "type", "the type is not the last field"
    deal = _native.deal_records32 if records.dtype["dst"] == np.int32 else _native.deal_records64
    given = np.ascontiguousarray(records)
    width = given.dtype.itemsize
    dealt, counts, loops = deal(
        given.view(np.uint8), width, range_of, shift, num_ranges, bool(reverse), bool(drop_loops), type_step
    )
    return dealt.view(records.dtype), counts, loops


def deal_records_reference(
    records: Array, range_of: Array, shift: int, num_ranges: int, *, reverse: bool, drop_loops: bool, type_step: int = 0
) -> tuple[Array, list[int], int]:
    """Returns the same as `deal_records` (the rule in Python)."""
    ranges: list[list[Any]] = [[] for _ in range(num_ranges)]
    for record in records:
        loop = record["dst"] == record["src"]
        if not (loop and drop_loops):
            ranges[range_of[record["dst"] >> shift]].append(record.copy())
        if reverse and not loop:
            back = record.copy()
            back["dst"], back["src"] = record["src"], record["dst"]
            if type_step:
                back["type"] += type_step
            ranges[range_of[back["dst"] >> shift]].append(back)
    dealt = [record for each in ranges for record in each]
    loops = int(np.count_nonzero(records["dst"] == records["src"]))
    return np.array(dealt, records.dtype), [len(each) for each in ranges], loops


def sort_ends(records: Array, low: int, num_rows: int, *, merge: bool, threads: int = 1) -> tuple[Array, Array, int]:
    """Sorts edges of a range of destinations by (destination, source).

    Args:
        records: records[n] of `dst` and `src` alone; destinations are low to low + num_rows - 1.
        low, num_rows: first node and number of nodes of the range.

    Returns:
        (sources ids[kept] in order, edges of each destination i64[num_rows], number of edges that repeat one before).
    """
    ids = records.dtype["dst"]
    sort = _native.sort_ends32 if ids == np.int32 else _native.sort_ends64
    return sort(records.view(ids), low, num_rows, bool(merge), check_threads(threads))


def sort_ends_reference(records: Array, low: int, num_rows: int, *, merge: bool) -> tuple[Array, Array, int]:
    """Returns the same as `sort_ends` (the rule in NumPy)."""
    records = np.sort(records, order=("dst", "src"))
    repeats = np.zeros(len(records), bool)
    repeats[1:] = records[1:] == records[:-1]
    kept = records[~repeats] if merge else records
    return kept["src"].copy(), np.bincount(kept["dst"] - low, minlength=num_rows), int(np.count_nonzero(repeats))
