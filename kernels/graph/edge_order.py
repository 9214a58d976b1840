"""The canonical order of edges that carry types, weights or ids: by destination, edge type, source, place in the source.

`build_csc` compresses bare edges; two edges with equal ends are then the same bytes. Edges with attributes must be moved
together with them, so this kernel returns the order and leaves the arrays alone. It is the inner step of the out-of-core
sort (assets/graph/edge_sort.py), which calls it on one range of destinations at a time.

A counting sort by destination, then a comparison sort inside every row: O(n log(degree)). Peak memory beside the input and
the result of 4 n bytes: 24 n + 16 num_rows bytes.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, check_threads
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

LARGEST_SOURCE = 2**56
MOST_EDGES = 2**31 - 1


def edge_order_reference(rows: Array, src: Array, types: Array | None = None, ties: Array | None = None) -> Array:
    """Returns the same as `edge_order` (the rule in NumPy)."""
    position = np.arange(len(rows))
    keys = [position, position if ties is None else ties, src, np.zeros(len(rows)) if types is None else types, rows]
    return np.lexsort(keys).astype(np.int32)


def edge_order(rows: Any, src: Any, num_rows: int, types: Any = None, ties: Any = None, threads: int = 1) -> Array:
    """Returns the order i32[n] that sorts edges by (row, type, source, tie, position).

    Args:
        rows: i32[n], destinations counted from the first of their range: 0 to num_rows - 1.
        src: ids[n], global ids below 2^56.
        types: u8[n], or None if all edges are of one type.
        ties: i64[n] that order edges with equal ends and type (rows of their source table), or None to keep their order.
    """
    rows, src = as_ids(rows, "rows"), as_ids(src, "src")
    types, ties = _as_keys(types, "types", np.uint8), _as_keys(ties, "ties", np.int64)
    lengths = {len(array) for array in (rows, src, types, ties) if array is not None}
    if len(lengths) > 1:
        raise InputError(f"rows, src, types and ties have lengths {sorted(lengths)}", "give one of each for every edge")
    if len(rows) > MOST_EDGES:
        raise InputError(f"{len(rows)} edges in one range of destinations", "sort smaller ranges")
    if len(rows) and (rows.min() < 0 or rows.max() >= num_rows or src.min() < 0 or src.max() >= LARGEST_SOURCE):
        problem = f"rows run to {rows.max()} of {num_rows}, sources to {src.max()}"
        raise InputError(problem, "give ids that are in range")
    return _native.edge_order(rows.astype(np.int32, copy=False), src, types, ties, num_rows, check_threads(threads))


def _as_keys(values: Any, what: str, dtype: Any) -> Array | None:
    """Returns values as native code reads them; a cast that may change one, 300 to 44 in a byte, is refused."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or not np.can_cast(array.dtype, dtype):
        name = np.dtype(dtype).name
        raise InputError(f"{what} are {array.dtype}{list(array.shape)}", f"give {what} as {name}[n]")
    return np.require(array, dtype, ["C", "A"])
