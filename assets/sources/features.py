"""Writes a source's feature rows into the artifact, slice by slice.

Peak memory: one slice of the source, plus its float32 copy where rows are normalised: at most about 24 MiB for slices
of 8 MiB. Nothing is computed in an order that depends on the machine: the sum of a row is accumulated left to right
in float64.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.errors import InputError
from kernels.types import Array

if TYPE_CHECKING:
    from assets.building.stage import Progress
    from assets.storage.writer import Writer

KEPT = ("int8", "uint8", "float16", "float32", "float64")
"""Feature types that are stored as they are; other integers become float32, booleans uint8."""


def stored_dtype(dtype: np.dtype[Any], normalize: str, where: str) -> np.dtype[Any]:
    """Returns the type in which features of `dtype` are stored.

    Args:
        dtype: the source's type.
        normalize: "none" or "row".
        where: name of the features, for errors.

    Raises:
        InputError: the type is not a real number.
    """
    if dtype.kind not in "biuf" or (dtype.kind == "f" and dtype.itemsize > 8):
        raise InputError(
            f"{where}: features of type {dtype} cannot be trained on", "give integers or float16, float32, float64"
        )
    if normalize == "row":
        return np.dtype(np.float32)
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    return np.dtype(dtype.name) if dtype.name in KEPT else np.dtype(np.float32)


def write_features(
    writer: Writer,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    slices: Iterable[tuple[int, Array]],
    *,
    normalize: str,
    where: str,
    progress: Progress,
) -> None:
    """Writes `features` [N, F] from slices of rows, and refuses values that are not finite.

    Args:
        writer: writer of the artifact, which receives the array `features`.
        shape: (N, F).
        dtype: the source's type; `stored_dtype` says what is written.
        slices: (first row, rows[n, F]) that cover all rows once.
        normalize: "none", or "row": each row is divided by the sum of its absolute values, a row of zeros stays.
        where: name of the features, for errors.
        progress: listener, which is told of every row.

    Raises:
        InputError: a value is NaN or infinite (row and column are named), or the type is no number.
    """
    stored = stored_dtype(dtype, normalize, where)
    table = writer.create("features", shape, stored)
    progress.start("features", shape[0], "rows")
    for low, rows in slices:
        refuse_non_finite(rows, low, where)
        table[low : low + len(rows)] = divide_rows(rows) if normalize == "row" else rows
        progress.advance(len(rows))
    progress.done()


def divide_rows(rows: Array) -> Array:
    """Returns rows[n, F] divided by their sums of absolute values, as f32[n, F]; zero rows stay zero."""
    if rows.shape[1] == 0:
        return rows.astype(np.float32)
    # accumulate adds left to right; sum() adds in an order that may differ between machines
    total = np.add.accumulate(np.abs(rows.astype(np.float64)), axis=1)[:, -1:]
    return (rows / np.where(total == 0, 1.0, total)).astype(np.float32)


def refuse_non_finite(rows: Array, low: int, where: str) -> None:
    """Raises InputError with the first places of NaN or infinity in rows[n, F], whose first row is row `low` of the
    table.
    """
    if rows.dtype.kind != "f":
        return
    finite = np.isfinite(rows)
    if finite.all():
        return
    places = np.argwhere(~finite)
    shown = ", ".join(f"row {low + r} column {c} is {rows[r, c]}" for r, c in places[:3].tolist())
    raise InputError(
        f"{where}: {len(places)} feature values in rows {low} to {low + len(rows) - 1} are not finite: {shown}",
        "replace them, for example x = np.nan_to_num(x), and save the file again",
    )
