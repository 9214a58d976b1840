"""Reach for sources that random walks choose: expected visits, pushed step by step.

Of a destination u that a batch has with probability q_u start `paths` paths. Before a step a path is back at u with probability `restart`;
so with y_0 = 0 the expected visits of all destinations' steps are

    y_s = push(m_s / in-degree),    m_1 = q,    m_s = restart q + (1 - restart) y_(s-1)

and v gets about paths * sum of y_s(v) visits in a batch that does not have it yet: reach = 1 - exp(-that). One push
(kernels/hotness/push.py) per step, O(E) each. Visits of v by its own paths, back by the edge they left on, are not visits of others and are
subtracted: after two steps that is reciprocity * push(1 / in-degree)(v) / in-degree(v).

Known limits: of a destination's visited nodes only the `fanout` most visited become sources; the expected visits are scaled by the share of
these visits, for all nodes alike, and repeated visits of one destination count as several. These errors are corrected by counts in
kernels/hotness/bayes.py. Paths that end at a node without in-neighbours are lost, while the sampler starts them again.

Determinism: masses are fixed-point integers, so sums do not depend on their order: equal bytes at any thread count. Memory: 40 bytes per
node, read and written in order, and 8 per sum of a range (kernels/ranges.py).
"""

from functools import partial
from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.hotness.push import Passes, node_slice, push_by_ranges
from graphmill.kernels.hotness.reach import exponent_scale
from graphmill.kernels.ranges import Allocate, node_ranges
from graphmill.kernels.sampling.sample_layer import TopologyRows, rows_in_order
from graphmill.kernels.sampling.walk import Walks
from graphmill.kernels.types import Array, Topology


class WalkReach:
    """The reach of nodes through the layers of a walking sampler; `step` and `reciprocity` are as of `ReachModel`."""

    def __init__(
        self,
        topology: Topology,
        walks: Walks,
        reciprocity: float,
        *,
        threads: int = 1,
        allocate: Allocate = np.zeros,
        sums_at_once: int = 0,
        passes: Passes | None = None,
    ):
        self.topology, self.walks, self.threads = topology, walks, check_threads(threads)
        self._sums_at_once, self._passes = sums_at_once, passes or partial(rows_in_order, topology)
        self._scale, self._allocate = exponent_scale(topology), allocate
        first = 1 + walks.restart * (walks.length - 2) if walks.length > 1 else 0
        echo, scale = reciprocity * (1 - walks.restart) * first, self._scale
        self._own, returns = (self._new() for _ in range(2))
        for low, high in node_ranges(topology.num_nodes):
            returns[low:high] = scale
        self.move(returns, self._own)
        for low, high in node_ranges(topology.num_nodes):
            self._own[low:high] = echo * (self._own[low:high] / scale / _degrees(topology.indptr[low : high + 1]))

    def step(self, rates: Array, fanout: int) -> Array:
        """Returns the reach f64[N], as `ReachModel.step`."""
        scale, walks, out = self._scale, self.walks, self._new()
        for low, high in node_ranges(len(rates)):
            out[low:high] = rates[low:high] * scale
        visits = self.expected_visits(out)
        kept = 1.0 if fanout < 0 else min(1.0, fanout / (walks.paths * walks.length))
        for low, high in node_ranges(len(rates)):
            part = slice(low, high)
            exponent = np.maximum(visits[part] - rates[part] * scale * self._own[part], 0) * (walks.paths * kept)
            values = np.zeros((high - low, 2), np.uint64)
            values[:, 0] = np.minimum(exponent, 2.0**63).astype(np.uint64)
            _native.reach(values, np.zeros(high - low), 0.0, scale, out[part], self.threads)
        return out

    def expected_visits(self, starts: Array) -> Array:
        """Returns f64[N], the expected visits of one path from each node with the mass `starts`, f64[N] in fixed-point numbers."""
        restart = self.walks.restart
        total, at, sent = (self._new() for _ in range(3))
        for step in range(self.walks.length):
            for low, high in node_ranges(len(starts)):
                part = slice(low, high)
                sent[part] = starts[part] if step == 0 else restart * starts[part] + (1 - restart) * at[part]
            self.move(sent, at)
            for low, high in node_ranges(len(starts)):
                total[low:high] += at[low:high]
        return total

    def move(self, mass: Array, out: Array) -> None:
        """Writes the mass that nodes get if each sends its mass f64[N] in equal parts to its in-neighbours, to `out`, f64[N]."""

        def take(low: int, high: int, sums: Array) -> None:
            out[low:high] = sums.astype(np.float64)

        def values_of(rows: TopologyRows) -> Array:
            return (mass[node_slice(rows)] / _degrees(rows.indptr)).astype(np.uint64)

        means: dict[str, Any] = {"threads": self.threads, "sums_at_once": self._sums_at_once}
        push_by_ranges(self._passes, self.topology.num_nodes, values_of, take, **means)

    def _new(self) -> Array:
        return self._allocate(self.topology.num_nodes, np.float64)


def _degrees(indptr: Array) -> Array:
    """Returns f64[n], at least 1, from the ends of rows i64[n+1]."""
    return np.maximum(np.diff(indptr), 1).astype(np.float64)
