"""The rankings of every hotness policy, and the caches that they would fill, measured on training epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from assets.graph.read import Graph
from assets.hotness.config import HotnessConfig, Policy
from assets.hotness.epochs import Counted
from kernels.hotness.bayes import visit_rates
from kernels.hotness.push import reverse_pagerank
from kernels.hotness.ranking import cache_sizes, hit_ratios, random_ranking, rank
from kernels.hotness.visits import VisitCounter
from kernels.types import Array

if TYPE_CHECKING:
    from assets.storage.writer import Writer

RATIOS = (0.01, 0.05, 0.1, 0.2)
"""Cache ratios whose hit ratios are in the summary."""

CURVE = tuple(step / 50 for step in range(51))
"""Cache ratios of the figure."""


class Rankings:
    """Scores and orders by policy.

    Args:
        graph, config: graph and configuration of the stage.
        presampled, evaluated: the epochs that were counted, None where none were.
        threads: number of native threads.
    """

    def __init__(
        self, graph: Graph, config: HotnessConfig, presampled: Counted | None, evaluated: Counted | None, threads: int
    ):
        self.graph, self.config, self.threads = graph, config, threads
        self.presampled, self.evaluated = presampled, evaluated

    @property
    def counter(self) -> VisitCounter | None:
        """What presampling counted."""
        return self.presampled.counter if self.presampled else None

    def visits(self, policy: Policy) -> Array | None:
        """u32[N]: the counts that belong to a policy's ranking: the evaluated epochs' for the oracle, else the presampled ones."""
        counted = self.evaluated if policy == "optimal" else self.presampled
        return counted.visits if counted else None

    def score(self, policy: Policy) -> Array | None:
        """What a policy ranks by: u32[N] counts or f64[N]; None for a random order."""
        if policy == "random":
            return None
        if policy == "degree":
            return np.asarray(self.graph.topology.out_degree, np.float64)
        if policy == "pagerank":
            return reverse_pagerank(self.graph.topology, np.asarray(self.graph.train_ids), threads=self.threads)
        return self._blended() if policy == "bayes" else self.visits(policy)

    def _blended(self) -> Array:
        """f64[N]: visits a batch; where neighbours are not drawn uniformly the model says nothing, and counts stand alone."""
        sampling, counted = self.config.sampling, self.presampled
        assert sampling is not None and counted is not None, "bayes presamples"
        if sampling.method != "uniform":
            return counted.visits / counted.tally.num_batches
        return visit_rates(
            self.graph.topology,
            np.asarray(self.graph.train_ids),
            sampling.fanouts,
            num_batches=counted.tally.num_batches // counted.num_epochs,
            rounds=counted.num_epochs,
            visits=counted.visits,
            layer_visits=counted.counter.layer_visits,
            seed=self.config.seed,
            threads=self.threads,
        )

    def order(self, policy: Policy, score: Array | None) -> Array:
        """ids[N]: a policy's ranking from its score."""
        if score is None:
            return random_ranking(self.graph.topology.num_nodes, self.config.seed)
        return rank(score)


def evaluate(rankings: Rankings, visits: Array, writer: Writer) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns (hit ratios by policy, figures): what caches of every policy would have held of the evaluated epochs.

    Args:
        rankings: rankings of all policies.
        visits: u32[N] of the evaluated epochs.
        writer: writer of the artifact, which gets the figure.
    """
    from assets.figures import hit_ratio_curves

    num_nodes, curves, numbers = len(visits), {}, {}
    for policy in get_args(Policy):
        order = rankings.order(policy, rankings.score(policy))
        curves[policy] = hit_ratios(order, visits, cache_sizes(CURVE, num_nodes))
        for ratio, hit in zip(RATIOS, hit_ratios(order, visits, cache_sizes(RATIOS, num_nodes)), strict=True):
            numbers[f"hit_ratio_{policy}_{round(100 * ratio)}_percent"] = round(float(hit), 6)
    hit_ratio_curves(writer.path("hit_ratio.png"), CURVE, curves)
    return numbers, {"hit ratio": "hit_ratio.png"}
