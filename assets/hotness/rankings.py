"""The rankings of every hotness policy, and their caches, measured on training epochs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from graphmill.assets.graph.read import Graph
from graphmill.assets.hotness.config import HotnessConfig, Policy
from graphmill.assets.hotness.epochs import Counted
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.storage.files.arrays import expect_random_reads, mapped_apart
from graphmill.assets.storage.local.writer import Writer
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.kernels.hotness.bayes import Reach, visit_rates
from graphmill.kernels.hotness.push import Passes, reverse_pagerank
from graphmill.kernels.hotness.ranking import (
    cache_sizes,
    expected_hit_ratios,
    held_out_hit_ratios,
    hit_ratios,
    random_ranking,
    rank,
)
from graphmill.kernels.hotness.reach import ReachModel, reciprocity
from graphmill.kernels.hotness.visits import VisitCounter
from graphmill.kernels.hotness.walk_reach import WalkReach
from graphmill.kernels.hotness.weighted_reach import WeightedReach
from graphmill.kernels.ranges import Allocate, node_ranges
from graphmill.kernels.types import Array, Topology

RATIOS = (0.01, 0.05, 0.1, 0.2)
"""Cache ratios whose hit ratios are in the summary."""
CURVE = tuple(step / 50 for step in range(51))
"""Cache ratios of the figure."""


class Rankings:
    """Scores and orders by policy.

    Args:
        passes: passes over the rows of the graph, None to read them where they are mapped.
        sums_at_once: nodes whose sums may exist at one time, if they are more than usual (kernels/ranges.py).
    """

    def __init__(
        self,
        graph: Graph,
        config: HotnessConfig,
        drawing: Drawing | None,
        presampled: Counted | None,
        evaluated: Counted | None,
        *,
        threads: int,
        allocate: Allocate,
        passes: Passes | None = None,
        sums_at_once: int = 0,
    ):
        self.graph, self.config, self.drawing, self.threads = graph, config, drawing, threads
        self.allocate, self._in_order = allocate, passes is not None
        self.means: dict[str, Any] = {"threads": threads, "allocate": allocate}
        self.means |= {"sums_at_once": sums_at_once, "passes": passes}
        self.presampled, self.evaluated = presampled, evaluated

    @property
    def counter(self) -> VisitCounter | None:
        """The counts of presampling, None without it."""
        return self.presampled.counter if self.presampled else None

    def visits(self, policy: Policy) -> Array | None:
        """u32[N]: the counts that belong to a policy's ranking: the evaluated epochs' for the oracle, else the presampled ones."""
        counted = self.evaluated if policy == "optimal" else self.presampled
        return counted.visits if counted else None

    def score(self, policy: Policy) -> Array | None:
        """The score that a policy ranks by: u32[N] counts or f64[N]; None for a random order."""
        if policy == "random":
            return None
        if policy == "degree":
            return self._scaled(self.graph.topology.out_degree, 1)
        if policy == "pagerank":
            return reverse_pagerank(self.graph.topology, self.graph.trained_nodes, **self.means)
        return self._blended() if policy == "bayes" else self.visits(policy)

    def _blended(self) -> Array:
        """f64[N]: visits per batch; the counts alone if no model covers the sampler."""
        sampling, counted = self.config.sampling, self.presampled
        assert sampling is not None and counted is not None, "bayes presamples"
        if not self.blends:
            return self._scaled(counted.visits, counted.tally.num_batches)
        return visit_rates(
            self.graph.topology,
            np.asarray(self.graph.train_ids),
            sampling.numbers,
            num_batches=counted.tally.num_batches // counted.num_epochs,
            rounds=counted.num_epochs,
            visits=counted.visits,
            layer_visits=counted.counter.layer_visits,
            seed=self.config.seed,
            threads=self.threads,
            model=self._model(),
            allocate=self.allocate,
        )

    def _scaled(self, counts: Array, unit: int) -> Array:
        """f64[N]: counts in units of a number."""
        score = self.allocate(len(counts), np.float64)
        for low, high in node_ranges(len(counts)):
            score[low:high] = counts[low:high] / unit
        return score

    @property
    def blends(self) -> bool:
        """Whether a model of the sampler exists: none of a user's function, of fan-outs per relation, and of links."""
        how = self.drawing.neighbours if self.drawing else None
        drawn = how is not None and not is_reference(how.method) and not how.by_relation
        return drawn and self.graph.links is None

    def _model(self) -> Reach:
        assert self.drawing is not None
        topology, how = self.graph.topology, self.drawing.neighbours
        back, means = reciprocity(self._probed(), self.config.seed), self.means
        if self.drawing.tables is not None:
            return WeightedReach(topology, self.drawing.tables, back, replace=how.replace, **means)
        if how.method == "random_walk":
            return WalkReach(topology, self.drawing.walks(), back, **means)
        return ReachModel(topology, back, replace=how.replace, **means)

    def _probed(self) -> Topology:
        """Returns the topology for probes at random, of which the system reads no more than their pages if it exceeds the memory."""
        topology = self.graph.topology
        if not self._in_order:
            return topology
        apart = {name: mapped_apart(getattr(topology, name)) for name in ("indptr", "indices")}
        for array in apart.values():
            expect_random_reads(array)
        return replace(topology, **apart)

    def order(self, policy: Policy, score: Array | None, out: Array | None = None) -> Array:
        """ids[N]: a policy's ranking from its score, in `out` if it is given."""
        if score is None:
            return random_ranking(self.graph.topology.num_nodes, self.config.seed, self.allocate, out)
        return rank(score, self.allocate, out)


def evaluate(rankings: Rankings, visits: Array, writer: Writer) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns (hit ratios by policy, figures): the hits of every policy's caches in the visits u32[N] of the evaluated epochs."""
    num_nodes, curves, numbers = len(visits), {}, {}
    for policy in get_args(Policy):
        order = rankings.order(policy, rankings.score(policy))
        curves[policy] = hit_ratios(order, visits, cache_sizes(CURVE, num_nodes))
        for ratio, hit in zip(RATIOS, hit_ratios(order, visits, cache_sizes(RATIOS, num_nodes)), strict=True):
            numbers[f"hit_ratio_{policy}_{round(100 * ratio)}_percent"] = round(float(hit), 6)
    epochs = rankings.config.hotness.evaluate_epochs
    return numbers, _draw(rankings, curves, f"measured on the batches of {epochs:,} training epochs", writer)


def expect(
    rankings: Rankings, order: Array, score: Array | None, writer: Writer
) -> tuple[dict[str, float], dict[str, str]]:
    """Returns (expected hit ratios of the chosen policy, figures), estimated from the trial batches alone.

    No batch is sampled for this. If `bayes` estimated how often a batch asks for each node, a hit ratio is a sum of these rates; else each
    trial batch is tested on a cache that was filled by the counts of the others (kernels/hotness/ranking.py).

    Args:
        rankings: rankings of policies that counted trial batches.
        order, score: ids[N] and score of the chosen policy.
    """
    counted, table = rankings.presampled, rankings.config.hotness
    assert counted is not None and rankings.config.sampling is not None, "trial batches were counted"
    visits, num_batches = counted.visits, counted.tally.num_batches
    blended = table.policy == "bayes" and rankings.blends
    sizes = cache_sizes((*CURVE, *RATIOS), len(visits))

    def ratios(policy: Policy) -> Array:
        if policy == "presample" or (policy == "bayes" and not blended):
            return held_out_hit_ratios(visits, num_batches, sizes)
        # One ranking at a time: each takes memory.
        ranked = order if policy == table.policy else rankings.order(policy, rankings.score(policy))
        if blended and score is not None:
            return expected_hit_ratios(ranked, score, sizes)
        return hit_ratios(ranked, visits, sizes)

    names: tuple[Policy, ...] = (table.policy, "presample", "degree", "random")
    found = {policy: ratios(policy) for policy in dict.fromkeys(names)}
    numbers = {
        f"expected_hit_ratio_{round(100 * ratio)}_percent": round(float(hit), 6)
        for ratio, hit in zip(RATIOS, found[table.policy][len(CURVE) :], strict=True)
    }
    curves = {policy: hits[: len(CURVE)] for policy, hits in found.items()}
    return numbers, _draw(rankings, curves, "expected, from the counts of trial batches", writer)


def _draw(rankings: Rankings, curves: Mapping[Any, Array], source: str, writer: Writer) -> dict[str, str]:
    from graphmill.assets.figures.visits import hit_ratio_curves

    path = writer.path("hit_ratio.png")
    hit_ratio_curves(path, CURVE, curves, chosen=rankings.config.hotness.policy, source=source)
    return {"hit ratio": path.name}
