"""Checks of arguments that every public function makes before it hands pointers to native code."""

import functools
from typing import Any

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Block

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
INT32 = np.dtype(np.int32)
BFLOAT16 = np.dtype(np.uint16)
"""NumPy has no bfloat16: uint16 holds its bits (in torch, `tensor.view(torch.uint16).numpy()`)."""
STORED_FLOATS = (*FLOATS, np.dtype(np.float16), BFLOAT16)
"""Dtypes of stored rows; sums of the last two are kept in float32."""


def largest(values: Array) -> int:
    """Returns the largest of integers of any type, -1 without any. `max(initial=-1)` refuses unsigned types, which lack -1."""
    return int(values.max()) if values.size else -1


@functools.cache  # a launch on a GPU asks for the names of a dozen arrays
def dtype_name(dtype: Any) -> str:
    """Returns a NumPy, CuPy or torch dtype's name; uint16 holds the bits of bfloat16, which NumPy does not have."""
    name = str(dtype).removeprefix("torch.")
    return "bfloat16" if name == "uint16" else name


def as_ids(ids: Any, what: str) -> Array:
    """Returns integers[n] as a C-contiguous int32[n] or int64[n] array, without a copy when they are one; other types become int64."""
    array = np.asarray(ids)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)  # an empty list
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{what} is {array.dtype}{list(array.shape)}", f"give {what} as int32[n] or int64[n]")
    dtype = np.int32 if array.dtype in (np.int32, np.int16, np.int8, np.uint16, np.uint8) else np.int64
    return np.require(array, dtype=dtype, requirements=["C", "A"])


def as_int32(array: Any, what: str, length: int) -> Array:
    """Returns the array as C-contiguous int32[length]; another dtype or length raises InputError."""
    if not isinstance(array, np.ndarray):
        array = np.asarray(array)
    if array.dtype != INT32 or array.shape != (length,):
        raise InputError(f"{what} is {array.dtype}{list(array.shape)}", f"give {what} as int32[{length}]")
    return _as_native(array)


def block_edges(block: Block) -> tuple[Array, Array, Array]:
    """Returns start and end i32[num_dst] and indices i32[nnz] of a block as native code reads them; raises InputError otherwise."""
    start, end = (as_int32(getattr(block, name), name, block.num_dst) for name in ("start", "end"))
    return start, end, as_int32(block.indices, "indices", len(block.indices))


def block_rows(block: Block) -> tuple[Array, Array, Array, Array | None]:
    """Returns the arrays of `block_edges` and dst_pos i32[num_dst] or None; raises InputError if a destination is not a source."""
    edges, dst_pos = block_edges(block), block.dst_pos
    if dst_pos is None and block.num_dst > block.num_src:
        raise InputError(f"{block.num_dst} destinations among {block.num_src} sources", "give dst_pos")
    if dst_pos is not None:
        dst_pos = as_int32(dst_pos, "dst_pos", block.num_dst)
        if len(dst_pos) and not 0 <= dst_pos.min() <= dst_pos.max() < block.num_src:
            raise InputError("dst_pos has a row that is not a source", f"give rows in 0..{block.num_src - 1}")
    return *edges, dst_pos


def block_transpose(block: Block) -> tuple[Array, Array, Array]:
    """Returns t_start, t_edge and t_dst of a block; raises InputError if it has no transpose, or one of other edges."""
    if block.t_start is None or block.t_edge is None or block.t_dst is None:
        remedy = 'sample with transpose="hidden" or "all", or call graphmill.kernels.blocks.transpose.transpose(block)'
        raise InputError("the block has no transpose, which the backward pass needs", remedy)
    num_edges = block.num_edges
    if len(block.t_dst) != num_edges:
        problem = f"the transpose holds {len(block.t_dst)} edges, the block {num_edges}"
        raise InputError(problem, "call graphmill.kernels.blocks.transpose.transpose(block) again after removing edges")
    starts, edges = as_int32(block.t_start, "t_start", block.num_src + 1), as_int32(block.t_edge, "t_edge", num_edges)
    return starts, edges, as_int32(block.t_dst, "t_dst", num_edges)


def as_weights(array: Array, what: str, length: int) -> Array:
    """Returns the array as C-contiguous float32[length]; another dtype or length raises InputError."""
    if array.dtype != np.float32 or array.shape != (length,):
        raise InputError(f"{what} is {array.dtype}{list(array.shape)}", f"give {what} as float32[{length}]")
    return _as_native(array)


def _as_native(array: Array) -> Array:
    """Returns the array, or a copy if native code cannot read it in place.

    `np.require` does the same and takes ten times as long. This runs six times per call, after a kernel that has just cleared the caches.
    """
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=["C", "A"])


def as_rows(x: Any, what: str, num_rows: int | None = None, dtypes: tuple[Any, ...] = FLOATS) -> Array:
    """Returns x as C-contiguous [num_rows, F] rows of one of the dtypes; non-contiguous input is copied."""
    array = x if isinstance(x, np.ndarray) else np.asarray(x)
    if array.dtype not in dtypes or array.ndim != 2 or num_rows not in (None, array.shape[0]):
        wanted = "n" if num_rows is None else num_rows
        raise InputError(f"{what} is {array.dtype}{list(array.shape)}", f"give [{wanted}, F] of {_names(dtypes)}")
    return _as_native(array)


def _names(dtypes: tuple[Any, ...]) -> str:
    names = [f"{dtype} (bfloat16)" if dtype == BFLOAT16 else str(dtype) for dtype in dtypes]
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def sum_dtype(dtype: Any) -> np.dtype[Any]:
    """Returns the dtype of sums of rows of a dtype: float64 for float64, else float32."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def widen(array: Array) -> Array:
    """Returns float16 and bfloat16 (uint16) arrays as float32, exactly; others as they are."""
    if array.dtype == BFLOAT16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(sum_dtype(array.dtype), copy=False)


def narrow(array: Array, dtype: Any) -> Array:
    """Returns float32 or float64 sums in the dtype of the rows, rounded to nearest even; NaN stays NaN."""
    if dtype != BFLOAT16:
        with np.errstate(over="ignore"):
            return array.astype(dtype, copy=False)
    bits = array.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & np.uint32(1))) >> 16
    return np.where(np.isnan(array), bits >> 16 | np.uint32(0x40), rounded).astype(np.uint16)


def as_out(out: Array | None, shape: tuple[int, ...], dtype: Any) -> Array:
    """Returns `out` if it can be written in place, or a new uninitialised array if it is None.

    Reusing one `out` spares the page faults of fresh memory, which cost more than the arithmetic of a small kernel.
    """
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype:
        raise InputError(f"out is {out.dtype}{list(out.shape)}", f"give {np.dtype(dtype)}{list(shape)}")
    if not (out.flags.c_contiguous and out.flags.writeable and out.flags.aligned):
        raise InputError("out is read-only, unaligned or not C-contiguous", "give an array made by np.empty")
    return out


def check_threads(threads: int) -> int:
    """Returns threads, refusing values outside 1..1024."""
    if not 1 <= threads <= 1024:
        raise InputError(f"threads = {threads}", "give a number of threads in 1..1024")
    return int(threads)


def owner_of(array: Array) -> Array:
    """Returns the array that a NumPy array is a view of, or itself if it is not a view; the result lives as long as any view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
