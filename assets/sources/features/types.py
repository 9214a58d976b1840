"""The type of stored feature values, the conversion of a slice of rows to it, and the numbers that it rounds.

Results do not depend on the machine: the sum of a row is accumulated left to right in float64. NumPy has no
bfloat16; uint16 holds its bits.

Peak memory: a slice of the source and its copies in float32 and in the stored type.

Floating-point types hold every whole number up to a bound, 2^24 for float32. Beyond it neighbours become one value: the seconds of two
minutes, counted since 1970, are one float32. Measured values are rounded by any type, so of values that are not whole only those count
whose differences vanish.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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


WHOLE = {"float16": 1 << 11, BFLOAT16: 1 << 8, "float32": 1 << 24}
"""Type -> the bound up to which it holds every whole number."""
DIGITS = {"float16": 11, BFLOAT16: 8, "float32": 24}
"""Type -> bits of its fraction, the leading one included."""
STEPS = 1024
"""Values that are not whole are told apart if their range has as many steps of the type."""


@dataclass(frozen=True, kw_only=True)
class Rounded:
    """The values of one column beyond the bound of a type.

    Attributes:
        whole, broken: numbers of whole values and of others that are rounded.
        example: one of the rounded values; None without.
    """

    column: str
    whole: int
    broken: int
    low: float
    high: float
    example: Any

    def count(self, target: str) -> int:
        """Returns the number of rounded values that matter: whole ones, and others if their differences vanish in the type."""
        step = 2.0 ** (np.frexp(max(abs(self.low), abs(self.high)))[1] - DIGITS[target])
        return self.whole + (self.broken if self.high - self.low < STEPS * step else 0)


Recount = Callable[[Sequence[int]], Sequence[Rounded]]
"""Column numbers -> their values beyond the bound of float32, as the source writes them."""


class Rounding:
    """Watches rows as they are stored.

    Args:
        stored: name of the type in which it is stored. float64 counts as float32, in which trainings compute unless they say another.
        name: function column -> its name in words.
        recount: function that counts the rounded numbers, for rows that are float32 already; None for rows as the source has them.
    """

    def __init__(self, stored: str, name: Callable[[int], str], recount: Recount | None = None):
        self.stored, self._name, self._recount = stored, name, recount
        self.target = "float32" if stored == "float64" else stored
        self._asks = recount is not None and self.target == "float32"
        self._found: dict[int, Rounded] = {}

    def look(self, rows: Array) -> None:
        """Takes rows[n, F] of the source."""
        if self.target not in WHOLE or rows.dtype.itemsize == 1 or not (self._asks or rows.dtype.name != self.target):
            return
        bound = WHOLE[self.target]
        with np.errstate(invalid="ignore"):
            beyond = (rows >= bound) | (rows <= -bound)
        for column in np.flatnonzero(beyond.any(axis=0)).tolist():
            if self._asks:
                self._found[column] = _nothing("")
            else:
                self._add(column, rows[beyond[:, column], column])

    def _add(self, column: int, values: Array) -> None:
        held = as_stored(values, self.target)
        held = widened(held) if self.target == BFLOAT16 else held
        # The type has the digits of int64 and of all others.
        wrong = held.astype(np.longdouble) != values.astype(np.longdouble)
        whole = values == np.floor(values) if values.dtype.kind == "f" else np.ones(len(values), bool)
        before = self._found.get(column) or _nothing(self._name(column))
        shown = values[wrong & whole] if (wrong & whole).any() else values[wrong]
        self._found[column] = Rounded(
            column=before.column,
            whole=before.whole + int(np.count_nonzero(wrong & whole)),
            broken=before.broken + int(np.count_nonzero(wrong & ~whole)),
            low=min(before.low, float(values.min())),
            high=max(before.high, float(values.max())),
            example=shown[0].item() if before.example is None and len(shown) else before.example,
        )

    def columns(self) -> list[tuple[Rounded, int]]:
        """Returns the columns of which values are rounded, and their number."""
        found: Iterable[Rounded] = self._found.values()
        if self._asks and self._found:
            assert self._recount is not None
            found = self._recount(sorted(self._found))
        counted = [(each, each.count(self.target)) for each in found]
        return [(each, count) for each, count in counted if count]


def _nothing(column: str) -> Rounded:
    return Rounded(column=column, whole=0, broken=0, low=np.inf, high=-np.inf, example=None)


def rounded_words(watched: Sequence[Rounding]) -> tuple[str, int]:
    """Returns a sentence about the columns of which values are rounded, with the way out, and their number; "" and 0 without any."""
    found = [(each, count, watch) for watch in watched for each, count in watch.columns()]
    if not found:
        return "", 0
    shown = [_words(each, count, watch.target) for each, count, watch in found[:3]]
    more = f"; and {len(found) - 3} more columns" if len(found) > 3 else ""
    kept = all(watch.stored == "float64" for _, _, watch in found)
    narrow = next((watch.target for _, _, watch in found if watch.target != "float32"), "")
    if kept:
        way = 'they are stored exactly: train with dtype = "float64", or subtract the smallest value'
    elif narrow:
        way = 'store them with dtype = "float32", or scale the columns'
    else:
        way = "subtract the smallest value or split the digits; or give float64 (DOUBLE in Parquet, an array of float64) and train in it"
    return f"{'; '.join(shown)}{more}. Way out: {way}", sum(count for _, count, _ in found)


def _words(found: Rounded, count: int, target: str) -> str:
    kind = "whole numbers" if found.whole else "values"
    example = int(found.example) if isinstance(found.example, float) and found.example.is_integer() else found.example
    return f"{found.column}: {count:,} {kind} are rounded by {target}, such as {example}"


def rounded_weights(where: str, count: int, example: int) -> str:
    """Returns the sentence about whole weights of edges beyond 2^24, of which neighbours become one float32."""
    return f"{where}: {count:,} whole weights are rounded by float32, such as {example}: divide them, or subtract the smallest"
