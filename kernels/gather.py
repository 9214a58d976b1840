"""Gathering feature rows: out[i] = table[node_ids[i]], converted to the model's dtype on the way.

The table keeps the type it is stored in; the conversion happens here and nowhere else, in the same pass that copies, so a row
is read once and written once: n (row_bytes + out_row_bytes) bytes. Rows of any width are taken as they lie, memory-mapped
tables included. The bound is memory: the next rows are asked for while the present one is copied. All conversions are exact
except float64 to float32, which rounds to nearest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import _native
from kernels.arrays import FLOATS, as_ids, as_out, check_threads
from kernels.errors import InputError
from kernels.types import Array

TABLE_DTYPES = tuple(np.dtype(name) for name in ("float16", "float32", "float64", "int8", "uint8"))


def gather_reference(table: Array, node_ids: Array, dtype: Any = np.float32) -> Array:
    """Returns dtype[n, F]: the rows of a table, converted (the rule in NumPy)."""
    return np.asarray(table[node_ids]).astype(dtype)


def gather(table: Array, node_ids: Any, out: Array, threads: int = 1) -> Array:
    """Writes the rows node_ids of a table to `out`.

    Args:
        table: [N, F] of float16, float32, float64, int8 or uint8; rows may be apart, a row's columns must be adjacent.
        node_ids: ids[n], rows of the table; repeated ids are allowed.
        out: f32 or f64 [n, F], C-contiguous.
        threads: native threads; the result does not depend on it.

    Returns:
        out.

    Raises:
        InputError: a dtype or shape does not fit, or an id is no row of the table. Nothing is written then.
    """
    if table.ndim != 2 or table.dtype not in TABLE_DTYPES:
        names = ", ".join(map(str, TABLE_DTYPES))
        raise InputError(f"the table is {table.dtype}{list(table.shape)}", f"give a matrix of {names}")
    if (table.shape[1] > 1 and table.strides[1] != table.itemsize) or not table.flags.aligned:
        raise InputError("the columns of a table's row are not adjacent in memory", "give a C-contiguous table")
    node_ids = as_ids(node_ids, "node_ids")
    if out.dtype not in FLOATS:
        raise InputError(f"out is {out.dtype}", "gather writes float32 or float64")
    out = as_out(out, (len(node_ids), table.shape[1]), out.dtype)
    _native.gather(table, node_ids, out, check_threads(threads))
    return out
