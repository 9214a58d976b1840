"""An encoder: the options of one column, the fit on its training values, and the conversion of any values to numbers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from graphmill.assets.building.keys import Checked, KeyProblem
from graphmill.assets.sources.encoders.training_rows import Values
from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.table_files import NUMBERS, TableFiles
from graphmill.kernels.errors import did_you_mean
from graphmill.kernels.types import Array

NUMBER, TEXT, TIME, LIST, NUMBER_LIST = "numbers", "text", "times", "lists", "lists of numbers"
"""Kinds of columns. A column of a text file may hold any but lists."""
GAPS = ("mean", "zero", "flag")
Numbers = Mapping[str, Any]
"""The fitted numbers of a column, as JSON has them."""


def kind_of(table: TableFiles, column: str) -> str:
    """Returns the kind of a column by its type in the files; "" for a type that no encoder reads."""
    given, _, length = table.type_of(column).partition("[")
    number = given in NUMBERS or given.startswith("DECIMAL")
    if length:
        return NUMBER_LIST if number and length.count("]") == 1 else LIST if given in ("VARCHAR", "UUID") else ""
    if number:
        return NUMBER
    if given == "DATE" or given.startswith("TIMESTAMP"):
        return TIME
    return TEXT if given in ("VARCHAR", "UUID") or given.startswith("ENUM(") else ""


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """The options of a column in `encode`; a subclass adds its own as fields.

    Attributes:
        missing: value of a gap: the "mean" of the training values, "zero", or "flag": as "mean", with a further column of ones at gaps. In
            columns of other things than numbers a gap is encoded as zeros in each case. None refuses gaps.
        gaps: values that `missing` may have.
    """

    missing: str | None = None

    name: ClassVar[str]
    gaps: ClassVar[Collection[str]] = ("zero", "flag")

    def problems(self) -> Iterator[KeyProblem]:
        """Yields options of another type than their defaults, and a value that `missing` does not have."""
        for each in fields(self):
            value, default = getattr(self, each.name), each.default
            if default is not None and (isinstance(value, bool) or not isinstance(value, type(default))):
                kind = {int: "a whole number", str: "a text in quotes", tuple: "a list"}[type(default)]
                yield KeyProblem(each.name, f"{each.name} = {value!r} is not {kind}")
        if self.missing is not None and self.missing not in self.gaps:
            hint = did_you_mean(self.missing, self.gaps, "'")
            yield KeyProblem("missing", f"missing = {self.missing!r} is not one of {', '.join(self.gaps)}{hint}")


class Encoder(Options):
    """An encoder of one column."""

    kinds: ClassVar[Collection[str]]

    def refusal(self, table: TableFiles, column: str) -> str:
        """Returns why a column of this type cannot be encoded, in words; "" if it can."""
        kind = kind_of(table, column)
        fits = kind in self.kinds or (table.is_csv and {NUMBER, TEXT, TIME} & {*self.kinds})
        return "" if fits else f"is {table.type_of(column)}, and {self.name} encodes {' or '.join(self.kinds)}"

    @property
    def most_width(self) -> int:
        """Most columns that it makes, without the flag of gaps."""
        return 1

    @property
    def least_width(self) -> int:
        """Fewest columns that it makes, without the flag of gaps."""
        return self.most_width

    @abstractmethod
    def staged(self, table: TableFiles, column: str) -> str:
        """Returns the SQL expression of the values that are fitted, null for a gap."""

    def fit(self, values: Values) -> Numbers:
        """Returns the fitted numbers of the training values: none, unless the encoder says more."""
        return {}

    def read(self, table: TableFiles, column: str) -> str:
        """Returns the SQL expression of the numbers, or lists of numbers, that `encode` gets, null for a gap."""
        return self.staged(table, column)

    def ready(self, numbers: Numbers) -> Numbers:
        """Returns the fitted numbers for `encode`, with values that are computed from them once for all rows."""
        return numbers

    def names(self, column: str, numbers: Numbers) -> list[str]:
        """Returns the names of the columns that it makes, without the flag of gaps: that of the column for one."""
        return [column]

    def wrong(self, read: Column) -> Array | None:
        """Returns bool[n] true for values that are there and cannot be encoded; None without any."""
        return None

    def absent(self, read: Column) -> Array:
        """Returns bool[n] true for gaps."""
        values = read.values if read.lengths is None else read.lengths
        return np.zeros(len(values), bool) if read.nulls is None else read.nulls

    @abstractmethod
    def encode(self, read: Column, numbers: Numbers, gaps: Array) -> Array:
        """Returns f64[n, width] of the values that `read` is an expression for; the values at `gaps` bool[n] are arbitrary."""


def part_of(column: Column, low: int, high: int) -> Column:
    """Returns the rows low to high - 1 of a column of numbers or of lists."""
    nulls = None if column.nulls is None else column.nulls[low:high]
    if column.lengths is None:
        return Column(column.values[low:high], nulls)
    first, last = int(column.lengths[:low].sum()), int(column.lengths[:high].sum())
    inside = None if column.value_nulls is None else column.value_nulls[first:last]
    return Column(column.values[first:last], nulls, column.lengths[low:high], inside)


def text_sql(table: TableFiles, column: str) -> str:
    """Returns the expression of a column as text."""
    return f"CAST({table.field(column)} AS VARCHAR)"


def zeros_at(encoded: Array, gaps: Array) -> Array:
    """Returns encoded f64[n, width] with rows of zeros at `gaps` bool[n]."""
    encoded[gaps] = 0
    return encoded
