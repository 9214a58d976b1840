"""What splits the edges of a source into links to train on, to validate and to test."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphmill.kernels.errors import InputError
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


def of_times(values: Array, num_edges: int, where: str) -> Array:
    """Returns marks f64[E] of an array of times.

    Raises:
        InputError: the array is not numbers [E] or [E, 1], or one is NaN or infinite, with its edge.
    """
    if values.shape not in ((num_edges,), (num_edges, 1)) or values.dtype.kind not in "biufmM":
        problem = f"{where} is {values.dtype}{list(values.shape)}, not times [{num_edges}]"
        raise InputError(problem, "give a number for each edge, which grows with time")
    given = values.reshape(-1)
    times = as_numbers(given)
    wrong = np.flatnonzero(~np.isfinite(times))
    if len(wrong):
        raise InputError(f"{where}: edge {wrong[0]} is {given[wrong[0]]}", "give each edge its time")
    return times


def as_numbers(times: Array) -> Array:
    """Returns f64[n] of times [n]: numbers as they are, dates in microseconds since 1970, lengths in microseconds; NaN for NaT."""
    if times.dtype.kind not in "mM":
        return times.astype(np.float64)
    unit, count = np.datetime_data(times.dtype)
    finer = {"ns": 1e3, "ps": 1e6, "fs": 1e9, "as": 1e12}
    whole = times if unit in finer or unit == "generic" else times.astype(f"{times.dtype.kind}8[us]")
    numbers = whole.astype(np.int64).astype(np.float64) * (count / finer[unit] if unit in finer else 1)
    numbers[np.isnat(times)] = np.nan
    return numbers


def of_parts(parts: tuple[Array, Array, Array], num_edges: int, where: str) -> Array:
    """Returns marks f64[E] of the numbers of the edges of each part, ids[n]; raises InputError if an edge is in two parts."""
    found = np.full(num_edges, np.nan)
    for part, edges in enumerate(parts):
        if (twice := ~np.isnan(found[edges])).any():
            raise InputError(f"{where}: edge {edges[twice][0]} is in two parts of the split", "leave it in one of them")
        found[edges] = part
    return found
