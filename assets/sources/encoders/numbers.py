"""Encoders of numbers: as they are, standardised, of their logarithm, between 0 and 1, and by rank as a normal distribution.

Sources: scikit-learn's StandardScaler, MinMaxScaler, and QuantileTransformer with output_distribution="normal", whose numbers they equal.
NaN counts as a gap. A fit leaves gaps out; a gap then gets the mean of the training values, or zero, as if the table held it.

Sums of values and of their squares are not rounded, so that no order of rows and no number of threads changes a bit. Each value is a whole
number of 53 bits times a power of two. Whole numbers are added apart for each power, in halves of 27 bits whose sums a float64 holds
exactly. Source: "superaccumulators" (Kulisch); here one of Python's whole numbers for each power.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from graphmill.assets.building.keys import KeyProblem, within
from graphmill.assets.sources.encoders.encoder import GAPS, NUMBER, NUMBER_LIST, Encoder, Numbers
from graphmill.assets.sources.encoders.training_rows import Values
from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.kernels.types import Array

HALF = 27
"""Bits of the lower half of a whole number."""
MOST_VALUES = 1 << 20
"""Most values that are added at once: sums of as many halves of 28 bits have fewer than 53 bits."""


class ExactSum:
    """A sum that is exact until it is read."""

    def __init__(self) -> None:
        self._sums: defaultdict[int, int] = defaultdict(int)

    def add(self, whole: Array, power: Array) -> None:
        """Adds whole i64[n] x 2^power i64[n]; |whole| < 2^55."""
        for first in range(0, len(whole), MOST_VALUES):
            some, powers = whole[first : first + MOST_VALUES], power[first : first + MOST_VALUES]
            least = int(powers.min())
            for part, shift in ((some & ((1 << HALF) - 1), 0), (some >> HALF, HALF)):
                sums = np.bincount(powers - least, weights=part.astype(np.float64))
                for place in np.flatnonzero(sums).tolist():
                    self._sums[least + place + shift] += int(sums[place])

    def value(self) -> Fraction:
        """Returns the sum."""
        least = min(self._sums, default=0)
        total = sum(whole << (power - least) for power, whole in self._sums.items())
        return Fraction(total) * Fraction(2) ** least


class Moments:
    """Number, mean and standard deviation of finite values, each rounded once; the deviation is that of a population."""

    def __init__(self) -> None:
        self.count, self._sum, self._squares = 0, ExactSum(), ExactSum()

    def add(self, values: Array) -> None:
        """Adds f64[n]."""
        fraction, power = np.frexp(values)
        whole, power = (fraction * 2.0**53).astype(np.int64), power.astype(np.int64) - 53
        self.count += len(values)
        self._sum.add(whole, power)
        low, high = whole & ((1 << HALF) - 1), whole >> HALF
        self._squares.add(high * high, 2 * power + 2 * HALF)
        self._squares.add(high * low, 2 * power + HALF + 1)
        self._squares.add(low * low, 2 * power)

    @property
    def mean(self) -> float:
        """The mean, 0 without values."""
        return float(self._sum.value() / self.count) if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The square root of the mean square of differences from the mean, 0 for equal values and without values."""
        if not self.count:
            return 0.0
        variance = self._squares.value() / self.count - (self._sum.value() / self.count) ** 2
        # The variance may be beyond the range of float64, its square root is not.
        shift = (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2
        return math.ldexp(math.sqrt(variance / Fraction(4) ** shift), shift)


LARGEST = 1e150
"""Largest absolute value: differences of two and products are within float64."""
READABLE = f"abs(v) <= {LARGEST}"
"""Condition of values that are fitted; NaN is larger than all numbers."""
NEAR_END = 1e-7
"""Distance from 0 and 1 of the share of an extreme value, whose normal value would be infinite: BOUNDS_THRESHOLD of scikit-learn."""


@dataclass(frozen=True, kw_only=True)
class NumberEncoder(Encoder):
    """An encoder of one number as one number."""

    # Numbers that mean that there is no value, such as -999.
    no_value: tuple[float, ...] = ()

    kinds = (NUMBER,)
    gaps = GAPS

    def problems(self) -> Iterator[KeyProblem]:
        """Yields marks that are not numbers, and marks of gaps that are refused."""
        yield from super().problems()
        if not isinstance(self.no_value, tuple):
            return
        if wrong := [each for each in self.no_value if isinstance(each, bool) or not isinstance(each, int | float)]:
            yield KeyProblem("no_value", f"no_value: {wrong[0]!r} is not a number")
        elif self.no_value and self.missing is None:
            yield KeyProblem("no_value", 'no_value makes gaps: set missing = "mean", "zero" or "flag", too')

    def staged(self, table: TableFiles, column: str) -> str:
        """Returns the number as DOUBLE; a text that is not one becomes infinite, which `wrong` finds."""
        number = f"CAST({table.field(column)} AS DOUBLE)"
        if table.is_csv:
            text = table.field(column)
            number = f"CASE WHEN {text} IS NOT NULL THEN coalesce(TRY_CAST({text} AS DOUBLE), 'infinity') END"
        marks = ", ".join(f"CAST({each!r} AS DOUBLE)" for each in self.no_value)
        return f"CASE WHEN {number} NOT IN ({marks}) THEN {number} END" if marks else number

    def fit(self, values: Values) -> Numbers:
        """Returns the numbers of the subclass, and the mean if gaps get it."""
        fitted, fill = self.fit_numbers(values), Moments()
        if self.missing in ("mean", "flag"):
            for part in readable(values):
                fill.add(part)
        return {**fitted, **({} if self.missing is None else {"gap": fill.mean})}

    def fit_numbers(self, values: Values) -> Numbers:
        """Returns the fitted numbers of the values that can be encoded."""
        return {}

    def wrong(self, read: Column) -> Array | None:
        """Returns where values are infinite, nearly so, or texts that are not numbers."""
        return (np.abs(read.values) > LARGEST) & ~self.absent(read)

    def absent(self, read: Column) -> Array:
        """Returns where values are missing or NaN."""
        return np.isnan(read.values) | super().absent(read)

    def encode(self, read: Column, numbers: Numbers, gaps: Array) -> Array:
        """Returns f64[n, 1]."""
        return self.convert(np.where(gaps, numbers.get("gap", 0.0), read.values), numbers)[:, None]

    @abstractmethod
    def convert(self, values: Array, numbers: Numbers) -> Array:
        """Returns the encoded f64[n] of finite f64[n]."""


def readable(values: Values) -> Iterator[Array]:
    """Yields the values f64[n] that can be encoded, as copies."""
    for part in values.batches("v", f"WHERE {READABLE}"):
        yield np.array(part.values)


def moments(values: Values, converted: Any = lambda part: part) -> Numbers:
    """Returns mean and scale of converted values; the scale of equal values is 1."""
    found = Moments()
    for part in readable(values):
        found.add(converted(part))
    return {"mean": found.mean, "scale": found.deviation or 1.0}


class Plain(NumberEncoder):
    """The number as it is."""

    name = "number"

    def convert(self, values: Array, numbers: Numbers) -> Array:
        """Returns the values."""
        return values


@dataclass(frozen=True, kw_only=True)
class Vector(Encoder):
    """A list of `width` numbers as it is: a column of lists that no rule names."""

    width: int = 0

    name: ClassVar[str] = "vector"
    kinds = (NUMBER_LIST,)

    @property
    def most_width(self) -> int:
        """The length of the lists."""
        return self.width

    def staged(self, table: TableFiles, column: str) -> str:
        """Returns the list; its numbers are not fitted."""
        return f"CAST({table.field(column)} AS DOUBLE[])"

    def names(self, column: str, numbers: Numbers) -> list[str]:
        """Returns a name for each place of the list."""
        return [f"{column}[{place}]" for place in range(self.width)]

    def wrong(self, read: Column) -> Array | None:
        """Returns where lists have another length, or a value that is missing or not finite."""
        assert read.lengths is not None
        absent, lengths = self.absent(read), read.lengths
        values = ~np.isfinite(read.values) if read.value_nulls is None else read.value_nulls | ~np.isfinite(read.values)
        broken = np.zeros(len(lengths), bool)
        broken[np.repeat(np.arange(len(lengths)), lengths)[values]] = True
        return ~absent & (broken | (lengths != self.width))

    def encode(self, read: Column, numbers: Numbers, gaps: Array) -> Array:
        """Returns f64[n, width]."""
        assert read.lengths is not None
        encoded = np.zeros((len(gaps), self.width))
        encoded[~gaps] = read.values[np.repeat(~gaps, read.lengths)].reshape(-1, self.width)
        return encoded


class Standard(NumberEncoder):
    """The difference from the mean, divided by the standard deviation."""

    name = "standard"

    def fit_numbers(self, values: Values) -> Numbers:
        """Returns mean and scale."""
        return moments(values)

    def convert(self, values: Array, numbers: Numbers) -> Array:
        """Returns standardised values."""
        return (values - numbers["mean"]) / numbers["scale"]


class Log(NumberEncoder):
    """log(1 + |x|) with the sign of x, then standardised: for amounts and counts with few large values."""

    name = "log"

    def fit_numbers(self, values: Values) -> Numbers:
        """Returns mean and scale of the logarithms."""
        return moments(values, _signed_log)

    def convert(self, values: Array, numbers: Numbers) -> Array:
        """Returns standardised logarithms."""
        return (_signed_log(values) - numbers["mean"]) / numbers["scale"]


def _signed_log(values: Array) -> Array:
    return np.copysign(np.log1p(np.abs(values)), values)


class MinMax(NumberEncoder):
    """From 0 for the smallest training value to 1 for the largest; other values may lie outside."""

    name = "minmax"

    def fit_numbers(self, values: Values) -> Numbers:
        """Returns both ends."""
        ((low, high),) = values.rows(f"SELECT min(v), max(v) FROM {{values}} WHERE {READABLE}")
        return {"low": low or 0.0, "high": high or 0.0}

    def convert(self, values: Array, numbers: Numbers) -> Array:
        """Returns shares of the range; of equal training values the difference from them."""
        return (values - numbers["low"]) / ((numbers["high"] - numbers["low"]) or 1.0)


@dataclass(frozen=True, kw_only=True)
class RankNormal(NumberEncoder):
    """The normal value with the share of training values below."""

    # Number of quantiles; fewer if there are fewer training values.
    quantiles: int = field(default=1000, metadata=within(2, 10_000))

    name: ClassVar[str] = "rank"

    def fit_numbers(self, values: Values) -> Numbers:
        """Returns the quantiles, read from the sorted values; values between two ranks are interpolated."""
        ((count,),) = values.rows(f"SELECT count(*) FROM {{values}} WHERE {READABLE}")
        if not count:
            return {"quantiles": [0.0]}
        # By the steps of np.percentile: where values repeat, the last bit of a quantile decides the middle rank.
        ranks = np.linspace(0, 1, min(self.quantiles, count)) * 100 / 100 * (count - 1)
        below = np.floor(ranks).astype(np.int64)
        wanted, found, first = np.unique([below, np.minimum(below + 1, count - 1)]), [], 0
        for part in values.batches("v", f"WHERE {READABLE} ORDER BY v"):
            places = wanted[(wanted >= first) & (wanted < first + len(part.values))]
            found.append(part.values[places - first])
            first += len(part.values)
        ordered = np.concatenate(found)
        low, high = (ordered[np.searchsorted(wanted, place)] for place in (below, np.minimum(below + 1, count - 1)))
        share = ranks - below
        between = np.where(share < 0.5, low + (high - low) * share, high - (high - low) * (1 - share))
        return {"quantiles": np.maximum.accumulate(between).tolist()}

    def convert(self, values: Array, numbers: Numbers) -> Array:
        """Returns normal values; of equal quantiles the middle one counts."""
        import torch

        quantiles = np.array(numbers["quantiles"])
        shares = np.linspace(0, 1, len(quantiles))
        up = np.interp(values, quantiles, shares)
        down = np.interp(-values, -quantiles[::-1], -shares[::-1])
        share = (up - down) / 2
        share[values + NEAR_END > quantiles[-1]] = 1
        share[values - NEAR_END < quantiles[0]] = 0
        ends = np.array([NEAR_END - np.spacing(1), 1 - (NEAR_END - np.spacing(1))])
        low, high = torch.special.ndtri(torch.from_numpy(ends)).tolist()
        return np.clip(torch.special.ndtri(torch.from_numpy(share)).numpy(), low, high)
