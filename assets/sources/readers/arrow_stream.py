"""Reads the results of a DuckDB query batch by batch as NumPy arrays, through Arrow's C stream interface.

DuckDB returns results whole (`fetchnumpy`), as Python objects (`fetchmany`), or as an Arrow stream. Only the stream neither holds the
result nor makes an object per value, and its C interface is three small structures, read here with ctypes: no Arrow library is needed.
Source: "The Arrow C data interface" and "The Arrow C stream interface".

A batch has at most 122,880 rows (a DuckDB row group), or 131,072 from CSV.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.kernels.types import Array

FORMATS = {
    b"c": np.int8, b"C": np.uint8, b"s": np.int16, b"S": np.uint16, b"i": np.int32, b"I": np.uint32,
    b"l": np.int64, b"L": np.uint64, b"f": np.float32, b"g": np.float64,
}  # fmt: skip
"""Arrow's names of the fixed-size types."""
OFFSETS = {b"+l": np.int32, b"+L": np.int64, b"u": np.int32, b"U": np.int64}
"""Arrow's names of lists and of texts -> type of the places where their values end."""


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


_release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", _release),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", _release),
    ("private_data", ctypes.c_void_p),
]


class _Stream(ctypes.Structure):
    _fields_ = (
        ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Schema))),
        ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Array))),
        ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class StreamError(RuntimeError):
    """The query behind a stream failed half-way; the text is DuckDB's."""


@dataclass(frozen=True)
class Column:
    """One column of a batch; its arrays are views that die with the batch.

    Attributes:
        values: dtype[n]; the value at a null is arbitrary. For a column of lists, the values of all its lists; a text is a list of its
            UTF-8 bytes.
        nulls: bool[n], or None if no value is null. For a column of lists, the nulls of the lists themselves.
        lengths: i64[n] lengths of the lists, or None if values are not lists.
        value_nulls: bool[len(values)] nulls inside lists, or None.
    """

    values: Array
    nulls: Array | None = None
    lengths: Array | None = None
    value_nulls: Array | None = None

    def texts(self, chosen: Array) -> list[str]:
        """Returns the texts at `chosen` bool[n] of a column of texts."""
        assert self.lengths is not None
        text, ends = self.values.tobytes(), np.cumsum(self.lengths)
        places = zip((ends - self.lengths)[chosen].tolist(), ends[chosen].tolist(), strict=True)
        return [text[first:end].decode() for first, end in places]

    def after(self, count: int) -> Column:
        """Returns the column without its first `count` values; it may not hold lists."""
        assert self.lengths is None, "a column of lists"
        nulls = None if self.nulls is None else self.nulls[count:]
        return Column(self.values[count:], nulls if nulls is not None and nulls.any() else None)


def arrow_batches(relation: Any) -> Iterator[list[Column]]:
    """Yields the columns of each batch of a DuckDB relation, in the relation's order.

    Args:
        relation: a relation that `connection.sql(...)` returned; its columns are numbers, lists (also of fixed length) of
            numbers, or texts.

    Raises:
        StreamError: the query failed while it ran.
    """
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = relation.__arrow_c_stream__()  # frees the stream when it is deleted
    pointer = get_pointer(capsule, b"arrow_array_stream")
    stream = _Stream.from_address(pointer)
    schema = _Schema()
    _check(stream, pointer, stream.get_schema(pointer, ctypes.byref(schema)))
    try:
        while True:
            batch = _Array()
            _check(stream, pointer, stream.get_next(pointer, ctypes.byref(batch)))
            if not batch.release:
                return
            try:
                pairs = ((schema.children[i].contents, batch.children[i].contents) for i in range(batch.n_children))
                yield [_column(kind, array, batch.offset, batch.length) for kind, array in pairs]
            finally:
                batch.release(ctypes.addressof(batch))
    finally:
        schema.release(ctypes.addressof(schema))
        del capsule


def _check(stream: _Stream, pointer: Any, status: int) -> None:
    if status:
        raise StreamError((stream.get_last_error(pointer) or b"the query failed").decode(errors="replace"))


def _column(schema: Any, array: Any, offset: int, length: int) -> Column:
    """Returns the rows offset to offset + length - 1 of a column."""
    nulls, start = _nulls(array, offset, length), array.offset + offset
    if schema.format in FORMATS:
        return Column(_buffer(array, 1, FORMATS[schema.format], start, length), nulls)
    if schema.format.startswith(b"+w:"):
        width = int(schema.format[3:])
        first, last, lengths = start * width, (start + length) * width, np.full(length, width, np.int64)
    else:
        assert schema.format in OFFSETS, f"column of Arrow type {schema.format}"
        ends = _buffer(array, 1, OFFSETS[schema.format], start, length + 1).astype(np.int64)
        first, last, lengths = int(ends[0]), int(ends[-1]), np.diff(ends)
    if schema.n_children == 0:
        return Column(_buffer(array, 2, np.uint8, first, last - first), nulls, lengths)
    inside = _column(schema.children[0].contents, array.children[0].contents, first, last - first)
    return Column(inside.values, nulls, lengths, inside.nulls)


def _buffer(array: Any, number: int, dtype: Any, start: int, length: int) -> Array:
    item = np.dtype(dtype).itemsize
    if length == 0:
        return np.zeros(0, dtype)
    data = (ctypes.c_char * (length * item)).from_address(array.buffers[number] + start * item)
    return np.frombuffer(memoryview(data), dtype)


def _nulls(array: Any, offset: int, length: int) -> Array | None:
    """Returns bool[length], or None without nulls; Arrow stores one bit per value, 1 = valid, lowest bit first."""
    if array.null_count == 0 or not array.buffers[0] or length == 0:
        return None
    start = array.offset + offset
    num_bytes = (start + length + 7) // 8
    data = np.frombuffer(memoryview((ctypes.c_char * num_bytes).from_address(array.buffers[0])), np.uint8)
    nulls = np.unpackbits(data, count=start + length, bitorder="little")[start:] == 0
    return nulls if nulls.any() else None
