"""What a source says of single edges: what splits them into links to train on, to validate and to test, and their labels."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class EdgeMarks:
    """What splits the edges of a source, their times or their parts, and their labels.

    Attributes:
        values: f64[M] of the edges in the order of `RawGraph`: numbers that ascend with time, or 0 train, 1 valid, 2 test; NaN for an edge
            that is not predicted, and if the split is drawn.
        place: function number of an edge in this order -> its place in words, for errors.
        labels: f64[M], the numbers of their classes, or their numbers; NaN for an edge without a label. None if edges have no labels.
    """

    values: Array
    place: Callable[[int], str]
    labels: Array | None = None


def of_times(values: Array, num_edges: int, where: str) -> Array:
    """Returns marks f64[E] of an array of times.

    Raises:
        InputError: the array is not numbers [E] or [E, 1], or one is NaN or infinite, with its edge.
    """
    if values.shape not in ((num_edges,), (num_edges, 1)) or values.dtype.kind not in "biufmM":
        problem = f"{where} is {values.dtype}{list(values.shape)}, not times [{num_edges}]"
        raise InputError(problem, "give a number for each edge, which grows with time")
    given = values.reshape(-1)
    dated = given.dtype.kind in "mM"
    wrong = np.flatnonzero(np.isnat(given) if dated else ~np.isfinite(given))
    if len(wrong):
        raise InputError(f"{where}: edge {wrong[0]} is {given[wrong[0]]}", "give each edge its time")
    return (given.astype(np.int64) if dated else given).astype(np.float64)


def of_parts(parts: tuple[Array, Array, Array], num_edges: int, where: str) -> Array:
    """Returns marks f64[E] of the numbers of the edges of each part, ids[n]; raises InputError if an edge is in two parts."""
    found = np.full(num_edges, np.nan)
    for part, edges in enumerate(parts):
        if (twice := ~np.isnan(found[edges])).any():
            raise InputError(f"{where}: edge {edges[twice][0]} is in two parts of the split", "leave it in one of them")
        found[edges] = part
    return found
