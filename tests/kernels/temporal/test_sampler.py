"""Blocks as of a time equal their reference to the byte, and a search through the list of edges; none has a later edge than its seed."""

import threading
from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.blocks.transpose import transpose_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.temporal.sampler import TemporalSampler, temporal_reference
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import assert_same_blocks
from tests.kernels.sampling.chi_square import assert_fits
from tests.kernels.temporal.graphs import random_edges, timed_graphs, timed_topology

pytestmark = pytest.mark.smoke
KEY = BatchKey(0, 1, 2)
WINDOWS = st.sampled_from([np.inf, 1.0, 2.5, 4.0])


@st.composite
def cases(draw):
    """A graph, fan-outs that fit it, a window, seeds with their times, and how edges are chosen."""
    graph = draw(timed_graphs())
    number = st.sampled_from([-1, 1, 2, 3, 7])
    entry = number if graph.edge_types is None else st.one_of(number, st.tuples(*[st.sampled_from([-1, 0, 1, 4])] * 3))
    pair = st.tuples(st.integers(0, graph.num_nodes - 1), st.sampled_from([-1.0, 0.0, 3.0, 3.5, 7.0, 20.0]))
    pairs = draw(st.lists(pair, unique=True, max_size=8))
    choose = draw(st.sampled_from(["uniform", "recent"]))
    how = {"choose": choose, "replace": choose == "uniform" and draw(st.booleans()), "window": draw(WINDOWS)}
    seeds = np.array([v for v, _ in pairs], graph.indices.dtype)
    return graph, draw(st.lists(entry, min_size=1, max_size=3)), seeds, np.array([t for _, t in pairs], float), how


@given(cases())
def test_blocks_equal_the_reference(case):
    graph, fanouts, seeds, times, how = case
    sampler = TemporalSampler(graph, fanouts, seed=5, **how)
    for step in range(2):  # the second batch meets the map that the first one left
        batch = BatchKey(0, 3, step)
        found = sampler.timed(batch, seeds, times, transpose="all")
        expected = temporal_reference(graph, fanouts, batch, seeds, times, seed=5, **how)
        assert_same_blocks(found.blocks, expected.blocks)
        assert found.times.tobytes() == expected.times.tobytes()
        for block in found.blocks:
            turned = (block.t_start, block.t_edge, block.t_dst)
            for mine, wanted in zip(turned, transpose_reference(block), strict=True):
                assert mine is not None and mine.tobytes() == wanted.tobytes()


def seen_by(edges, v, time, window):
    """The numbers of the edges that a node sees as of a time, found in the list of edges."""
    _, _, target, times = edges
    return [e for e in range(len(target)) if target[e] == v and time - window <= times[e] < time]


def test_sampled_sets_are_those_of_a_search_through_all_edges():
    """On 1,000 drawn graphs: the edges of every row are as many as may be, among those that the list of edges has, and the latest."""
    for seed in range(1000):
        generator, edges = np.random.default_rng(seed), random_edges(seed)
        num_nodes, source, _, times = edges
        seeds = generator.integers(0, num_nodes, 4)
        seed_times = generator.integers(0, 12, 4) + generator.permutation(4) / 8  # no pair twice
        window = float(generator.choice([np.inf, 2, 5]))
        choose, fanout = ("uniform", "recent")[seed % 2], int(generator.choice([-1, 1, 2, 4]))
        graph = timed_topology(*edges)
        sampler = TemporalSampler(graph, [fanout, -1], seed=seed, window=window, choose=choose)
        found = sampler.timed(KEY, seeds, seed_times, edge_ids=True)
        for block, most in zip(reversed(found.blocks), (fanout, -1), strict=True):
            for i in range(block.num_dst):
                allowed = seen_by(edges, block.src_ids[i], found.times[i], window)
                taken = block.edge_id[block.start[i] : block.end[i]].tolist()
                assert len(taken) == (len(allowed) if most < 0 else min(most, len(allowed)))
                assert set(taken) <= set(allowed) and len(set(taken)) == len(taken)
                if choose == "recent":
                    latest = sorted(times[allowed])[len(allowed) - len(taken) :]
                    assert times[taken].tolist() == latest
                pairs = block.indices[block.start[i] : block.end[i]]
                assert block.src_ids[pairs].tolist() == source[taken].tolist()
                assert (found.times[pairs] == found.times[i]).all()


@given(cases())
def test_blocks_are_sound(case):
    graph, fanouts, seeds, times, how = case
    found = TemporalSampler(graph, fanouts, seed=1, **how).timed(KEY, seeds, times)
    assert found.blocks[-1].dst_ids.tolist() == seeds.tolist()
    for below, above in pairwise(found.blocks):
        assert below.dst_ids.tolist() == above.src_ids.tolist()
    pairs = [*zip(found.blocks[0].src_ids.tolist(), found.times.tolist(), strict=True)]
    assert len(set(pairs)) == len(pairs) == found.blocks[0].num_src
    assert set(found.times.tolist()) <= set(times.tolist())


@given(cases())
def test_a_time_after_all_edges_gives_the_blocks_of_a_graph_without_times(case):
    graph, fanouts, seeds, _, how = case
    if how["choose"] == "recent" or graph.edge_types is not None:
        how, graph = {**how, "choose": "uniform"}, replace(graph, edge_types=None)
        fanouts = [fanout if isinstance(fanout, int) else 2 for fanout in fanouts]
    seeds = np.unique(seeds)
    how = {**how, "window": np.inf}
    timed = TemporalSampler(graph, fanouts, seed=3, times=np.full(graph.num_nodes, 99.0), **how)
    plain = Sampler(graph, fanouts, seed=3, replace=how["replace"])
    assert_same_blocks(timed.sample(KEY, seeds), plain.sample(KEY, seeds))


@given(cases(), st.sampled_from([0.0, 3.0, 5.0]))
def test_a_bound_gives_the_blocks_of_the_graph_without_later_edges(case, time):
    graph, fanouts, seeds, _, how = case
    seeds = np.unique(seeds)
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    kept = (graph.edge_times < time) & (graph.edge_times >= time - how["window"])
    relation = None if graph.edge_types is None else graph.edge_types[kept]
    ends = graph.indices[kept], target[kept], graph.edge_times[kept]
    left = timed_topology(graph.num_nodes, *ends, relation, graph.indices.dtype)
    found = [
        TemporalSampler(each, fanouts, seed=3, **how).timed(KEY, seeds, np.full(len(seeds), time))
        for each in (graph, left)
    ]
    assert_same_blocks(found[0].blocks, found[1].blocks)


def star(times):
    """A node 0 with an edge from each other node, node i + 1 at times[i]."""
    leaves = np.arange(1, len(times) + 1)
    return timed_topology(len(times) + 1, leaves, np.zeros_like(leaves), np.asarray(times, float))


@pytest.mark.parametrize("replace_", [False, True])
def test_every_set_of_admissible_edges_is_equally_likely(replace_):
    graph = star(range(12))  # as of 9.5 with a window of 6: the edges of 4 to 9, of the nodes 5 to 10
    sampler = TemporalSampler(graph, [2], seed=11, window=6.0, replace=replace_)
    taken = Counter()
    for step in range(6000):
        (block,), _ = sampler.timed(BatchKey(0, 0, step), [0], [9.5])
        taken[tuple(sorted(block.src_ids[block.indices].tolist()))] += 1
    admissible = range(5, 11)
    sets = [*combinations(admissible, 2), *([(v, v) for v in admissible] if replace_ else [])]
    assert set(taken) <= set(sets)
    weights = np.array([1 if v == w else 2 for v, w in sets]) / 36 if replace_ else np.full(len(sets), 1 / len(sets))
    assert_fits([taken[each] for each in sets], weights)


def test_each_seed_of_a_batch_draws_uniformly_from_its_own_past():
    graph, counts = star(range(10)), np.zeros((2, 11), int)
    sampler = TemporalSampler(graph, [1], seed=2)
    for step in range(4000):
        (block,), times = sampler.timed(BatchKey(0, 0, step), [0, 0], [4.0, 8.0])
        counts[[0, 1], block.src_ids[block.indices]] += 1
        assert times[block.indices].tolist() == [4.0, 8.0]
    assert not counts[0, 5:].any() and not counts[1, 9:].any()
    assert_fits(counts[0, 1:5], np.full(4, 1 / 4))
    assert_fits(counts[1, 1:9], np.full(8, 1 / 8))


def test_recent_takes_the_latest_of_all_relations_and_the_last_of_equal_times():
    source, relation = np.array([1, 2, 3, 4, 5, 6]), np.array([0, 0, 0, 1, 1, 1])
    graph = timed_topology(7, source, np.zeros(6, int), np.array([1.0, 5, 5, 2, 5, 7]), relation)
    for fanout, wanted in ((1, [5]), (2, [3, 5]), (3, [2, 3, 5]), (4, [2, 3, 4, 5]), (9, [1, 2, 3, 4, 5])):
        (block,), _ = TemporalSampler(graph, [fanout], seed=0, choose="recent").timed(KEY, [0], [7.0])
        assert block.src_ids[block.indices].tolist() == wanted


def test_pairs_of_equal_node_and_time_are_one_source():
    graph = timed_topology(4, [2, 2, 3, 3], [0, 1, 2, 2], [1.0, 1.0, 0.0, 2.0])
    together = TemporalSampler(graph, [-1, -1], seed=0).timed(KEY, [0, 1], [3.0, 3.0])
    assert together.blocks[0].src_ids.tolist() == [0, 1, 2, 3]
    apart = TemporalSampler(graph, [-1, -1], seed=0).timed(KEY, [0, 1], [3.0, 2.0])
    assert apart.blocks[0].src_ids.tolist() == [0, 1, 2, 2, 3, 3]
    assert apart.times.tolist() == [3, 2, 3, 2, 3, 2]
    assert apart.blocks[0].end.tolist() == [1, 2, 4, 5]  # as of 2 node 2 has one edge, as of 3 two


@given(cases(), st.data())
def test_pairs_of_two_batches_meet_only_below_seeds_of_one_time(case, data):
    """So rows that are kept by pair are read again at seeds of the same time alone, and rows that are kept by node were of another time."""
    graph, fanouts, seeds, times, how = case
    cut = data.draw(st.integers(0, len(seeds)))
    sampler = TemporalSampler(graph, fanouts, seed=1, **how)
    parts = [
        sampler.timed(BatchKey(0, 0, step), seeds[own], times[own])
        for step, own in enumerate((slice(cut), slice(cut, None)))
    ]
    first, second = ({*zip(each.blocks[0].src_ids.tolist(), each.times.tolist(), strict=True)} for each in parts)
    assert {time for _, time in first & second} <= {*times[:cut]} & {*times[cut:]}


def test_many_pairs_outgrow_the_map_and_many_edges_a_tile():
    generator = np.random.default_rng(0)
    source, target = generator.integers(0, 3000, 60_000), (3000 * generator.random(60_000) ** 3).astype(np.int64)
    graph = timed_topology(3000, source, target, generator.random(60_000))
    seeds, times = np.arange(0, 3000, 7), generator.random(429)
    found = TemporalSampler(graph, [15, 10], seed=4).timed(KEY, seeds, times)
    expected = temporal_reference(graph, [15, 10], KEY, seeds, times, seed=4)
    assert_same_blocks(found.blocks, expected.blocks)
    assert found.blocks[0].num_src > 5000


def far_apart(generator, count):
    """Times of one run: even, equal, crowded at either end, in clusters, or at the ends of float64."""
    even = generator.random(count)
    kinds = (
        even,
        np.full(count, 0.5),
        even**40,
        1 - even**40,
        np.repeat(even[: count // 7 + 1], 7)[:count],
        10.0 ** generator.integers(-300, 300, count),
        generator.choice([-1.7e308, -1.0, 0.0, 1.7e308], count),
    )
    return np.sort(kinds[generator.integers(len(kinds))])


def test_bounds_are_found_in_rows_of_any_length_and_spread():
    """Each row has as many edges between the bounds as a search of the sorted times says."""
    generator = np.random.default_rng(3)
    lengths = np.concatenate([np.arange(1, 40), generator.integers(40, 3000, 90)])
    rows = [far_apart(generator, int(length)) for length in lengths]
    target = np.repeat(np.arange(len(rows)), lengths)
    graph = timed_topology(len(rows), np.zeros_like(target), target, np.concatenate(rows))
    for trial in range(30):
        window = float(generator.choice([np.inf, 0.05, 1e-3, 1e300]))
        bounds = np.array(
            [generator.choice([generator.choice(row), row[-1] + 1, row[0], generator.random()]) for row in rows]
        )
        (block,), _ = TemporalSampler(graph, [-1], seed=trial, window=window).timed(
            KEY, np.arange(len(rows)), bounds, edge_ids=True
        )
        for i, (row, bound) in enumerate(zip(rows, bounds, strict=True)):
            low, high = np.searchsorted(row, [bound - window, bound])
            first = graph.indptr[i]
            taken = block.edge_id[block.start[i] : block.end[i]]
            assert taken.tolist() == graph.edge_ids[first + low : first + max(low, high)].tolist()


def test_a_batch_without_seeds_has_empty_blocks():
    found = TemporalSampler(star([1]), [2, 2], seed=0).timed(KEY, [], [])
    assert [block.num_src for block in found.blocks] == [0, 0] and len(found.times) == 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"window": 0.0}, "window = 0.0 has no time in it"),
        ({"window": float("nan")}, "window = nan has no time in it"),
        ({"choose": "oldest"}, "choose = 'oldest'"),
        ({"choose": "recent", "replace": True}, "takes the latest edges several times"),
        ({"times": np.zeros(2)}, "has 3 nodes"),
        ({"edge_times": None}, "have no times"),
        ({"edge_times": np.zeros(1)}, "the graph has 2 edges"),
    ],
)
def test_a_sampler_refuses_what_it_cannot_sample(change, problem):
    graph, given_ = star([1, 2]), dict(change)
    if "edge_times" in given_:
        graph = replace(graph, edge_times=given_.pop("edge_times"))
    with pytest.raises(InputError, match=problem):
        TemporalSampler(graph, [1], seed=0, **given_)


@pytest.mark.parametrize(
    ("seeds", "times", "problem"),
    [
        ([0, 1], [1.0], "2 seeds and times"),
        ([0], [float("nan")], "seed 0 has the time nan"),
        ([7], [1.0], "seed 7 at position 0 is not a node"),
        ([1, 0, 1], [1.0, 1.0, 1.0], "seed 1 stands at positions 0 and 2 with one time"),
    ],
)
def test_a_batch_is_refused_before_any_work(seeds, times, problem):
    with pytest.raises(InputError, match=problem):
        TemporalSampler(star([1, 2]), [1], seed=0).timed(KEY, seeds, times)


def test_seeds_without_times_are_told():
    with pytest.raises(InputError, match="the seeds have no times"):
        TemporalSampler(star([1, 2]), [1], seed=0).sample(KEY, [0])


def test_two_threads_do_not_share_a_sampler():
    generator = np.random.default_rng(1)
    graph = timed_topology(2000, *generator.integers(0, 2000, (2, 200_000)), generator.random(200_000))
    sampler, seeds, problems = TemporalSampler(graph, [20, 20], seed=0), np.arange(1000), []

    def work():
        for _ in range(20):
            try:
                sampler.timed(KEY, seeds, np.ones(1000))
            except InputError as error:
                problems.append(error.problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert set(problems) == {"two threads use one Sampler at the same time"}
    assert sampler.scratch_bytes > 0
