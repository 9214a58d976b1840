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
node.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels import _native
from kernels.arrays import check_threads
from kernels.hotness.push import push
from kernels.hotness.reach import exponent_scale
from kernels.sampling.walk import Walks
from kernels.types import Array, Topology


class WalkReach:
    """The reach of nodes through the layers of a walking sampler; call `step` for each layer, from the seeds downwards.

    Args:
        topology: the in-neighbours.
        walks: settings of the walks.
        reciprocity: share of edges that have a reverse.
        threads: number of native threads; the result does not depend on it.
    """

    def __init__(self, topology: Topology, walks: Walks, reciprocity: float, *, threads: int = 1):
        self.topology, self.walks, self.threads = topology, walks, check_threads(threads)
        self._scale = exponent_scale(topology)
        self._degree = np.maximum(np.diff(topology.indptr), 1).astype(np.float64)
        returns = self._push(np.full(topology.num_nodes, self._scale)) / self._scale / self._degree
        first = 1 + walks.restart * (walks.length - 2) if walks.length > 1 else 0
        self._own = reciprocity * (1 - walks.restart) * first * returns

    def step(self, rates: Array, fanout: int) -> Array:
        """Returns the reach f64[N], as `ReachModel.step`."""
        visits = expected_visits(rates * self._scale, self.walks, self._push)
        kept = 1.0 if fanout < 0 else min(1.0, fanout / (self.walks.paths * self.walks.length))
        exponent = np.maximum(visits - rates * self._scale * self._own, 0) * (self.walks.paths * kept)
        most = 2.0**63
        values = np.stack([np.minimum(exponent, most), np.zeros(len(exponent))], axis=1).astype(np.uint64)
        nothing, out = np.zeros(len(exponent)), np.empty(len(exponent))
        _native.reach(values, nothing, 0.0, self._scale, out, self.threads)
        return out

    def _push(self, mass: Array) -> Array:
        """Returns f64[N]: the mass that nodes get if each sends its mass f64[N] in equal parts to its in-neighbours."""
        return push(self.topology, (mass / self._degree).astype(np.uint64), threads=self.threads).astype(np.float64)


def expected_visits(starts: Array, walks: Walks, push_mass: Callable[[Array], Array]) -> Array:
    """Returns f64[N], the expected visits of one path from each node with the mass `starts`.

    Args:
        starts: f64[N], paths that start at each node.
        walks: length and restart of the paths.
        push_mass: function that moves masses one step.
    """
    total, at = np.zeros(len(starts)), starts
    for step in range(walks.length):
        at = push_mass(starts if step == 0 else walks.restart * starts + (1 - walks.restart) * at)
        total += at
    return total
