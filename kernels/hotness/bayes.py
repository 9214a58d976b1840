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
Cost: a push over the edges and a sort of the nodes for each layer, next to counting layers while presampling. Memory: 16 bytes per node
for rates and sorted reaches, and those of the model (16 of `ReachModel`), read and written in order: they may be mapped files. All else is
computed for ranges of nodes (kernels/ranges.py), twice if it is needed twice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphmill.kernels.arrays import as_ids
from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.reach import ReachModel, reciprocity
from graphmill.kernels.hotness.sorted_runs import order_statistics
from graphmill.kernels.ranges import Allocate, node_ranges
from graphmill.kernels.types import Array, Topology

MOST_BINS = 200
LEAST_IN_BIN = 500  # nodes per bin if there are fewer than 100,000 altogether


class Reach(Protocol):
    """A model of a sampler: `ReachModel`, `WeightedReach` or `WalkReach`."""

    def step(self, rates: Array, fanout: int) -> Array:
        """Returns the reach f64[N] of the next layer; see `ReachModel.step`."""
        ...


Parts = Callable[[], Iterator[tuple[Array, Array, Array]]]
"""Function that goes through ranges of nodes anew: (drawn, trials, reach) of each, as `posterior` takes them."""


def posterior(drawn: Array, trials: Array, reach: Array) -> Array:
    """Returns f64[N]: the probability that a batch draws the node, from counts and a model.

    Args:
        drawn: [N] integers, number of batches that drew each node.
        trials: [N] integers, number of batches that could have drawn it.
        reach: f64[N] in [0, 1], the probability that the model gives.
    """
    return calibrate(lambda: iter([(drawn, trials, reach)]), np.zeros(len(reach))).posterior(drawn, trials, reach)


@dataclass(frozen=True)
class Calibration:
    """A model that was compared with counts, bin by bin."""

    # The least reach of each bin, f64[b]; empty if no node that the model reaches was counted.
    edges: Array
    # Counts that the model expects of a bin to those that it has, f64[b].
    ratio: Array
    # Phi of the formulas above, f64[b].
    error: Array

    def posterior(self, drawn: Array, trials: Array, reach: Array) -> Array:
        """Returns f64[n] of some of the nodes that were compared; arguments as of the function `posterior`."""
        result = np.divide(drawn, trials, out=np.zeros(len(drawn)), where=trials > 0)
        known = _known(trials, reach)
        count, trial, bins, mean, noise = self.compare(drawn[known], trials[known], reach[known])
        error = self.error[bins] * mean * mean
        trust = np.divide(error, error + noise, out=np.ones(len(mean)), where=error + noise > 0)
        result[known] = (mean + trust * (count - mean)) / trial
        return result

    def compare(self, drawn: Array, trials: Array, reach: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Returns (counts, trials, bins, m, m (1 - m / n)) of nodes that the model knows."""
        count, trial, bins = drawn.astype(np.float64), trials.astype(np.float64), _bins(self.edges, reach)
        mean = np.minimum(trial * reach * self.ratio[bins], trial)
        return count, trial, bins, mean, mean * (1 - mean / trial)


def calibrate(parts: Parts, reaches: Array) -> Calibration:
    """Compares a model with counts; the result does not depend on how nodes are cut into parts.

    Args:
        parts: function that goes through the parts, which is called three times.
        reaches: f64[N] to write the sorted reaches of each part to.
    """
    edges = _edges(parts, reaches)
    sums = np.zeros((2, len(edges)))
    for drawn, trials, reach in parts():
        known = _known(trials, reach)
        count, trial, model = drawn[known].astype(np.float64), trials[known].astype(np.float64), reach[known]
        bins = _bins(edges, model)
        _add(sums, bins, count, trial * model)
    middle = Calibration(edges, _ratio(*sums), sums[0])
    sums = np.zeros((2, len(edges)))
    for drawn, trials, reach in parts():
        known = _known(trials, reach)
        count, _, bins, mean, noise = middle.compare(drawn[known], trials[known], reach[known])
        _add(sums, bins, (count - mean) ** 2 - noise, mean * mean)
    return Calibration(edges, middle.ratio, np.maximum(_ratio(*sums), 0))


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
    allocate: Allocate = np.zeros,
) -> Array:
    """Estimates how often batches ask for each node.

    Args:
        train_ids: ids[n], the seeds of an epoch.
        fanouts: fanouts of the sampler, from the seeds outwards.
        visits, layer_visits: u32[N] and u32[L, N], the counts of presampling.
        seed: seed that decides which edges are probed for a reverse.
        model: the reach of a sampler that does not draw uniformly without replacement; None for one that does.

    Returns:
        f64[N], the probability that a batch has the node among its inputs.
    """
    if layer_visits.shape != (len(fanouts), topology.num_nodes) or visits.shape != (topology.num_nodes,):
        problem = f"visits {list(visits.shape)} and layer_visits {list(layer_visits.shape)} for {len(fanouts)} fanouts"
        raise InputError(problem, f"count layers on this graph of {topology.num_nodes} nodes")
    rates, total = allocate(topology.num_nodes, np.float64), num_batches * rounds
    rates[as_ids(train_ids, "train_ids")] = 1 / num_batches
    model = model or ReachModel(topology, reciprocity(topology, seed), threads, allocate=allocate)
    seated, reaches = layer_visits[-1], allocate(topology.num_nodes, np.float64)
    for below, fanout in zip([*layer_visits[-2::-1], visits], fanouts, strict=True):
        _blend(rates, model.step(rates, fanout), (seated, below, total), reaches)
        seated = below
    return rates


def _blend(rates: Array, reach: Array, counts: tuple[Array, Array, int], reaches: Array) -> None:
    """Adds to the rates what a layer draws: counts are (batches that had the node above, and in this layer as well; all batches)."""
    seated, below, total = counts

    def part(low: int, high: int) -> tuple[Array, Array, Array]:
        before = seated[low:high].astype(np.int64)
        return below[low:high] - before, total - before, np.asarray(reach[low:high])

    calibration = calibrate(lambda: (part(*nodes) for nodes in node_ranges(len(rates))), reaches)
    for low, high in node_ranges(len(rates)):
        rates[low:high] += (1 - rates[low:high]) * calibration.posterior(*part(low, high))


def _known(trials: Array, reach: Array) -> Array:
    return (reach > 0) & (trials > 0)


def _edges(parts: Parts, reaches: Array) -> Array:
    """Returns f64[b], where bins of nearly equal size begin by ascending value, equal values in one; empty if no node is known."""
    runs, first = [], 0
    for _, trials, reach in parts():
        found = reach[_known(trials, reach)]
        run = reaches[first : first + len(found)]
        run[:] = np.sort(found)
        # Numbers above 0 are in the order of their bits.
        runs, first = [*runs, run.view(np.uint64)], first + len(found)
    count = min(MOST_BINS, max(1, first // LEAST_IN_BIN)) if first else 0
    return order_statistics(runs, np.arange(count) * first // max(1, count)).view(np.float64)


def _bins(edges: Array, reach: Array) -> Array:
    """Returns i64[n], the bin of each value."""
    return np.searchsorted(edges, reach, "right") - 1


def _add(sums: Array, bins: Array, *values: Array) -> None:
    """Adds values to the sums f64[2, b] of their bins, one after the other: the same bits everywhere and for any parts."""
    for row, added in zip(sums, values, strict=True):
        places = np.concatenate([np.arange(len(row)), bins])
        row[:] = np.bincount(places, np.concatenate([row, added]), len(row)) if len(row) else row


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)
