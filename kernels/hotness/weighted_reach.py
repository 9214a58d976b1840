"""Reach for neighbours that are drawn by weight: as kernels/hotness/reach.py, with a probability per edge in the place of one per node.

A destination u draws neighbour i, of the probability p_i in one draw, with the inclusion probability

    1 - (1 - p_i)^k          with replacement
    1 - exp(-tau p_i)        without, tau such that these add up to k

The second is the probability to have arrived by the time tau at which k have arrived on average, where i arrives at the rate p_i.
Successive sampling is the order of such arrivals (Rosen, Asymptotic theory for successive sampling, 1972), so it is wrong only by how much
that time varies: it is exact for k = 1 of many, and for equal weights.

Destinations of layers above have drawn before. The state that `ReachModel` has per node differs from edge to edge here, and is computed
anew from the rates of the layers above, which are stored: O(L^2 E) for L layers. The echo of a node's own draws is removed as there, by a
node's average.

Cost: per layer one pass over the rows that a batch can have, each with its masses and a root by Newton's method, about 10 exponentials per
edge; an addition per edge. Exponents are fixed-point integers and functions are made of IEEE operations: equal bytes at any thread count.
Memory: 8 bytes per node and layer for rates, 8 for the reach and 16 for its state, read and written in order; 16 per sum of a range
(kernels/ranges.py), each range with all of the cost; and 32 per neighbour of the longest row and thread.
"""

from functools import partial
from math import exp

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.hotness.push import Passes, node_slice, row_arrays
from graphmill.kernels.hotness.reach import SUREST, exponent_scale
from graphmill.kernels.ranges import Allocate, sum_ranges
from graphmill.kernels.sampling.alias import WHOLE, AliasTables, masses
from graphmill.kernels.sampling.sample_layer import TopologyRows, rows_in_order
from graphmill.kernels.types import Array, Topology


def inclusions_reference(table: Array, fanout: int, replace: bool) -> Array:
    """Returns f64[d]: the probability that each neighbour of a row is drawn (the rule in NumPy, tau by bisection)."""
    chance = np.where(table[:, 0] > 0, masses(table) / (len(table) * float(WHOLE)), 0)
    if fanout < 0 or (not replace and np.count_nonzero(chance) <= fanout):
        return (chance > 0).astype(np.float64)
    if replace:
        return 1 - (1 - chance) ** fanout
    low, high = 0.0, float(fanout)
    while sum(1 - exp(-high * p) for p in chance) < fanout and high < 1e30:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(1 - exp(-middle * p) for p in chance) < fanout else (low, middle)
    return np.array([1 - exp(-high * p) for p in chance])


class WeightedReach:
    """The reach of nodes through the layers of a weighted sampler; `step` and `reciprocity` are as of `ReachModel`."""

    def __init__(
        self,
        topology: Topology,
        tables: AliasTables,
        reciprocity: float,
        *,
        replace: bool = False,
        threads: int = 1,
        allocate: Allocate = np.zeros,
        sums_at_once: int = 0,
        passes: Passes | None = None,
    ):
        self.topology, self.reciprocity, self.replace = topology, reciprocity, bool(replace)
        self._passes = passes or partial(rows_in_order, topology, tables.table)
        self.threads, self._scale = check_threads(threads), exponent_scale(topology)
        self._rates: list[Array] = []
        self._fanouts: list[int] = []
        self._allocate, self._sums_at_once = allocate, sums_at_once
        # That a node drew a neighbour in the layers above, on average; and in this one as well.
        self._drawn, self._drawn_now = (allocate(topology.num_nodes, np.float64) for _ in range(2))

    def step(self, rates: Array, fanout: int) -> Array:
        """Returns the reach f64[N], as `ReachModel.step`."""
        num_nodes = self.topology.num_nodes
        kept, out = (self._allocate(num_nodes, np.float64) for _ in range(2))
        kept[:] = rates
        self._rates.append(kept)
        self._fanouts.append(fanout)
        for low, high in sum_ranges(num_nodes, self._sums_at_once):
            sums = np.zeros((high - low, 2), np.uint64)
            for rows in self._passes():
                self._add(rows, sums, low)
            before = self._drawn[low:high]
            _native.reach(sums, before, self.reciprocity, self._scale, out[low:high], self.threads)
        self._drawn, self._drawn_now = self._drawn_now, self._drawn
        return out

    def _add(self, rows: TopologyRows, sums: Array, low: int) -> None:
        """Adds what some rows give to the sums, which are those of the nodes from `low` on; notes what their nodes have drawn then."""
        nodes, fanout = node_slice(rows), self._fanouts[-1]
        table = np.require(rows.table, requirements=["C", "A"])
        rates = [np.require(each[nodes], requirements=["C", "A"]) for each in self._rates]
        settings = rates, self._fanouts, self.replace, self._scale
        place = low, rows.num_nodes, rows.first_node
        _native.push_weighted(*row_arrays(rows), table, *settings, sums, *place, self.threads)
        degree, before = np.maximum(np.diff(rows.indptr), 1), self._drawn[nodes]
        picked = np.ones(len(degree)) if fanout < 0 else np.minimum(1.0, fanout / degree)
        hit = np.minimum(np.maximum(rates[-1] - before, 0) / (1 - before) * picked, SUREST)
        self._drawn_now[nodes] = np.minimum(1 - (1 - before) * (1 - hit), SUREST)
