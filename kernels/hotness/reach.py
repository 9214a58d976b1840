"""Reach: the probability that a batch reaches each node, worked out layer by layer without sampling.

A destination u that is in a batch with probability q_u draws each of its d_u in-neighbours with p_u = min(1, fanout / d_u); with
replacement p_u = 1 - (1 - 1 / d_u)^fanout. A node v that is not in the batch yet gets in unless all its out-neighbours u miss it:

    reach_v = 1 - prod over u (1 - x_u p_u) = 1 - exp(-sum over u of w_u),    w_u = -log(1 - x_u p_u)

So one value per node is pushed to its in-neighbours (kernels/hotness/push.py): O(E) per layer, no value per edge.

Destinations of the layers above are destinations again. They have drawn before, and v is not there, so they missed it: x_u = (q_u - t_u) /
(1 - t_u), where t_u is the probability that u drew a given neighbour in a layer above. Then t_u <- t_u + (q_u - t_u) p_u.

The echo. If v draws u and u may draw v, part of q_u is v's own doing, in batches in which v was there before. Counted as an independent
chance it is not a small error: on a sparse graph with 5 % training nodes it exceeded the true reach of these nodes. It is removed to first
order: w_u becomes w_u + log(1 - t_v) dw_u/ds_u, where s_u = -log(1 - q_u) is what v added -log(1 - t_v) to, and

    dw_u/ds_u = p_u (1 - q_u) / (1 - t_u) / (1 - x_u p_u), at most 1

whose sum over u is a second column of the same push. Only edges with a reverse have an echo; their share of all edges is estimated by
`reciprocity` and taken as the same everywhere. Longer loops are left in.

Determinism: exponents are fixed-point integers, so sums do not depend on their order; logarithms and exponentials are made of IEEE
operations. Equal bytes at any thread count and on every machine. Precision: the fixed point is at least 2^-28 for a node of 2^31
out-edges, 2^-40 below 2^19. Memory: 24 bytes per node, read and written in order, and 16 per sum of a range (kernels/ranges.py).

Neighbours that are drawn by weight or by walks have models of their own (kernels/hotness/weighted_reach.py, walk_reach.py).

Known limits: destinations are taken as independent of one another within a batch; the remaining error is corrected by counts in
kernels/hotness/bayes.py. This is a mean-field approximation; the removal of the echo is akin to non-backtracking propagation. Not checked:
that rates are probabilities.
"""

from functools import partial

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.hotness.push import Passes, node_slice, push_by_ranges
from graphmill.kernels.ranges import Allocate
from graphmill.kernels.rng import draws, key
from graphmill.kernels.sampling.sample_layer import TopologyRows, rows_in_order
from graphmill.kernels.types import Array, Stream, Topology

PROBES = 4096  # edges that `reciprocity` looks at
PROBE_WORD = -3  # after the stream
SUREST = 1 - 2.0**-20  # keeps logarithms finite


def reach_reference(
    topology: Topology, rates: Array, fanout: int, drawn: Array, reciprocity: float, replace: bool = False
) -> tuple[Array, Array]:
    """Returns (reach f64[N], the new `drawn` f64[N]): one layer of `ReachModel` in plain NumPy; `drawn` is t, zeros at first."""
    degree = np.maximum(np.diff(topology.indptr), 1)
    picked = np.ones(len(degree)) if fanout < 0 else np.minimum(1.0, fanout / degree)
    if replace and fanout > 0:
        picked = 1 - (1 - 1 / degree) ** fanout
    hit = np.minimum(np.maximum(rates - drawn, 0) / (1 - drawn) * picked, SUREST)
    slope = np.minimum(1.0, picked * (1 - rates) / (1 - drawn) / (1 - hit))
    sums = np.zeros((2, topology.num_nodes))
    for u in range(topology.num_nodes):
        for v in topology.indices[topology.indptr[u] : topology.indptr[u + 1]]:
            sums[:, v] += -np.log1p(-hit[u]), slope[u]
    exponent = sums[0] + reciprocity * np.log1p(-drawn) * sums[1]
    return -np.expm1(-np.maximum(exponent, 0)), np.minimum(1 - (1 - drawn) * (1 - hit), SUREST)


def exponent_scale(topology: Topology) -> float:
    """Returns the factor that makes exponents fixed-point numbers.

    The largest sum is 14 a neighbour (-log 2^-20) times the out-degree: it has to fit 64 bits.
    """
    most = int(topology.out_degree.max(initial=1))
    return float(1 << min(40, 59 - most.bit_length()))


class ReachModel:
    """The reach of nodes through the layers of one sampler; call `step` for each layer, from the seeds downwards.

    Args:
        reciprocity: share of edges that have a reverse.
        passes: passes over the rows of the topology, None to read it where it lies.
    """

    def __init__(
        self,
        topology: Topology,
        reciprocity: float,
        threads: int = 1,
        *,
        replace: bool = False,
        allocate: Allocate = np.zeros,
        sums_at_once: int = 0,
        passes: Passes | None = None,
    ):
        self.topology, self.reciprocity, self.threads = topology, reciprocity, check_threads(threads)
        self._sums_at_once, self._passes = sums_at_once, passes or partial(rows_in_order, topology)
        self.replace, self._scale = bool(replace), exponent_scale(topology)
        self._allocate = allocate
        self._drawn, self._drawn_now = (
            allocate(topology.num_nodes, np.float64) for _ in range(2)
        )  # t, before and after

    def step(self, rates: Array, fanout: int) -> Array:
        """Returns f64[N]: the probability that a layer draws a node that is none of its destinations; `rates`, f64[N], that it is one."""
        rates = np.require(rates, np.float64, ["C", "A"])
        drawn, after, reach = self._drawn, self._drawn_now, self._allocate(len(rates), np.float64)

        def values_of(rows: TopologyRows) -> Array:
            nodes, ends = node_slice(rows), np.require(rows.indptr, requirements=["C", "A"])
            values = np.empty((len(ends) - 1, 2), np.uint64)
            settings = fanout, self.replace, self._scale
            _native.pick_exponents(ends, rates[nodes], *settings, drawn[nodes], after[nodes], values, self.threads)
            return values

        def take(low: int, high: int, sums: Array) -> None:
            _native.reach(sums, drawn[low:high], self.reciprocity, self._scale, reach[low:high], self.threads)

        means = {"threads": self.threads, "sums_at_once": self._sums_at_once}
        push_by_ranges(self._passes, len(rates), values_of, take, pairs=True, **means)
        # In a place of its own until now, since every sum needs what was drawn before.
        self._drawn, self._drawn_now = after, drawn
        return reach


def reciprocity(topology: Topology, seed: int) -> float:
    """Returns the share of edges that have a reverse, by 4,096 probes that the seed decides; 0 without edges."""
    if topology.num_edges == 0:
        return 0.0
    places = draws(key(seed, Stream.PROBE, PROBE_WORD), np.arange(PROBES)) % np.uint64(topology.num_edges)
    found = 0
    for place in places.astype(np.int64).tolist():
        target = int(np.searchsorted(topology.indptr, place, "right")) - 1
        source = topology.indices[place]
        row = topology.indices[topology.indptr[source] : topology.indptr[source + 1]]
        found += bool((row == target).any())
    return found / PROBES
