"""Sums of float64 values and of their squares without rounding, so that no order of rows and no number of threads changes a bit.

Each value is a whole number of 53 bits times a power of two. Whole numbers are added apart for each power, in halves of 27 bits whose sums
a float64 holds exactly. Source: "superaccumulators" (Kulisch); here one of Python's whole numbers for each power.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np

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
