"""Rows that change their place: the transfers of a full-graph pass (HongTu, sections 5.2 and 6, Algorithms 2 and 3).

Three operations carry all of them. `place_rows` writes rows into a buffer where they are to stay: from the host (line 5 of Algorithm 2),
from a peer's buffer (line 9), and a chunk's results back into the host's array. `add_rows` adds rows to others: a peer's gradients to
those of the owner (line 5 of Algorithm 3), and gradients that arrived at the host to the host's array (line 9). `take_rows` collects the
rows of a list side by side and leaves zeros, so that one copy takes them to the host (the compaction of section 6) and their places are
clean for the next rows.

The paper pushes gradients to their owner with atomic additions of floating-point numbers; here the owner pulls them, from one peer after
the other. The rows of a list are distinct, so no two threads ever add to one number, and sums have one order: equal bits at any thread
count, on the CPU and on a GPU.

On a GPU the rows of `place_rows` may lie in pinned host memory, which the kernel reads over the bus (section 6, on-demand communication);
neighbouring lanes read neighbouring columns. Cost: each row is read once and written once, with `add_rows` read twice; 4 bytes per row
for each list. Other names: gather and scatter, index_copy, index_add. Not checked: that the rows of a list that is written are distinct.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import FLOATS, as_ids, as_rows, check_threads
from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.move_rows_cuda import add_rows_cuda, place_rows_cuda, take_rows_cuda
from graphmill.kernels.types import Array


def place_rows_reference(source: Array, source_rows: Array | None, out: Array, out_rows: Array | None) -> None:
    """Writes out[out_rows[k]] = source[source_rows[k]] (the rule in NumPy)."""
    out[_listed(out_rows, out)] = source[_listed(source_rows, source)]


def add_rows_reference(source: Array, source_rows: Array | None, out: Array, out_rows: Array | None) -> None:
    """Adds source[source_rows[k]] to out[out_rows[k]] (the rule in NumPy)."""
    out[_listed(out_rows, out)] += source[_listed(source_rows, source)]


def take_rows_reference(source: Array, rows: Array, out: Array) -> None:
    """Writes out[k] = source[rows[k]] and makes those rows of the source zero (the rule in NumPy)."""
    out[...] = source[rows]
    source[rows] = 0


def _listed(rows: Array | None, table: Array) -> Any:
    return np.arange(len(table)) if rows is None else rows


def place_rows(source: Any, source_rows: Any | None, out: Any, out_rows: Any | None, threads: int = 1) -> Any:
    """Writes out[out_rows[k]] = source[source_rows[k]], by native code or, if `out` is on a device, by the CUDA kernel.

    Args:
        source: f32 or f64 [n, F], C-contiguous; for an `out` on a device it is there, too, or pinned.
        source_rows: i32[k] or i64[k], may repeat; None for all rows in order.
        out: [m, F] of the source's dtype, C-contiguous, apart from it.
        out_rows: i32[k] or i64[k], distinct; None for all rows in order.

    Raises:
        InputError: a shape or dtype does not fit, or a row is out of range (which a device does not check).
    """
    if on_device(out):
        return place_rows_cuda(source, source_rows, out, out_rows, device_of(out))
    from_rows, to_rows = _checked(source, source_rows, out, out_rows)
    _native.place_rows(source, from_rows, out, to_rows, check_threads(threads))
    return out


def add_rows(source: Any, source_rows: Any | None, out: Any, out_rows: Any | None, threads: int = 1) -> Any:
    """Adds source[source_rows[k]] to out[out_rows[k]]; arguments, result and errors are those of `place_rows`."""
    if on_device(out):
        return add_rows_cuda(source, source_rows, out, out_rows, device_of(out))
    from_rows, to_rows = _checked(source, source_rows, out, out_rows)
    _native.add_rows(source, from_rows, out, to_rows, check_threads(threads))
    return out


def take_rows(source: Any, rows: Any, out: Any, threads: int = 1) -> Any:
    """Writes out[k] = source[rows[k]] and makes those rows of the source zero.

    Args:
        source: f32 or f64 [n, F], C-contiguous; written.
        rows: i32[k] or i64[k], distinct.
        out: [k, F] of the source's dtype, C-contiguous, apart from it.

    Raises:
        InputError: a shape or dtype does not fit, or a row is out of range (which a device does not check).
    """
    if on_device(out):
        return take_rows_cuda(source, rows, out, device_of(out))
    from_rows, to_rows = _checked(source, rows, out, None)
    _native.take_rows(source, from_rows, out, to_rows, check_threads(threads))
    return out


def _checked(source: Array, source_rows: Any, out: Array, out_rows: Any) -> tuple[Array | None, Array | None]:
    """Returns both lists as native code takes them."""
    as_rows(source, "source", None, FLOATS)
    for array, name in ((source, "source"), (out, "out")):
        if not array.flags.c_contiguous:
            raise InputError(f"{name} is not contiguous in memory", "give a contiguous array")
    if out.dtype != source.dtype or out.ndim != 2 or out.shape[1] != source.shape[1]:
        problem = f"out is {out.dtype}{list(out.shape)}, source {source.dtype}{list(source.shape)}"
        raise InputError(problem, "give rows of one dtype and width")
    lists = [None if rows is None else as_ids(rows, "rows") for rows in (source_rows, out_rows)]
    counts = [len(table) if rows is None else len(rows) for rows, table in zip(lists, (source, out), strict=True)]
    if counts[0] != counts[1]:
        raise InputError(f"{counts[0]} rows are to move to {counts[1]} places", "give lists of one length")
    if np.shares_memory(source, out):
        raise InputError("out shares memory with the source", "give arrays that are apart")
    return lists[0], lists[1]
