"""Rows that change their place, on a GPU; see kernels/rows/move_rows.py for the rule and kernels/cuda/rows/move_rows.cu for the kernels.

Rows that are read may lie in pinned host memory. Nothing is downloaded and nothing waits. Not checked, since that would wait for the
device: that rows are in range, and distinct where they are written.
"""

from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import C_TYPES, ID_TYPES, address, launch, matrix, pack_and_team
from graphmill.kernels.errors import InputError


def place_rows_cuda(source: Any, source_rows: Any, out: Any, out_rows: Any, device: CudaDevice) -> Any:
    """Writes out[out_rows[k]] = source[source_rows[k]] where neither is negative; see `graphmill.kernels.rows.move_rows.place_rows`."""
    return _move("place_rows", source, source_rows, out, out_rows, device)


def add_rows_cuda(source: Any, source_rows: Any, out: Any, out_rows: Any, device: CudaDevice) -> Any:
    """Adds source[source_rows[k]] to out[out_rows[k]]; see `graphmill.kernels.rows.move_rows.add_rows`."""
    return _move("add_rows", source, source_rows, out, out_rows, device)


def take_rows_cuda(source: Any, rows: Any, out: Any, device: CudaDevice) -> Any:
    """Writes out[k] = source[rows[k]] and clears those rows; see `graphmill.kernels.rows.move_rows.take_rows`."""
    return _move("take_rows", source, rows, out, None, device)


def _move(name: str, source: Any, source_rows: Any, out: Any, out_rows: Any, device: CudaDevice) -> Any:
    width = source.shape[1]
    rows, dtype = matrix(source, "source", device, len(source))
    target, out_dtype = matrix(out, "out", device, len(out), width)
    if dtype not in ("float32", "float64") or out_dtype != dtype:
        raise InputError(f"source is {dtype}, out {out_dtype}", "give float32 or float64 twice")
    counts = [len(table) if ids is None else len(ids) for table, ids in ((source, source_rows), (out, out_rows))]
    if counts[0] != counts[1]:
        raise InputError(f"{counts[0]} rows are to move to {counts[1]} places", "give lists of one length")
    if counts[0] * width == 0:
        return out
    pack, team = pack_and_team(width, dtype, [rows, target])
    names = ["int32" if ids is None else dtype_name(ids.dtype) for ids in (source_rows, out_rows)]
    if not set(names) <= set(ID_TYPES):
        raise InputError(f"lists of rows are {' and '.join(names)}", "give int32 or int64")
    defines = {"ELEMENT": C_TYPES[dtype][0], "PACK": pack, "TEAM": team}
    defines |= {"FROM_ROW": ID_TYPES[names[0]], "TO_ROW": ID_TYPES[names[1]]}
    taken = address(source_rows, "rows", device, counts[0], names[0])
    places = () if name == "take_rows" else (address(out_rows, "rows", device, counts[0], names[1]),)
    arguments = rows, taken, target, *places, np.int64(counts[0]), np.int32(width // pack)
    launch(device, "rows/move_rows", name, counts[0] * team, arguments, defines)
    return out
