"""The features of an npz graph: dense, CSR, or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from assets.sources.feature_blocks import FeatureBlock
from assets.sources.npz.arrays import FIX_FILE, check_indptr, integers
from assets.sources.readers.archive import Archive, row_ranges
from kernels.errors import InputError
from kernels.types import Array


def feature_rows(archive: Archive, form: str | None) -> tuple[str, int] | None:
    """Returns the array that gives the number of feature rows, and the number; None without features.

    Args:
        archive: the open archive.
        form: name of a dense matrix, or prefix of CSR arrays, or None.

    Raises:
        InputError: a dense array is not a matrix, or a CSR array is missing.
    """
    if form is None:
        return None
    if form in archive:
        shape = archive.header(form).shape
        if len(shape) != 2:
            raise InputError(f"{archive.path}: {form} has shape {list(shape)}, not [N, F]", FIX_FILE)
        return form, shape[0]
    missing = [part for part in _parts(form) if part not in archive]
    if missing:
        raise InputError(f"{archive.path}: sparse features lack {', '.join(missing)}", FIX_FILE)
    return f"{form}_indptr", archive.header(f"{form}_indptr").shape[0] - 1


def feature_blocks(archive: Archive, form: str | None, num_nodes: int) -> Sequence[FeatureBlock]:
    """Returns the features [N, F] of any form as a block, whose slices are read while the archive is open; none without features.

    Raises:
        InputError: CSR arrays do not fit together.
    """
    if form is None:
        return ()
    if form in archive:
        header = archive.header(form)
        width, dtype = header.shape[1], header.dtype
    else:
        width, dtype = _sparse_shape(archive, form, num_nodes)[1], archive.header(f"{form}_data").dtype

    def slices() -> Iterator[tuple[int, Array]]:
        return archive.rows(form) if form in archive else _dense_slices(archive, form, (num_nodes, width))

    return (FeatureBlock(where=f"{archive.path}: {form}", num_rows=num_nodes, width=width, dtype=dtype, slices=slices),)


def _parts(form: str) -> tuple[str, ...]:
    return tuple(f"{form}_{part}" for part in ("indptr", "indices", "data", "shape"))


def _sparse_shape(archive: Archive, form: str, num_nodes: int) -> tuple[int, int]:
    """Returns (N, F) of CSR features."""
    shape = integers(archive, f"{form}_shape", 1).tolist()
    if len(shape) != 2 or shape[0] != num_nodes or shape[1] < 0:
        raise InputError(f"{archive.path}: {form}_shape is {shape}, not [{num_nodes}, F]", FIX_FILE)
    return shape[0], shape[1]


def _dense_slices(archive: Archive, form: str, shape: tuple[int, int]) -> Iterator[tuple[int, Array]]:
    """Yields (first row, rows[n, F]) of CSR features."""
    indptr, columns = integers(archive, f"{form}_indptr", 1), integers(archive, f"{form}_indices", 1)
    data = archive.read(f"{form}_data")
    if data.shape != columns.shape:
        raise InputError(f"{archive.path}: {form}_data has {data.shape} values for {columns.shape} columns", FIX_FILE)
    check_indptr(archive, f"{form}_indptr", indptr, len(columns))
    num_rows, width = shape
    if len(columns) and (columns.min() < 0 or columns.max() >= width):
        entry = int(np.flatnonzero((columns < 0) | (columns >= width))[0])
        row = int(np.searchsorted(indptr, entry, side="right")) - 1
        raise InputError(f"{archive.path}: {form} row {row} has column {columns[entry]} of {width}", FIX_FILE)
    for low, high in row_ranges(num_rows, width * data.dtype.itemsize):
        first, last = int(indptr[low]), int(indptr[high])
        row = np.repeat(np.arange(high - low), np.diff(indptr[low : high + 1]))
        out = np.zeros((high - low, width), data.dtype)
        out[row, columns[first:last]] = data[first:last]
        filled = np.zeros(out.shape, bool)
        filled[row, columns[first:last]] = True
        if np.count_nonzero(filled) != last - first:
            twice = low + int(np.flatnonzero(filled.sum(axis=1) != np.diff(indptr[low : high + 1]))[0])
            raise InputError(
                f"{archive.path}: {form} row {twice} has a column twice", "sum the entries: csr.sum_duplicates()"
            )
        yield low, out
