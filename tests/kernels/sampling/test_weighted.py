"""The weighted sampler gives the blocks of its reference, to the byte, and what it draws has the probabilities of successive sampling."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.alias import AliasTables, build_alias
from graphmill.kernels.sampling.weighted import WeightedSampler, most_draws, weighted_reference
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import assert_same_blocks, random_topology, topologies, topology
from tests.kernels.sampling.chi_square import assert_fits

pytestmark = pytest.mark.usefixtures("each_map")

KEY = BatchKey(0, 1, 2)
FIELDS = ("start", "end", "indices", "src_ids", "share")
WEIGHTS = st.sampled_from([0.0, 0.0, 1.0, 2.0, 1e-9, 1e9])


@settings(deadline=None)
@given(
    topologies(),
    st.lists(st.sampled_from([-1, 1, 2, 3, 7]), min_size=1, max_size=3),
    st.booleans(),
    st.integers(1, 3),
    st.data(),
)
def test_blocks_equal_the_reference(graph, fanouts, replace, threads, data):
    weights = np.array(data.draw(st.lists(WEIGHTS, min_size=graph.num_edges, max_size=graph.num_edges)), float)
    tables = build_alias(graph, weights, empty=data.draw(st.sampled_from(["uniform", "none"])))
    seeds = np.array(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True)), graph.indices.dtype)
    sampler = WeightedSampler(graph, tables, fanouts, seed=5, replace=replace, threads=threads)
    for step in range(2):
        batch = BatchKey(0, 3, step)
        expected = weighted_reference(graph, tables, fanouts, batch, seeds, seed=5, replace=replace)
        found = sampler.sample(batch, seeds)
        for block, other in zip(found, expected, strict=True):  # without edges the reference knows of no shares
            other.share = np.empty(0, np.float32) if other.share is None else other.share
            assert block.share is not None
        assert_same_blocks(found, expected, FIELDS)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("fanout", [1, 63, 64, 65, 200, 599, -1])
def test_rows_around_the_changes_of_method(dtype, fanout):
    """Scanning and hashing of repetitions, rows in which nearly all neighbours are drawn, dominant weights, several spans of masses."""
    graph = topology([list(range(600)), list(range(600)), [0, 1], [], *[[5]] * 596], dtype)
    generator = np.random.default_rng(3)
    weights = np.concatenate([generator.random(600), 10.0 ** generator.integers(-12, 12, 600), np.ones(598)])
    weights[600:700] = 0
    tables = build_alias(graph, weights)
    for replace in (False, True):
        sampler = WeightedSampler(graph, tables, [fanout, 2], seed=2, replace=replace)
        expected = weighted_reference(
            graph, tables, [fanout, 2], KEY, np.arange(4, dtype=dtype), seed=2, replace=replace
        )
        assert_same_blocks(sampler.sample(KEY, np.arange(4, dtype=dtype)), expected, FIELDS)


@pytest.mark.parametrize("replace", [False, True])
def test_blocks_are_the_same_bytes_at_any_number_of_threads(replace):
    graph = random_topology(20_000, 200_000)
    weights = np.random.default_rng(1).pareto(0.5, graph.num_edges)
    weights[::7] = 0
    tables = build_alias(graph, weights, empty="none", threads=2)
    seeds = np.arange(0, 20_000, 3)
    for fanouts in ((5, 10), (-1, 3)):
        one = WeightedSampler(graph, tables, fanouts, seed=1, replace=replace).sample(KEY, seeds, transpose="all")
        for threads in (2, 8):
            sampler = WeightedSampler(graph, tables, fanouts, seed=1, replace=replace, threads=threads)
            made = sampler.sample(KEY, seeds, transpose="all")
            assert_same_blocks(made, one, (*FIELDS, "t_start", "t_edge", "t_dst"))


def successive(weights, k):
    """The exact probability of each set of k positions in successive sampling."""
    weights, found = np.asarray(weights, float), {}
    total = weights.sum()
    for order in permutations(np.flatnonzero(weights).tolist(), k):
        chance, left = 1.0, total
        for i in order:
            chance *= weights[i] / left
            left -= weights[i]
        found[tuple(sorted(order))] = found.get(tuple(sorted(order)), 0) + chance
    return found


ROWS = {
    "even": [1, 1, 1, 1, 1],
    "heavy tail": [1, 10, 100, 1000, 10_000, 100_000],
    "zeros": [0, 3, 0, 1, 2, 0, 4],
    "one dominant": [1, 1, 1e7, 1, 1],
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_sets_without_replacement_are_those_of_successive_sampling(row, k):
    """One dominant weight makes nearly every second draw a repetition: there masses are added up."""
    weights, batches = np.array(ROWS[row], float), 6000
    graph = topology([list(range(len(weights))), *[[]] * (len(weights) - 1)])
    sampler = WeightedSampler(graph, build_alias(graph, weights), [k], seed=4)
    expected, counts = successive(weights, k), {}
    for step in range(batches):
        (block,) = sampler.sample(BatchKey(0, 0, step), [0])
        drawn = tuple(block.src_ids[block.indices].tolist())
        counts[drawn] = counts.get(drawn, 0) + 1
    assert counts.keys() <= expected.keys()
    assert_fits([counts.get(each, 0) for each in expected], list(expected.values()))


@pytest.mark.parametrize("row", ROWS)
def test_draws_with_replacement_have_the_weights(row):
    weights, batches, k = np.array(ROWS[row], float), 3000, 7
    graph = topology([list(range(len(weights))), *[[]] * (len(weights) - 1)])
    sampler = WeightedSampler(graph, build_alias(graph, weights), [k], seed=4, replace=True)
    counts = np.zeros(len(weights))
    for step in range(batches):
        (block,) = sampler.sample(BatchKey(0, 0, step), [0])
        assert len(block.indices) == k and np.allclose(block.share, 1 / k)
        np.add.at(counts, block.src_ids[block.indices], 1)
    assert counts[weights == 0].sum() == 0
    assert_fits(counts[weights > 0], weights[weights > 0] / weights.sum())


def test_a_long_row_with_a_dominant_weight_is_drawn_from_what_is_left():
    """4 k + 16 draws nearly all repeat the dominant neighbour; the others are drawn from spans of the masses that are left."""
    degree, k = 3000, 9
    weights = np.ones(degree)
    weights[1234] = 1e12
    graph = topology([list(range(degree)), *[[]] * (degree - 1)])
    sampler, counts = WeightedSampler(graph, build_alias(graph, weights), [k], seed=4), np.zeros(degree)
    for step in range(4000):
        (block,) = sampler.sample(BatchKey(0, 0, step), [0])
        counts[block.src_ids[block.indices]] += 1
    assert counts[1234] == 4000 and most_draws(k) < 100
    others = np.delete(counts, 1234)[:2990]
    assert np.delete(counts, 1234).sum() == 4000 * (k - 1)
    # Eight of 2,999 are so nearly independent draws that Pearson's test holds.
    assert_fits(others.reshape(-1, 23).sum(axis=1), np.full(130, 1 / 130))


def test_shares_are_the_weighted_mean_where_a_row_is_taken_whole():
    graph = topology([[0, 1, 2, 3], [2, 3], [1], []])
    weights = np.array([1, 0, 3, 4, 1, 1, 9.0])
    sampler = WeightedSampler(graph, build_alias(graph, weights), [3], seed=0)
    (block,) = sampler.sample(KEY, np.arange(4))
    assert block.share is not None
    assert np.allclose(block.share, [1 / 8, 3 / 8, 4 / 8, 0.5, 0.5, 1])
    assert block.src_ids[block.indices].tolist() == [0, 2, 3, 2, 3, 1]


def test_edge_weights_and_ids_follow_their_edges():
    plain = random_topology(30, 200)
    graph = type(plain)(
        indptr=plain.indptr, indices=plain.indices, in_degree=plain.in_degree, out_degree=plain.out_degree,
        weights=np.arange(200, dtype=np.float32), edge_ids=np.arange(200)[::-1].copy(),
    )  # fmt: skip
    tables = build_alias(graph, np.ones(200))
    (block,) = WeightedSampler(graph, tables, [3], seed=0).sample(KEY, np.arange(30), edge_ids=True)
    assert block.weight is not None and block.edge_id is not None
    positions = block.weight.astype(int)
    assert (graph.indices[positions] == block.src_ids[block.indices]).all()
    assert (graph.edge_ids[positions] == block.edge_id).all()


def damaged_tables(damage):
    """A graph, and tables that were right for its rows before a damage."""
    graph = topology([list(range(100)), list(range(100)), [], *[[0]] * 97])
    weights = np.ones(297)
    weights[:97] = 0
    tables = build_alias(graph, weights)
    table, support = tables.table, np.array([3, 100, 0, *[1] * 97], np.int32)
    if damage.startswith("alias"):
        table[100:200] = (
            1,
            {"alias far away": 2**31, "alias of all bits": 2**32 - 1, "alias behind the row": 100}[damage],
        )
    else:
        node, found = {
            "fewer have weight than counted": (0, 100),
            "more have weight than counted": (1, 1),
            "more are counted than there are": (1, 2**30),
            "one is counted in an empty row": (2, 1),
            "a negative count": (1, -1),
        }[damage]
        support[node] = found
    return graph, AliasTables(table=table, support=support)


DAMAGES = [
    ("alias far away", 5, False), ("alias far away", 70, False), ("alias far away", -1, False),
    ("alias far away", 5, True), ("alias of all bits", 70, False), ("alias behind the row", 5, False),
    ("alias behind the row", -1, False), ("fewer have weight than counted", 5, False),
    ("fewer have weight than counted", 70, False), ("fewer have weight than counted", -1, False),
    ("more have weight than counted", 5, False), ("more have weight than counted", -1, False),
    ("more are counted than there are", 5, False), ("more are counted than there are", -1, True),
    ("one is counted in an empty row", 5, False), ("one is counted in an empty row", 5, True),
    ("a negative count", 5, False), ("a negative count", -1, False),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "fanout", "replace"), DAMAGES)
def test_a_damaged_table_is_refused_where_it_is_read(damage, fanout, replace):
    graph, tables = damaged_tables(damage)
    for threads in (1, 2):
        sampler = WeightedSampler(graph, tables, (fanout,), seed=1, replace=replace, threads=threads)
        with pytest.raises(InputError, match=r"the alias table of node \d does not fit its row"):
            sampler.sample(KEY, np.arange(3))
        sampler.sample(KEY, np.arange(3, 9))


@st.composite
def any_damage(draw):
    """A graph, tables of which some words are anything, and fanouts."""
    graph = draw(topologies())
    weights = np.array(draw(st.lists(WEIGHTS, min_size=graph.num_edges, max_size=graph.num_edges)), float)
    tables = build_alias(graph, weights, empty="none")
    table, support = tables.table, tables.support
    support = np.diff(graph.indptr).astype(np.int32) if support is None else support
    words, counts = st.sampled_from([0, 1, 2, 9, 2**31, 2**32 - 1]), st.sampled_from([-(2**31), -1, 0, 1, 5, 2**31 - 1])
    for place in draw(st.lists(st.integers(0, 2 * graph.num_edges - 1), max_size=4)) if graph.num_edges else []:
        table.reshape(-1)[place] = draw(words)
    for node in draw(st.lists(st.integers(0, graph.num_nodes - 1), max_size=2)):
        support[node] = draw(counts)
    return graph, AliasTables(table=table, support=support), draw(st.sampled_from([(-1, 2), (1, -1), (2, 3), (7, 1)]))


@settings(deadline=None)
@given(any_damage(), st.booleans())
def test_whatever_a_table_holds_a_batch_is_whole_or_refused(drawn, replace):
    graph, tables, fanouts = drawn
    sampler, seeds = WeightedSampler(graph, tables, fanouts, seed=1, replace=replace), np.arange(graph.num_nodes)
    try:
        blocks = sampler.sample(KEY, seeds)
    except InputError as error:
        assert "does not fit its row" in error.problem
        return
    for block in blocks:
        assert all(0 <= source < block.num_src for source in block.indices.tolist())


def test_tables_of_another_graph_are_refused():
    graph, other = random_topology(30, 200), random_topology(30, 100)
    with pytest.raises(InputError, match="the graph has 200 edges"):
        WeightedSampler(graph, build_alias(other, np.ones(100)), [3], seed=0)
    with pytest.raises(InputError, match="the graph has 200 edges"):
        tables = AliasTables(table=build_alias(graph, np.ones(200)).table, support=np.ones(5, np.int32))
        WeightedSampler(graph, tables, [3], seed=0)
