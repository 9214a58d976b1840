"""Features and edges in plain `.npy` files, and features in safetensors files, memory-mapped and read slice by slice.

Peak memory: one slice of 8 MiB of features, or of 262,144 edges; read pages are released.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.sources.arrays.array_files import (
    COPY,
    NPY,
    check_matrix,
    first_of,
    no_array,
    other_rows,
    to_integers,
    to_two_rows,
)
from graphmill.assets.sources.features.blocks import FeatureBlock, row_ranges
from graphmill.assets.sources.features.types import BFLOAT16, WHOLE, rounded_weights, widened
from graphmill.assets.sources.readers.part_files import refuse_managed
from graphmill.assets.sources.typed_graph import EdgeBatch, Relation
from graphmill.assets.storage.files.arrays import BAD_HEADER, READING, forget_pages
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

STEP_EDGES = 1 << 18
"""Edges of one slice."""


def open_plain(path: Path) -> Array:
    """Maps a `.npy` file of plain numbers; raises InputError if the file is missing, cut short, or holds pickled objects."""
    try:
        with READING:
            return np.lib.format.open_memmap(path, mode="r")
    except (OSError, *BAD_HEADER) as error:
        raise no_array(path, error) from error


def file_block(
    path: Path, tensor: str | None, first: int, num_nodes: int, node_of_row: Array | None = None
) -> FeatureBlock:
    """Returns the features in a `.npy` or `.safetensors` file [num_nodes, F] as a block.

    Args:
        tensor: name of the tensor of a safetensors file; None if it holds only one.
        node_of_row: i64[num_nodes] node ids of the rows, None if they are in order.

    Raises:
        InputError: the file is unreadable, of another kind or shape, or lacks the tensor.
    """
    table, dtype = open_rows(path, tensor)
    where = str(path) if path.suffix == ".npy" else f"{path}: {tensor or 'its tensor'}"
    return array_block(table, first, num_nodes, where, node_of_row, dtype)


def open_rows(path: Path, tensor: str | None) -> tuple[Array, np.dtype[Any] | str]:
    """Maps the rows [N, F] in a `.npy` or `.safetensors` file, whose values are not read; returns them and their type.

    Raises:
        InputError: the file is unreadable or of another kind, or lacks the tensor.
    """
    refuse_managed([path])
    if first_of(path).startswith(NPY) or path.suffix == ".npy":  # whatever the name says
        table = open_plain(path)
        return table, table.dtype
    if (other := other_rows(path)) is not None:
        raise other
    return open_tensor(path, tensor)


def array_block(
    table: Array,
    first: int,
    num_nodes: int,
    where: str,
    node_of_row: Array | None = None,
    dtype: np.dtype[Any] | str | None = None,
) -> FeatureBlock:
    """Returns a mapped array [num_nodes, F] as a block; "bfloat16" is the type of u16 with such bits. See `FeatureBlock` for the rest.

    Raises:
        InputError: the array has another shape, or does not hold numbers.
    """
    check_matrix(table.shape, table.dtype, num_nodes, where)

    def slices() -> Iterator[tuple[int, Array]]:
        for low, high in row_ranges(num_nodes, table.shape[1] * table.dtype.itemsize):
            rows = np.asarray(table[low:high])
            yield low, widened(rows) if dtype == BFLOAT16 else rows
            forget_pages(table)

    return FeatureBlock(
        where=where,
        first=first,
        num_rows=num_nodes,
        width=table.shape[1],
        dtype=table.dtype if dtype is None else dtype,
        slices=slices,
        node_of_row=node_of_row,
    )


TENSOR_TYPES = {
    "BF16": np.uint16, "F16": np.float16, "F32": np.float32, "F64": np.float64, "BOOL": np.bool_,
    "I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64, "U8": np.uint8,
    "U16": np.uint16, "U32": np.uint32, "U64": np.uint64,
}  # fmt: skip
"""Types of the safetensors format, as NumPy has them."""

IDS = ("id", "ids", "node_id", "node_ids")
"""Names of a tensor of whole numbers [N] that is the ids of the rows beside it."""

MOST_HEADER_BYTES = 100_000_000
"""Longest header of the safetensors format."""


def open_tensor(path: Path, name: str | None) -> tuple[Array, np.dtype[Any] | str]:
    """Maps a tensor of a safetensors file. The library that writes them copies on reading, and NumPy lacks its bfloat16.

    Args:
        path: the file: 8 bytes with the length of a JSON header, the header, the tensors' bytes.
        name: name of the tensor, None for the only one.

    Returns:
        (the mapped tensor, its type; "bfloat16" for u16 with its bits).

    Raises:
        InputError: the file is missing, damaged or not a safetensors file, or lacks the tensor.
    """
    try:
        begin, entries = _entries(path)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing", "correct the path, or restore the file") from error
    except HEADER_ERRORS as error:
        raise InputError(f"{path}: is no whole safetensors file: its header cannot be read", COPY) from error
    entry = entries[_chosen(path, entries, name)]
    try:
        start, stop = entry["data_offsets"]
        kind, shape = np.dtype(TENSOR_TYPES[entry["dtype"]]), tuple(entry["shape"])
        if stop - start != math.prod(shape) * kind.itemsize or begin + stop > path.stat().st_size:
            raise InputError(f"{path}: is no whole safetensors file: it is cut short", COPY)
        return np.memmap(path, kind, "r", offset=begin + start, shape=shape), (
            BFLOAT16 if entry["dtype"] == "BF16" else kind
        )
    except InputError:
        raise
    except HEADER_ERRORS as error:
        raise InputError(f"{path}: is no whole safetensors file: its header is damaged", COPY) from error


HEADER_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""The errors that a header with wrong bytes causes."""


def open_ids(path: Path, tensor: str | None) -> Array | None:
    """Maps the ids integer[N] of the rows of a safetensors file; None for a file without ids, and for a `.npy` file.

    Args:
        tensor: name of the tensor of the rows, None for the only other one.
    """
    if first_of(path).startswith(NPY) or path.suffix == ".npy" or other_rows(path) is not None:
        return None
    try:
        names = [name for name, entry in _entries(path)[1].items() if name != tensor and _are_ids(name, entry)]
    except HEADER_ERRORS:
        return None  # `open_rows` refuses the file
    return open_tensor(path, names[0])[0] if names else None


def _are_ids(name: str, entry: Any) -> bool:
    if name not in IDS or not isinstance(entry, dict):
        return False
    shape = entry.get("shape")
    return str(entry.get("dtype"))[:1] in "IU" and isinstance(shape, list) and len(shape) == 1


def _entries(path: Path) -> tuple[int, dict[str, Any]]:
    """Returns (first byte of the tensors, name -> entry of the header)."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length)) if length <= MOST_HEADER_BYTES else {}
    return 8 + length, {key: entry for key, entry in header.items() if key != "__metadata__"}


def _chosen(path: Path, entries: dict[str, Any], name: str | None) -> str:
    """Returns the name of the tensor that is read; raises InputError if there is none, there are several, or its type is not read."""
    if not entries:
        raise InputError(f"{path}: is no whole safetensors file: it has no tensors", COPY)
    others = [each for each in entries if not _are_ids(each, entries[each])]
    if name is None and 1 in (len(entries), len(others)):
        (name,) = others if len(others) == 1 else entries
    if name not in entries:
        what = f"has no tensor '{name}'" if name else f"holds {len(entries)} tensors"
        raise InputError(f"{path}: {what}; it has {', '.join(sorted(entries))}", "name one of these as `tensor`")
    kind = entries[name].get("dtype") if isinstance(entries[name], dict) else None
    if isinstance(kind, str) and kind not in TENSOR_TYPES:
        problem = f"{path}: tensor '{name}' is {kind}, a type that is not read"
        raise InputError(problem, f"save it as one of {', '.join(TENSOR_TYPES)}, such as tensor.float()")
    return name


def array_relation(
    edges: Array, names: tuple[str, str, str], where: str, weight: Array | None = None, mark: Array | None = None
) -> Relation:
    """Returns edges [2, E] with weights [E] and marks f64[E] as a relation, read slice by slice.

    Raises:
        InputError: the edges have another shape or type.
    """
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        shaped = edges.ndim == 2 and edges.shape[0] == 2
        remedy = to_integers(edges, "edge_index", "long()") if shaped else to_two_rows(edges.shape, "edge_index")
        raise InputError(f"{where} is {edges.dtype}{list(edges.shape)}, not integers [2, E]", remedy)

    def batches() -> Iterator[EdgeBatch]:
        for low in range(0, edges.shape[1], STEP_EDGES):
            part = edges[:, low : low + STEP_EDGES]
            weights = None if weight is None else np.asarray(weight[low : low + STEP_EDGES], np.float32)
            marks = None if mark is None else mark[low : low + STEP_EDGES]
            yield EdgeBatch(part[0], part[1], weights, mark=marks)
            forget_pages(edges)

    return Relation(
        kind=names,
        num_edges=edges.shape[1],
        batches=batches,
        place=lambda row: f"{where} column {row}",
        remarks=lambda largest: _rounded(weight, where) if weight is not None and largest >= WHOLE["float32"] else (),
    )


def _rounded(weight: Array, where: str) -> list[str]:
    """Returns a sentence about whole weights [E] that float32 rounds."""
    count, example = 0, 0
    for low in range(0, len(weight), STEP_EDGES):
        part = np.asarray(weight[low : low + STEP_EDGES])
        wrong = (np.abs(part) > WHOLE["float32"]) & (part.astype(np.float32).astype(np.longdouble) != part)
        wrong &= part == np.floor(part)
        count, example = count + int(np.count_nonzero(wrong)), int(part[wrong][0]) if wrong.any() else example
    return [rounded_weights(where, count, example)] if count else []
