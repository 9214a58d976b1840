"""Hotness from a model and from counts together: an empirical-Bayes filter over the layers of a sampler.

Presampled counts (PreSC) are exact on average and noisy if an epoch has few batches or visits spread evenly. Reach
(kernels/hotness/reach.py) has no noise and is wrong if batches are not as independent as it assumes. Both are at hand for every layer, so
they are blended layer by layer, from the seeds downwards:

    q          probability that a batch has the node as a destination; exact for seeds: one batch per epoch for a training node
    reach      probability that a destination draws a node which is not there yet, from q
    c of n     batches that drew it, of those presampled ones in which it was not there yet
    h          the posterior of the reach given c and n
    q <- q + (1 - q) h, and the next layer starts from there

Posterior: nodes are sorted by reach into at most 200 bins of equal size, equal values in one bin. Within a bin the model is
calibrated, m = r n reach with r = sum c / sum n reach, and the variation of counts beyond sampling is its error: S = phi m^2, with
phi = (sum (c - m)^2 - sum m (1 - m / n)) / sum m^2, not below 0. Then

    n h = m + S / (S + m (1 - m / n)) (c - m)

so counts prevail if the model fails, and the model if counts are few. Batches in which a node is a seed do not count in n and c. A node
that the model cannot reach keeps its plain count.

Known limit: sampling that never draws certain edges at all (a user's function that takes the first neighbours) makes a reach that no
calibration mends: there the blend lost up to 16 points to plain counts. The hotness stage ranks by plain counts there.

The estimate is also called a shrinkage estimator. Not checked: that the counts come from a sampler with these fanouts.

Sources: Robbins, An empirical Bayes approach to statistics (1956), for the idea; the blend is this project's own.
Cost: a push over the edges and a sort of the nodes for each layer, next to counting layers while presampling. Memory: 150 bytes per node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from kernels.arrays import as_ids
from kernels.errors import InputError
from kernels.hotness.reach import ReachModel, reciprocity
from kernels.types import Array, Topology

MOST_BINS = 200
LEAST_IN_BIN = 500  # nodes per bin if there are fewer than 100,000 altogether


class Reach(Protocol):
    """A model of a sampler: `ReachModel`, `WeightedReach` or `WalkReach`."""

    def step(self, rates: Array, fanout: int) -> Array:
        """Returns the reach f64[N] of the next layer; see `ReachModel.step`."""
        ...


def posterior(drawn: Array, trials: Array, reach: Array) -> Array:
    """Returns f64[N]: the probability that a batch draws the node, from counts and a model.

    Args:
        drawn: [N] integers, number of batches that drew each node.
        trials: [N] integers, number of batches that could have drawn it.
        reach: f64[N] in [0, 1], the probability that the model gives.
    """
    result = np.divide(drawn, trials, out=np.zeros(len(drawn)), where=trials > 0)
    known = (reach > 0) & (trials > 0)
    if not known.any():
        return result
    count, trial, model = drawn[known].astype(np.float64), trials[known].astype(np.float64), reach[known]
    bins = _bins(model)
    expected = trial * model
    # bincount adds one after the other, so the sums are the same bits everywhere.
    mean = np.minimum(expected * _ratio(np.bincount(bins, count), np.bincount(bins, expected))[bins], trial)
    noise = mean * (1 - mean / trial)
    beyond = np.bincount(bins, (count - mean) ** 2 - noise)
    error = np.maximum(_ratio(beyond, np.bincount(bins, mean * mean)), 0)[bins] * mean * mean
    trust = np.divide(error, error + noise, out=np.ones(len(mean)), where=error + noise > 0)
    result[known] = (mean + trust * (count - mean)) / trial
    return result


def visit_rates(
    topology: Topology,
    train_ids: Any,
    fanouts: Sequence[int],
    *,
    num_batches: int,
    rounds: int,
    visits: Array,
    layer_visits: Array,
    seed: int,
    threads: int = 1,
    model: Reach | None = None,
) -> Array:
    """Estimates how often batches ask for each node.

    Args:
        topology: the in-neighbours.
        train_ids: ids[n], the seeds of an epoch.
        fanouts: fanouts of the sampler, from the seeds outwards.
        num_batches: number of batches per epoch.
        rounds: number of presampled epochs.
        visits, layer_visits: u32[N] and u32[L, N], the counts of presampling.
        seed: seed that decides which edges are probed for a reverse.
        threads: number of native threads; the result does not depend on it.
        model: the reach of a sampler that does not draw uniformly without replacement; None for one that does.

    Returns:
        f64[N], the probability that a batch has the node among its inputs.

    Raises:
        InputError: the counts do not fit the graph or the fanouts.
    """
    if layer_visits.shape != (len(fanouts), topology.num_nodes) or visits.shape != (topology.num_nodes,):
        problem = f"visits {list(visits.shape)} and layer_visits {list(layer_visits.shape)} for {len(fanouts)} fanouts"
        raise InputError(problem, f"count layers on this graph of {topology.num_nodes} nodes")
    rates, total = np.zeros(topology.num_nodes), num_batches * rounds
    rates[as_ids(train_ids, "train_ids")] = 1 / num_batches
    model = model or ReachModel(topology, reciprocity(topology, seed), threads)
    seated = layer_visits[-1].astype(np.int64)
    for below, fanout in zip([*layer_visits[-2::-1], visits], fanouts, strict=True):
        drawn = posterior(below - seated, total - seated, model.step(rates, fanout))
        rates += (1 - rates) * drawn
        seated = below.astype(np.int64)
    return rates


def _bins(model: Array) -> Array:
    """Returns i64[n], the bin of each value: bins of nearly equal size by ascending value; equal values share one."""
    count = min(MOST_BINS, max(1, len(model) // LEAST_IN_BIN))
    ascending = np.sort(model)
    return np.searchsorted(ascending[np.arange(count) * len(model) // count], model, "right") - 1


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)
