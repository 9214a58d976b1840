"""The encoder of times: the age, and the places in the year, the week and the day as points of a circle.

The age counts from the mean of the training rows, in their standard deviations; earlier times have a larger one. Places on a circle are a
sine and a cosine, so that midnight is near 23:59 and December near January. Times with a zone are those of UTC, others are taken as UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphmill.assets.building.keys import KeyProblem
from graphmill.assets.sources.encoders.encoder import NUMBER, TEXT, TIME, Encoder, Numbers, kind_of, zeros_at
from graphmill.assets.sources.encoders.numbers import Moments
from graphmill.assets.sources.encoders.training_rows import Values
from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.kernels.errors import did_you_mean
from graphmill.kernels.types import Array

PARTS = ("age", "year", "week", "day")
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Unit -> microseconds."""
DAY = 86_400_000_000
"""Microseconds of a day."""
NO_TIME = -(2**63)
"""The number of microseconds that stands for a value that is not a time."""


@dataclass(frozen=True, kw_only=True)
class Time(Encoder):
    """The age of a time, and its places in the year, the week and the day."""

    # The parts that are encoded: of "age", "year", "week", "day".
    parts: tuple[str, ...] = PARTS
    # What a column of numbers counts since 1970: "s", "ms" or "us".
    unit: str = ""

    name: ClassVar[str] = "time"
    kinds = (TIME, TEXT, NUMBER)

    def problems(self) -> Iterator[KeyProblem]:
        """Yields unknown parts and units."""
        yield from super().problems()
        for key, given, known in (("parts", self.parts, PARTS), ("unit", [self.unit] if self.unit else [], UNITS)):
            for each in given if isinstance(given, tuple | list) else ():
                if each not in known:
                    text = f"{key}: {each!r} is not one of {', '.join(known)}{did_you_mean(each, known, chr(39))}"
                    yield KeyProblem(key, text)

    def refusal(self, table: TableFiles, column: str) -> str:
        """Returns why the column has no times, or numbers without a unit."""
        if kind_of(table, column) == NUMBER and not self.unit:
            units = 'which count since 1970: { encoder = "time", unit = "s" }'
            return f"is {table.type_of(column)}, and time needs the unit of numbers, {units}"
        return super().refusal(table, column)

    @property
    def most_width(self) -> int:
        """A column for the age, two for each other part."""
        return sum(1 if part == "age" else 2 for part in self.parts)

    def staged(self, table: TableFiles, column: str) -> str:
        """Returns the microseconds since 1970; `NO_TIME` for a value that is not a time."""
        given = table.field(column)
        if self.unit:
            micros = f"TRY_CAST(round(TRY_CAST({given} AS DOUBLE) * {UNITS[self.unit]}) AS BIGINT)"
        else:
            time = f"TRY_CAST({given} AS TIMESTAMP)" if kind_of(table, column) == TEXT else given
            micros = f"CASE WHEN isfinite({time}) THEN epoch_us({time}) END"
        return f"CASE WHEN {given} IS NOT NULL THEN coalesce({micros}, {NO_TIME}) END"

    def fit(self, values: Values) -> Numbers:
        """Returns mean and scale of the seconds since 1970."""
        found = Moments()
        for part in values.batches("v", f"WHERE v <> {NO_TIME}"):
            found.add(part.values / 1e6)
        return {"mean": found.mean, "scale": found.deviation or 1.0}

    def names(self, column: str, numbers: Numbers) -> list[str]:
        """Returns a name for each part, two for those on a circle."""
        circles = {part: [f"{column} {part} sin", f"{column} {part} cos"] for part in PARTS}
        return [name for part in self.parts for name in ([f"{column} age"] if part == "age" else circles[part])]

    def wrong(self, read: Column) -> Array | None:
        """Returns where values are not times."""
        return (read.values == NO_TIME) & ~self.absent(read)

    def encode(self, read: Column, numbers: Numbers, gaps: Array) -> Array:
        """Returns f64[n, columns of the parts]."""
        micros = np.where(gaps, 0, read.values)
        found: list[Array] = []
        for part in self.parts:
            if part == "age":
                found.append((numbers["mean"] - micros / 1e6) / numbers["scale"])
            else:
                angle = 2 * np.pi * _place(micros, part)
                found += [np.sin(angle), np.cos(angle)]
        return zeros_at(np.stack(found, axis=1), gaps)


def _place(micros: Array, part: str) -> Array:
    """Returns the place f64[n] in [0, 1) of times in their year, week (from Monday) or day."""
    if part == "year":
        times = micros.astype("M8[us]")
        year = times.astype("M8[Y]")
        first, last = (each.astype("M8[us]").astype(np.int64) for each in (year, year + 1))
        return (micros - first) / (last - first)
    days = 1 if part == "day" else 7
    # 1970-01-01 was a Thursday.
    return ((micros + (days > 1) * 3 * DAY) % (days * DAY)) / (days * DAY)
