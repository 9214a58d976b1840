"""Results are the same bytes however nodes are cut into ranges, and sorting out of core is sorting."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.kernels import _native, ranges
from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.graph.generate import rmat_edges
from graphmill.kernels.hotness.bayes import visit_rates
from graphmill.kernels.hotness.presample import count_batches
from graphmill.kernels.hotness.push import reverse_pagerank
from graphmill.kernels.hotness.ranking import (
    cache_sizes,
    expected_hit_ratios,
    held_out_hit_ratios,
    hit_ratios,
    random_ranking,
    rank,
)
from graphmill.kernels.hotness.reach import ReachModel
from graphmill.kernels.hotness.sorted_runs import cuts, order, order_reference, order_statistics
from graphmill.kernels.hotness.visits import VisitCounter
from graphmill.kernels.hotness.walk_reach import WalkReach
from graphmill.kernels.hotness.weighted_reach import WeightedReach
from graphmill.kernels.sampling.alias import build_alias
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.sampling.sample_layer import TopologyRows
from graphmill.kernels.sampling.walk import Walks
from graphmill.kernels.types import Stream, Topology

NODES, FANOUTS = 3000, (4, 3)


@pytest.fixture(scope="module")
def sampled():
    csc = build_csc(*rmat_edges(NODES, 20_000, seed=3), NODES, undirected=False, duplicates="merge", self_loops="drop")
    weights = np.random.default_rng(0).random(len(csc.indices)).astype(np.float32)
    arrays = {"indptr": csc.indptr, "indices": csc.indices, "in_degree": csc.in_degree, "out_degree": csc.out_degree}
    graph = Topology(**arrays, weights=weights)
    plan, counter = (
        EpochPlan(np.arange(0, NODES, 7), 40, seed=1, stream=Stream.PRESAMPLE),
        VisitCounter(NODES, 2, "visits"),
    )
    count_batches([Sampler(graph, FANOUTS, seed=1)], plan.batches(0), counter)
    return graph, plan, counter, build_alias(graph, weights)


def results(sampled, passes=None):
    graph, plan, counter, tables = sampled
    models = (
        ReachModel(graph, 0.2, passes=passes),
        WeightedReach(graph, tables, 0.2, passes=passes),
        WalkReach(graph, Walks(), 0.2, passes=passes),
    )
    made, sizes = [], cache_sizes([0, 0.1, 0.5, 1], NODES)
    for model in models:
        score = visit_rates(
            graph, plan.train_ids, FANOUTS, num_batches=plan.num_batches, rounds=1, visits=counter.visits,
            layer_visits=counter.layer_visits, seed=1, threads=2, model=model,
        )  # fmt: skip
        made += [score, rank(score), expected_hit_ratios(rank(score), score, sizes)]
        made += [hit_ratios(rank(score), counter.visits, sizes)]
    made += [reverse_pagerank(graph, plan.train_ids, passes=passes), rank(counter.visits), random_ranking(NODES, 4)]
    return [*made, held_out_hit_ratios(counter.visits, plan.num_batches, sizes)]


@pytest.mark.parametrize(("nodes", "sums"), [(37, 1 << 24), (97, 500), (1000, 2999), (1 << 20, 1700)])
def test_no_result_depends_on_the_ranges(sampled, nodes, sums, monkeypatch):
    whole = [each.tobytes() for each in results(sampled)]
    for name in ("NODES_AT_ONCE", "KEYS_AT_ONCE"):
        monkeypatch.setattr(ranges, name, nodes)
    monkeypatch.setattr(ranges, "SUMS_AT_ONCE", sums)
    assert [each.tobytes() for each in results(sampled)] == whole


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, NODES), max_size=9), before=st.integers(0, 3), sums=st.sampled_from([700, NODES]))
def test_no_result_depends_on_how_rows_come(sampled, cuts, before, sums):
    """In any pieces, of arrays that begin with edges of other rows and are overwritten after use, for any ranges of sums."""
    graph, _, _, tables = sampled
    bounds = sorted({0, NODES, *cuts})

    def passes():
        for low, high in pairwise(bounds):
            ends = graph.indptr[low : high + 1].copy()
            indices = np.concatenate([np.full(before, -7, np.int32), graph.indices[ends[0] : ends[-1]]])
            table = np.concatenate([np.zeros((before, 2), np.uint32), tables.table[ends[0] : ends[-1]]])
            yield TopologyRows(ends, indices, NODES, low, int(ends[0]) - before, table=table)
            ends[:], indices[:], table[:] = -1, -1, 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "SUMS_AT_ONCE", sums)
        found = [each.tobytes() for each in results(sampled, passes)]
    assert found == [each.tobytes() for each in results(sampled)]


@pytest.mark.parametrize(("at_once", "passes"), [(0, 6), (1_000, 3), (1_999, 2), (3_000, 1)])
def test_longer_ranges_of_sums_take_fewer_passes_over_the_edges(sampled, at_once, passes, monkeypatch):
    graph, plan = sampled[:2]
    monkeypatch.setattr(ranges, "SUMS_AT_ONCE", 500)
    made, began = [], []
    push = _native.push

    def counted(indptr, indices, values, sums, low, *rest):
        began.append(low)
        return push(indptr, indices, values, sums, low, *rest)

    monkeypatch.setattr(_native, "push", counted)
    rates = np.zeros(NODES)
    rates[plan.train_ids] = 0.1
    for sums_at_once in (0, at_once):
        began.clear()
        made.append(ReachModel(graph, 0.2, sums_at_once=sums_at_once).step(rates, 5).tobytes())
    assert made[0] == made[1] and len(set(began)) == passes


KEYS = st.lists(st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1), max_size=40)


@given(keys=KEYS, step=st.integers(1, 12))
def test_sorted_runs_make_the_sorted_whole(keys, step):
    values = np.array(keys, np.uint64)
    runs = [np.sort(values[low : low + step]) for low in range(0, len(values), step)]
    places = np.arange(len(values))
    assert order_statistics(runs, places).tolist() == sorted(keys)
    ends = cuts(runs, np.arange(len(values) + 1))
    assert ends.sum(axis=1).tolist() == list(range(len(values) + 1))
    for place, held in zip(places.tolist(), ends, strict=False):
        before = [key for run, count in zip(runs, held, strict=True) for key in run[:count].tolist()]
        assert sorted(before) == sorted(keys)[:place]
    found = np.full(len(values), -1, np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "KEYS_AT_ONCE", step)
        order(len(values), lambda low, high: values[low:high], found)
    assert found.tolist() == order_reference(values).tolist()
