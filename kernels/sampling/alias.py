"""Alias tables of integers: a neighbour in proportion to its weight for one draw and one read of a table.

The alias method (Walker, 1977; Vose, A linear algorithm for generating random numbers with a given distribution, 1991) cuts the weights of
a row of d neighbours into d places of equal mass. A place holds a part of its own neighbour and the rest of one other, its alias. A draw
takes a place and a point in it: below the place's threshold it means the place's own neighbour, else the alias.

Here a mass is an integer. The weights of a row become masses of the sum d * 2^32, so that a place has 2^32:

    mass_i = floor(w_i / max w / sum (w / max w) * d * 2^32), at least 1 if w_i > 0; the first of the largest gets the rest

Everything after that is exact: thresholds are u32, no place is left over, and neighbour i has the probability mass_i / (d * 2^32), which
differs from its weight's by less than 2^-31. The divisions are IEEE operations in float64 in a fixed order, so tables have the same
bytes on every machine. A neighbour with the weight 0 has the threshold 0 and is never an alias; no other has the threshold 0.

The masses need not be stored: they follow from the table, mass_i = threshold_i + sum of the rests of places whose alias is i. Code that
adds up masses (kernels/sampling/weighted.py) computes them from the row.

One draw is 64 random bits x: the high half of the 128 bits of x * d is the place, the next 32 bits are the point in it.

Cost: O(d) per row to build; 8 bytes per edge, threshold and position side by side, so a draw is one read of one cache line. Memory while
building: 16 bytes per neighbour of the longest row and thread.

Not checked here: that a row names a neighbour once; a repeated one has the sum of its weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Topology

WHOLE = 1 << 32
"""The mass of one place."""
FULL = WHOLE - 1
EmptyRows = Literal["error", "uniform", "none"]
"""Treatment of a row whose weights are all 0: an error, drawn uniformly, or without neighbours."""
FAULTS = ("is negative", "is not finite", "are all 0")


@dataclass(frozen=True, kw_only=True)
class AliasTables:
    """The alias tables of all rows of a topology."""

    # u32[E, 2]; threshold, and alias as a position in the row.
    table: Array
    # Number of neighbours that have weight, i32[N]; None if all have.
    support: Array | None = None


def masses_reference(weights: Any) -> list[int]:
    """Returns the masses of one row with a positive weight (the rule in plain Python)."""
    given = np.asarray(weights, np.float64)
    shares = given / given.max()
    total = float(np.cumsum(shares)[-1])  # one after the other
    wanted = float(len(given)) * float(WHOLE)
    mass = [max(int(share / total * wanted), int(share > 0 or w > 0)) for share, w in zip(shares, given, strict=True)]
    mass[int(given.argmax())] += len(given) * WHOLE - sum(mass)
    return mass


def alias_reference(weights: Any, empty: EmptyRows = "error") -> list[tuple[int, int]]:
    """Returns (threshold, alias) of each place of one row (the rule in plain Python)."""
    if len(weights) == 0 or not np.any(np.asarray(weights) > 0):
        return [(FULL if empty == "uniform" else 0, i) for i in range(len(weights))]
    mass = masses_reference(weights)
    row = [(FULL, i) for i in range(len(mass))]
    small = [i for i, m in enumerate(mass) if m < WHOLE]
    large = [i for i, m in enumerate(mass) if m > WHOLE]
    while small:
        poor, rich = small.pop(), large[-1]
        row[poor] = mass[poor], rich
        mass[rich] -= WHOLE - mass[poor]
        if mass[rich] <= WHOLE:
            large.pop()
            if mass[rich] < WHOLE:
                small.append(rich)
    return row


def pick_reference(bits: int, row: list[tuple[int, int]]) -> int:
    """Returns the position that 64 random bits mean (the rule in plain Python)."""
    product = bits * len(row)
    place, rest = product >> 64, product >> 32 & FULL
    threshold, alias = row[place]
    return place if rest < threshold else alias


def masses(table: Array) -> Array:
    """Returns u64[d], the masses of one row's table u32[d, 2]; meaningless for a row without any weight."""
    mass = table[:, 0].astype(np.uint64)
    np.add.at(mass, table[:, 1], np.uint64(WHOLE) - table[:, 0].astype(np.uint64))
    return mass


def build_alias(
    topology: Topology, weights: Array, *, of_nodes: bool = False, empty: EmptyRows = "error", threads: int = 1
) -> AliasTables:
    """Builds the tables of all rows.

    Args:
        weights: float32[E] or float64[E], a weight per edge; or with `of_nodes` float64[N], the weight of an edge's source.
        empty: treatment of a row whose weights are all 0.
    """
    given = check_weights(topology, weights, of_nodes=of_nodes, empty=empty, threads=threads)
    table, support = np.empty((topology.num_edges, 2), np.uint32), np.empty(topology.num_nodes, np.int32)
    for low, high, rows, counts in alias_ranges(topology, given, of_nodes=of_nodes, empty=empty, threads=threads):
        table[topology.indptr[low] : topology.indptr[high]], support[low:high] = rows, counts
    return AliasTables(table=table, support=None if np.array_equal(support, np.diff(topology.indptr)) else support)


def check_weights(
    topology: Topology, weights: Array, *, of_nodes: bool = False, empty: EmptyRows = "error", threads: int = 1
) -> Array:
    """Returns the weights as the native code reads them, after looking at every row.

    Raises:
        InputError: weights do not fit the topology; one is negative or not finite; or all of a row are 0 and `empty` is "error".
    """
    size = topology.num_nodes if of_nodes else topology.num_edges
    allowed = (np.float64,) if of_nodes else (np.float32, np.float64)
    if weights.shape != (size,) or weights.dtype not in allowed:
        names = " or ".join(np.dtype(each).name for each in allowed)
        raise InputError(f"weights are {weights.dtype}{list(weights.shape)}", f"give {names}[{size}]")
    given = np.require(weights, requirements=["C", "A"])
    indptr, indices = _rows(topology)
    if of_nodes and len(indices) and not 0 <= indices.min() <= indices.max() < topology.num_nodes:
        raise InputError("the graph has an edge from a node that it does not have", "build it again: graphmill build")
    found = _native.alias_fault(indptr, indices, given, bool(of_nodes), empty == "error", check_threads(threads))
    if found is not None:
        raise _refused(topology, given, of_nodes, *found)
    return given


def alias_ranges(
    topology: Topology,
    weights: Array,
    *,
    of_nodes: bool = False,
    empty: EmptyRows = "error",
    threads: int = 1,
    most_edges: int = 1 << 24,
) -> Iterator[tuple[int, int, Array, Array]]:
    """Yields (low, high, table u32[edges, 2], support i32[high - low]) of ranges of rows that were checked, in order.

    Args:
        topology, weights, of_nodes, empty, threads: as of `build_alias`.
        most_edges: edges of a range; a single row may have more.
    """
    indptr, indices = _rows(topology)
    cuts = [0]
    while cuts[-1] < topology.num_nodes:
        high = int(np.searchsorted(indptr, indptr[cuts[-1]] + most_edges, "right")) - 1
        cuts.append(min(max(high, cuts[-1] + 1), topology.num_nodes))
    for low, high in pairwise(cuts):
        table = np.empty((int(indptr[high] - indptr[low]), 2), np.uint32)
        support = np.empty(high - low, np.int32)
        uniform = empty == "uniform"
        _native.alias_tables(
            indptr, indices, weights, bool(of_nodes), uniform, low, high, table, support, check_threads(threads)
        )
        yield low, high, table, support


def _rows(topology: Topology) -> tuple[Array, Array]:
    indptr, indices = (np.require(array, requirements=["C", "A"]) for array in (topology.indptr, topology.indices))
    return indptr, indices


def _refused(topology: Topology, weights: Array, of_nodes: bool, node: int, fault: int) -> InputError:
    """Returns the error about the first row that cannot be drawn from."""
    low, high = int(topology.indptr[node]), int(topology.indptr[node + 1])
    sources = topology.indices[low:high]
    row = weights[sources] if of_nodes else weights[low:high]
    if fault == 2:
        problem = f"the weights of all {high - low} in-neighbours of node {node} {FAULTS[2]}"
        remedy = 'say what such a node gets: empty_rows = "uniform" or "none" in [sampling], or give them weights'
        return InputError(problem, remedy)
    place = int(np.flatnonzero(row < 0 if fault == 0 else ~np.isfinite(row))[0])
    whose = f"of node {sources[place]}" if of_nodes else f"of the edge {sources[place]} -> {node}"
    problem = f"the weight {row[place]} {whose} {FAULTS[fault]}"
    return InputError(problem, "give weights of 0 or more, all of them finite numbers")
