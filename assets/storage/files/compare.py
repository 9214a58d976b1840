"""The differences of two arrays: number of elements and rows, the first place, and the largest difference.

One pass over both mappings in slices of a few MiB: neither is held whole. Complexity O(elements).
"""

import math
from dataclasses import dataclass

import numpy as np

from graphmill.kernels.types import Array

SLICE_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class ArrayDifference:
    """How two arrays of one row shape differ, over the rows that both have.

    Attributes:
        num_rows, num_elements: number of rows and elements that were compared.
        differing_rows, differing_elements: number of these that differ; NaN equals NaN, and -0.0 equals 0.0.
        first: index of the first differing element, None when all are equal.
        largest: largest absolute difference of two finite numbers, 0.0 when all are equal.
    """

    num_rows: int
    num_elements: int
    differing_rows: int
    differing_elements: int
    first: tuple[int, ...] | None
    values: tuple[object, object] | None
    largest: float


def compare_arrays(one: Array, other: Array) -> ArrayDifference | None:
    """Compares two arrays of any numeric or boolean types, value by value.

    Args:
        one, other: arrays with equal shapes behind the first dimension; the longer one's further rows are ignored.

    Returns:
        The difference; None if their rows have different shapes, so that elements do not correspond.
    """
    if one.ndim != other.ndim or one.shape[1:] != other.shape[1:]:
        return None
    one, other = np.atleast_1d(one), np.atleast_1d(other)
    num_rows, width = min(len(one), len(other)), math.prod(one.shape[1:])
    row_bytes = max(1, width * max(one.itemsize, other.itemsize))
    step, rows, elements, largest = max(1, SLICE_BYTES // row_bytes), 0, 0, 0.0
    first = None
    for start in range(0, num_rows, step):
        left, right = one[start : min(num_rows, start + step)], other[start : min(num_rows, start + step)]
        unequal = _unequal(left, right)
        if not unequal.any():
            continue
        elements += int(np.count_nonzero(unequal))
        rows += int(np.count_nonzero(unequal.reshape(len(unequal), -1).any(axis=1)))
        largest = max(largest, _largest(left[unequal], right[unequal]))
        if first is None:
            place = np.unravel_index(int(np.argmax(unequal)), unequal.shape)
            first = (start + int(place[0]), *(int(index) for index in place[1:]))
    return ArrayDifference(
        num_rows=num_rows,
        num_elements=num_rows * width,
        differing_rows=rows,
        differing_elements=elements,
        first=first,
        values=None if first is None else (one[first].item(), other[first].item()),
        largest=largest,
    )


def _unequal(left: Array, right: Array) -> Array:
    unequal = np.asarray(left != right)
    if left.dtype.kind == right.dtype.kind == "f":
        unequal &= ~(np.isnan(left) & np.isnan(right))
    return unequal


def _largest(left: Array, right: Array) -> float:
    """Returns the largest absolute difference in doubles: unsigned and 16-bit types would wrap or overflow."""
    with np.errstate(invalid="ignore"):
        size = np.abs(left.astype(np.float64) - right.astype(np.float64))
    size = size[np.isfinite(size)]
    return float(size.max()) if len(size) else 0.0
