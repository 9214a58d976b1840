"""Gathering feature rows: out[i] = the row of input i, converted to the model's dtype on the way.

Two front doors share one copy loop. `gather` takes rows of one table by node id, through `row_of` if nodes are not rows. `gather_tiered`
takes each row from the place that its slot (kernels/rows/slots.py) names: device cache, host cache, rows staged for this batch, another
device. GNNLab (FGNN section 6) gathers from its cache in four kernels: count, scan, and an index kernel each for hits and misses;
index-and-mask in torch copies every row twice. Here a row is found, read, converted and written in one pass over the slots.

Rows keep the type they are stored in; the conversion happens here and nowhere else. Cost: n (row_bytes + out_row_bytes + 4) bytes, each
output row written once; with `row_of` 8 n bytes more, for the rows are looked up before the first is copied. Rows of any width are taken as
they lie, memory-mapped tables included. The bound is memory: the next rows are asked for while the present one is copied. Rows that keep
their type are written past the caches when the output has 8 MiB or more: it would push itself out of them, and a line that is written whole
need not be read first. All conversions are exact except float64 to float32, which rounds to nearest. NumPy has no bfloat16: uint16 holds
its bits. Other names of the operation are feature fetching, look-up and index_select. Not checked: that values are finite.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import BFLOAT16, FLOATS, as_ids, as_int32, as_out, check_threads
from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.gather_cuda import gather_tiered_cuda
from graphmill.kernels.rows.slots import NO_FEATURES, TIER_NAMES, Tiers, split_slots
from graphmill.kernels.types import NO_TRAFFIC, Array, Traffic

TABLE_DTYPES = tuple(np.dtype(name) for name in ("float16", "float32", "float64", "int8", "uint8")) + (BFLOAT16,)


def gather_reference(table: Array, node_ids: Array, dtype: Any = np.float32, row_of: Array | None = None) -> Array:
    """Returns dtype[n, F]: the rows of a table, converted, zeros for a node without features (the rule in NumPy)."""
    if row_of is not None:
        out = np.zeros((len(node_ids), table.shape[1]), dtype)
        places = row_of[node_ids]
        out[places >= 0] = gather_reference(table, places[places >= 0], dtype)
        return out
    rows = np.asarray(table[node_ids])
    if rows.dtype == BFLOAT16 and dtype != BFLOAT16:
        rows = (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.astype(dtype)


def gather_tiered_reference(slots: Array, tiers: Tiers, dtype: Any = np.float32) -> Array:
    """Returns dtype[n, F]: the rows that valid slots name, zeros for a node without features (the rule in NumPy)."""
    out = np.zeros((len(slots), tiers.width), dtype)
    tier, row = split_slots(slots)
    for number, name in enumerate(TIER_NAMES[:-1]):
        here = tier == number
        if here.any():
            out[here] = gather_reference(getattr(tiers, name), row[here], dtype)
    for number, rows in enumerate(tiers.peers):
        here = (tier == len(TIER_NAMES) - 1) & (row // tiers.peer_stride == number)
        out[here] = gather_reference(rows, row[here] % tiers.peer_stride, dtype)
    assert not out[slots == NO_FEATURES].any()
    return out


def gather(table: Array, node_ids: Any, out: Array, threads: int = 1, row_of: Array | None = None) -> Array:
    """Writes the rows of nodes from a table to `out`; the row of a node without features is zeros.

    Args:
        table: [N, F] of float16, float32, float64, int8, uint8, or bfloat16 as uint16; rows may be apart, their columns not.
        node_ids: ids[n]; repeated ids are allowed.
        out: [n, F] of float32, float64 or the table's dtype, C-contiguous.
        row_of: ids[N], row of each node, -1 for one without features; None if nodes are rows. It may be memory-mapped.

    Raises:
        InputError: a dtype or shape does not fit, an id is not a node, or a node's row is not in the table. Nothing is written then.
    """
    _check_rows(table, "the table")
    node_ids = as_ids(node_ids, "node_ids")
    out = _as_target(out, (len(node_ids), table.shape[1]), table.dtype)
    if row_of is None:
        _native.gather(table, node_ids, out, check_threads(threads))
    else:
        _native.gather_by_row(table, node_ids, as_ids(row_of, "row_of"), out, check_threads(threads))
    return out


def gather_tiered(slots: Any, tiers: Tiers, out: Any, threads: int = 1) -> Traffic:
    """Writes the rows that slots name to `out`; the row of a node without features (slot -1) is zeros.

    The native version runs if `out` is a NumPy array, the CUDA kernel (kernels/rows/gather_cuda.py) if it is a CuPy array or a CUDA tensor.

    Args:
        slots: i32[n] of `graphmill.kernels.rows.slots.make_slots`, on the GPU too if `out` is there; they may repeat.
        tiers: the rows, of float16, float32, float64, int8, uint8 or bfloat16 (in NumPy: uint16).
        out: [n, F] of float32, float64 or the stored dtype, C-contiguous.

    Returns:
        Slots that were sent to a device; the rows are those of the tiers, whose bytes their owner knows.

    Raises:
        InputError: a dtype or shape does not fit, a slot names a row that its tier does not have or a tier that is not given, or a slot
            is -2: its row was to be staged. Nothing is written then, except by slots that are on a GPU.
    """
    if on_device(out):
        gather_tiered_cuda(slots, tiers, out, device_of(out))
        return NO_TRAFFIC if on_device(slots) else Traffic(sent=slots.nbytes, sends=1)
    for name, rows in tiers.given():
        _check_rows(rows, f"the {name} tier")
    slots = as_int32(slots, "slots", len(slots))
    out = _as_target(out, (len(slots), tiers.width), tiers.dtype)
    peers, stride = list(tiers.peers), tiers.peer_stride
    _native.gather_tiered(
        tiers.dtype, tiers.device, tiers.host, tiers.staged, peers, stride, slots, out, check_threads(threads)
    )
    return NO_TRAFFIC


def _check_rows(table: Array, what: str) -> None:
    if not isinstance(table, np.ndarray):
        raise InputError(f"{what} is a {type(table).__name__}", "give NumPy arrays where `out` is one")
    if table.ndim != 2 or table.dtype not in TABLE_DTYPES:
        names = ", ".join(map(str, TABLE_DTYPES))
        raise InputError(f"{what} is {table.dtype}{list(table.shape)}", f"give a matrix of {names} (bfloat16)")
    adjacent = table.size == 0 or table.shape[1] == 1 or table.strides[1] == table.itemsize
    if not (adjacent and table.flags.aligned):
        raise InputError(f"{what} has rows whose columns are not adjacent in memory", "give a C-contiguous table")


def _as_target(out: Array, shape: tuple[int, int], stored: Any) -> Array:
    if not isinstance(out, np.ndarray):
        raise InputError(f"out is a {type(out).__name__} in host memory", "give a NumPy array (torch: out.numpy())")
    if out.dtype not in FLOATS and out.dtype != stored:
        raise InputError(f"out is {out.dtype}, rows are stored as {stored}", f"give float32, float64 or {stored}")
    return as_out(out, shape, out.dtype)
