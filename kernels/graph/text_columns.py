"""Columns of numbers from lines of text, for edge lists that are plain: fields without quotes, numbers written in one way.

The kernel answers only if every line is plain. Anything else (a quote, an empty number, 007, another number of fields, a letter beyond
ASCII) makes it return None, and a reader that knows all of CSV takes over and says what is wrong. So it decides no question of meaning.

Cost: each byte is looked at twice, once to count lines. Peak memory: the columns, 8 or 4 bytes per line and column.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.types import Array

BLANKS = " \t"
SEPARATORS = (",", "\t", ";", "|", " ", BLANKS)
"""Separators of fields that the kernel knows; `BLANKS` stands for any number of blanks and tabs."""
_WHOLE = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
_REAL = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_FIELD = re.compile(r"[\t -!#-~]*")


@dataclass(frozen=True, kw_only=True)
class LineForm:
    """How the lines are written."""

    # One of `SEPARATORS`.
    separator: str
    # Fields of every line.
    num_fields: int
    # Letter with which a line of a comment begins, "" if lines have none; a comment is not plain.
    comment: str = ""
    # Whether lines end in \r\n, else in \n.
    carriage: bool = False


def text_columns_reference(text: bytes, form: LineForm, columns: Sequence[tuple[int, bool]]) -> list[Array] | None:
    """Returns the same as `text_columns` (the rule in Python)."""
    end = "\r\n" if form.carriage else "\n"
    lines = text.decode("latin-1").split(end)[:-1]
    if any("\n" in line for line in lines):
        return None
    found: list[list[float]] = [[] for _ in columns]
    for line in lines:
        if form.comment and line.lstrip(BLANKS).startswith(form.comment):
            return None
        blanks = form.separator == BLANKS
        fields = re.split(f"[{BLANKS}]+", line.strip(BLANKS)) if blanks else line.split(form.separator)
        if len(fields) != form.num_fields or not all(map(_FIELD.fullmatch, fields)) or (blanks and not all(fields)):
            return None
        for values, (place, real) in zip(found, columns, strict=True):
            field = fields[place] if real else fields[place].strip(BLANKS)
            if not (_real_fits(field) if real else _whole_fits(field)):
                return None
            values.append(float(field) if real else int(field))
    return [
        np.array(values, np.float32 if real else np.int64) for values, (_, real) in zip(found, columns, strict=True)
    ]


def _whole_fits(field: str) -> bool:
    return _WHOLE.fullmatch(field) is not None and abs(int(field)) < 2**63


def _real_fits(field: str) -> bool:
    """Tells whether a number is plain, and neither too large for a float nor, unless it is 0, smaller than a normal one."""
    if not _REAL.fullmatch(field):
        return False
    with np.errstate(over="ignore"):
        digits, rounded = re.split("[eE]", field)[0], abs(float(np.float32(field)))
    return math.isfinite(rounded) and (rounded >= 2.0**-126 or not re.search("[1-9]", digits))


def text_columns(
    text: bytes | bytearray | memoryview,
    first: int,
    size: int,
    form: LineForm,
    columns: Sequence[tuple[int, bool]],
    threads: int = 1,
) -> list[Array] | None:
    """Returns columns of whole lines, i64[n] or f32[n] each; None if a line is not plain.

    Args:
        first, size: place and number of the bytes of the lines, of which the last is an end of a line.
        columns: (number of the field, whether it is a decimal number) of each column; no field stands there twice. Whole numbers fit
            64 bits and are written without plus and leading zeros, and may have blanks around them; decimal numbers are rounded to the
            nearest float, and may not be larger or (but for 0) smaller than a normal one.
    """
    assert form.separator in SEPARATORS and len(form.comment) <= 1, f"lines of the form {form}"
    assert 0 <= first <= first + size <= len(text), f"bytes {first} to {first + size} of {len(text)}"
    assert size == 0 or text[first + size - 1] == ord("\n"), "the last line has no end"
    assert len({place for place, _ in columns}) == len(columns), f"a field twice in {columns}"
    assert all(0 <= place < form.num_fields for place, _ in columns), f"{columns} of {form.num_fields} fields"
    separator = 0 if form.separator == BLANKS else ord(form.separator)
    return _native.text_columns(
        text,
        first,
        size,
        separator,
        ord(form.comment or "\0"),
        form.carriage,
        form.num_fields,
        list(columns),
        check_threads(threads),
    )
