"""What splits the edges of a source into links to train on, to validate and to test."""

from collections.abc import Callable
from dataclasses import dataclass

from graphmill.kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class EdgeMarks:
    """What splits the edges of a source: their times or their parts.

    Attributes:
        values: f64[M] of the edges in the order of `RawGraph`: numbers that ascend with time, or 0 train, 1 valid, 2 test; NaN for an edge
            that is not predicted.
        place: function number of an edge in this order -> its place in words, for errors.
    """

    values: Array
    place: Callable[[int], str]
