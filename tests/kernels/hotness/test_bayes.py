"""The blend of counts and model: right at both ends, and better than either where both say something."""

import numpy as np
import pytest

from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.graph.generate import sbm_edges
from graphmill.kernels.hotness.bayes import posterior, visit_rates
from graphmill.kernels.hotness.presample import count_batches
from graphmill.kernels.hotness.ranking import hit_ratios, rank
from graphmill.kernels.hotness.visits import VisitCounter
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Stream, Topology


def test_without_a_model_counts_stand_and_without_trials_nothing():
    drawn, trials = np.array([3, 0, 5, 0]), np.array([10, 10, 5, 0])
    assert posterior(drawn, trials, np.zeros(4)).tolist() == [0.3, 0.0, 1.0, 0.0]
    assert posterior(drawn[:0], trials[:0], np.zeros(0)).tolist() == []


def test_a_right_model_is_believed_and_calibrated():
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.001, 0.2, 50_000)
    trials = np.full(50_000, 20)
    drawn = rng.binomial(trials, rates)
    result = posterior(drawn, trials, rates / 2)  # a factor is found out
    ours, plain = (np.median(np.abs(each / rates - 1)) for each in (result, drawn / trials))
    assert ours < 0.03 and plain > 0.2


def test_a_wrong_model_gives_way_to_counts_as_they_grow():
    rng = np.random.default_rng(0)
    rates, guess = rng.uniform(0.05, 0.5, 20_000), rng.uniform(0.05, 0.5, 20_000)

    def error(trials):
        drawn = rng.binomial(trials, rates)
        counts = np.full(20_000, trials)
        mixed = posterior(drawn, counts, guess)
        return np.sqrt(((mixed - rates) ** 2).mean()), np.sqrt(((drawn / trials - rates) ** 2).mean())

    assert error(5)[0] < 0.75 * error(5)[1]
    mixed, plain = error(2000)
    assert mixed < 1.02 * plain


def test_equal_nodes_get_equal_rates():
    result = posterior(np.full(3000, 2), np.full(3000, 9), np.repeat([0.1, 0.2, 0.3], 1000))
    assert len(set(result.tolist())) <= 3


def sampled(rounds, stream):
    src, dst = sbm_edges(6000, 30_000, 10, 0.8, seed=1)
    csc = build_csc(src, dst, 6000, undirected=True, duplicates="merge", self_loops="drop")
    graph = Topology(indptr=csc.indptr, indices=csc.indices, in_degree=csc.in_degree, out_degree=csc.out_degree)
    plan = EpochPlan(np.arange(0, 6000, 20), 12, seed=1, stream=stream)
    counter = VisitCounter(6000, 2, "visits")
    for epoch in range(rounds):
        count_batches([Sampler(graph, (5, 5), seed=1)], plan.batches(epoch), counter)
    return graph, plan, counter


@pytest.mark.parametrize("rounds", [1, 2])
def test_it_beats_plain_counts(rounds):
    graph, plan, counter = sampled(rounds, Stream.PRESAMPLE)
    arguments = {"num_batches": plan.num_batches, "rounds": rounds, "visits": counter.visits,
                 "layer_visits": counter.layer_visits, "seed": 1}  # fmt: skip
    score = visit_rates(graph, plan.train_ids, (5, 5), **arguments)
    assert score.tobytes() == visit_rates(graph, plan.train_ids, (5, 5), threads=8, **arguments).tobytes()
    assert ((score >= 0) & (score <= 1)).all()
    later = sampled(20, Stream.TRAIN)[2].visits
    sizes = np.array([60, 300, 600, 1200])
    best, plain, ours = (hit_ratios(rank(each), later, sizes) for each in (later, counter.visits, score))
    assert (ours / best > 0.95).all() and (ours > plain + 0.01 * best).all()


def test_counts_of_another_shape_are_refused():
    graph, plan, counter = sampled(1, Stream.PRESAMPLE)
    arguments = {
        "num_batches": 25,
        "rounds": 1,
        "visits": counter.visits,
        "layer_visits": counter.layer_visits,
        "seed": 1,
    }
    with pytest.raises(InputError, match="3 fanouts"):
        visit_rates(graph, plan.train_ids, (5, 5, 5), **arguments)
    with pytest.raises(InputError, match="this graph of 6000"):
        visit_rates(graph, plan.train_ids, (5, 5), **arguments | {"visits": counter.visits[:-1]})
