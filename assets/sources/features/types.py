"""The type of stored feature values, and the conversion of a slice of rows to it.

Results do not depend on the machine: the sum of a row is accumulated left to right in float64. NumPy has no
bfloat16; uint16 holds its bits.

Peak memory: a slice of the source and its copies in float32 and in the stored type.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

KEPT = ("int8", "uint8", "float16", "float32", "float64")
"""Feature types that are stored as they are; other integers become float32, booleans uint8."""

BFLOAT16 = "bfloat16"


def stored_type(given: np.dtype[Any] | str, asked: str, normalize: str, where: str) -> str:
    """Returns the name of the type in which features are stored.

    Args:
        given: type of the source; "bfloat16" if it has that type.

    Raises:
        InputError: the given type is not a real number.
    """
    if given != BFLOAT16:
        given = np.dtype(given)
        if given.kind not in "biuf" or (given.kind == "f" and given.itemsize > 8):
            problem = f"{where}: features of type {given} cannot be trained on"
            raise InputError(problem, "give integers or float16, float32, float64")
    if asked != "as stored":
        return asked
    if normalize == "row":
        return "float32"
    name = given if isinstance(given, str) else "uint8" if given.kind == "b" else given.name
    return name if name in (*KEPT, BFLOAT16) else "float32"


def common_type(stored: Sequence[str]) -> str:
    """Returns the stored type that has the values of all given ones; float32 for those that none of `KEPT` covers."""
    if len(set(stored)) == 1:
        return stored[0]
    # float32 has all values of bfloat16.
    found = np.result_type(*(np.dtype("float32" if name == BFLOAT16 else name) for name in stored)).name
    return found if found in KEPT else "float32"


def array_type(stored: str) -> np.dtype[Any]:
    """Returns the NumPy type whose arrays hold values of a stored type."""
    return np.dtype(np.uint16 if stored == BFLOAT16 else stored)


def as_stored(rows: Array, stored: str) -> Array:
    """Returns rows[n, F] of real numbers as `array_type(stored)`, rounded to nearest; too large values become infinite."""
    if stored == BFLOAT16:
        return rounded_to_bfloat16(np.ascontiguousarray(rows, np.float32))
    with np.errstate(over="ignore"):
        return rows.astype(stored, copy=False)


def rounded_to_bfloat16(values: Array) -> Array:
    """Returns u16[...], the bits of the bfloat16 that is nearest to each finite f32[...]; ties go to the even one."""
    bits = values.view(np.uint32)
    # Half of the last place, less one if that place is even, is added before the lower half is cut off.
    return ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype(np.uint16)


def widened(bits: Array) -> Array:
    """Returns f32[...] from the bits u16[...] of bfloat16 values, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def divide_rows(rows: Array) -> Array:
    """Returns rows[n, F] divided by their sums of absolute values, as f32[n, F]; zero rows stay zero."""
    if rows.shape[1] == 0:
        return rows.astype(np.float32)
    # accumulate adds left to right; the order of sum() may differ between machines
    total = np.add.accumulate(np.abs(rows.astype(np.float64)), axis=1)[:, -1:]
    return (rows / np.where(total == 0, 1.0, total)).astype(np.float32)
