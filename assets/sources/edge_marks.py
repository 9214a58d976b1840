"""What a source says of single edges: what splits them into links to train on, to validate and to test, labels, and times."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from graphmill.assets.building.keys import KeyProblem
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
    given, times = _numbers(values, num_edges, where, "give a number for each edge, which grows with time")
    wrong = np.flatnonzero(~np.isfinite(times))
    if len(wrong):
        raise InputError(f"{where}: edge {wrong[0]} is {given[wrong[0]]}", "give each edge its time")
    return times


def _numbers(values: Array, count: int, where: str, remedy: str) -> tuple[Array, Array]:
    """Returns times as they are and as numbers, [n] each; raises InputError with the remedy for an array of another form."""
    if values.shape not in ((count,), (count, 1)) or values.dtype.kind not in "biufmM":
        raise InputError(f"{where} is {values.dtype}{list(values.shape)}, not times [{count}]", remedy)
    return values.reshape(-1), as_numbers(values.reshape(-1))


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


def node_time_problems(key: str, value: str | None, *, times: bool, linked: bool) -> Iterator[KeyProblem]:
    """Yields a key of the times of nodes that no [sampling] reads.

    Args:
        times: whether [sampling] asks for times.
        linked: whether links are predicted.
    """
    if value is not None and (not times or linked):
        why = "the seeds of links have the times of their edges" if times else "no `before` of [sampling] reads it"
        yield KeyProblem(key, f"{key} = {value!r} has no effect, since {why}: leave it out")


def of_node_times(values: Array, num_nodes: int, where: str) -> Array:
    """Returns f64[N], the times of nodes, NaN for a node without one, of an array of times.

    Raises:
        InputError: the array is not numbers [N] or [N, 1], or one is infinite, with its node.
    """
    _, times = _numbers(values, num_nodes, where, "give a time for each node, NaN for one that is never a seed")
    wrong = np.flatnonzero(np.isinf(times))
    if len(wrong):
        raise InputError(f"{where}: node {wrong[0]} is {times[wrong[0]]}", "give a time, or NaN")
    return times
