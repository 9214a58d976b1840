"""The features of an npz graph: dense, CSR, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from assets.sources.features import write_features
from assets.sources.npz.arrays import FIX_FILE, check_indptr, integers
from assets.sources.readers.archive import SLICE_BYTES, Archive
from assets.sources.registry import GraphConfig
from kernels.errors import InputError
from kernels.types import Array

if TYPE_CHECKING:
    from assets.building.stage import Progress
    from assets.storage.writer import Writer


def feature_rows(archive: Archive, form: str | None) -> tuple[str, int] | None:
    """Returns the array that says how many feature rows there are, and how many; None without features.

    Args:
        archive: the open archive.
        form: name of a dense matrix, or prefix of CSR arrays, or None.

    Raises:
        InputError: a dense matrix is no matrix, or a CSR array is missing.
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


def write_table(
    config: GraphConfig, archive: Archive, form: str | None, num_nodes: int, writer: Writer, progress: Progress
) -> None:
    """Writes the features [N, F] of any form in slices; without features, one column of ones.

    Raises:
        InputError: a value is not finite, or CSR arrays do not fit together.
    """
    where = f"{archive.path}: {form}"
    if form is None:
        shape, dtype = (num_nodes, 1), np.dtype(np.uint8)
        slices = iter([(0, np.ones(shape, dtype))])
    elif form in archive:
        header = archive.header(form)
        shape, dtype, slices = (header.shape[0], header.shape[1]), header.dtype, archive.rows(form)
    else:
        shape = _sparse_shape(archive, form, num_nodes)
        dtype, slices = archive.header(f"{form}_data").dtype, _dense_slices(archive, form, shape)
    write_features(writer, shape, dtype, slices, normalize=config.normalize, where=where, progress=progress)


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
    step = max(1, SLICE_BYTES // max(1, width * data.dtype.itemsize))
    for low in range(0, num_rows, step):
        high = min(low + step, num_rows)
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
