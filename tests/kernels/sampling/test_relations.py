"""Fan-outs per relation: each relation's run of a row is drawn as a row of its own."""

import dataclasses
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import absorb, key
from graphmill.kernels.sampling.own_sampling import OwnSampler
from graphmill.kernels.sampling.relations import layer_fanouts, most_of_row
from graphmill.kernels.sampling.sample import Sampler, TwoStepSampler, choose_reference, sample_reference
from graphmill.kernels.sampling.walk import Walks, WalkSampler
from graphmill.kernels.types import BatchKey, Topology
from tests.kernels.graphs import assert_same_blocks

pytestmark = pytest.mark.usefixtures("each_map")
KEY = BatchKey(0, 1, 2)
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 7])


def typed(rows: Any, dtype: Any = np.int32) -> Any:
    """The topology whose node v has the in-neighbours rows[v], pairs of (relation, source)."""
    ordered = [pair for row in rows for pair in sorted(row)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    indices = np.array([source for _, source in ordered], dtype)
    return Topology(
        indptr=indptr,
        indices=indices,
        in_degree=np.diff(indptr).astype(np.int32),
        out_degree=np.bincount(indices, minlength=len(rows)).astype(np.int32),
        edge_types=np.array([relation for relation, _ in ordered], np.uint8),
    )


@st.composite
def typed_topologies(draw, num_relations, max_nodes=10):
    """Any small multigraph with relations, some of which a row or the whole graph may lack."""
    num_nodes = draw(st.integers(1, max_nodes))
    pair = st.tuples(st.integers(0, num_relations - 1), st.integers(0, num_nodes - 1))
    rows = draw(st.lists(st.lists(pair, max_size=12), min_size=num_nodes, max_size=num_nodes))
    return typed(rows, draw(st.sampled_from([np.int32, np.int64])))


def large(num_relations: int, num_edges: int = 6000, num_nodes: int = 300) -> Any:
    """A skewed graph with rows of thousands of edges and of none."""
    generator = np.random.default_rng(num_relations)
    rows: list[list[tuple[int, int]]] = [[] for _ in range(num_nodes)]
    for v in (num_nodes * generator.random(num_edges) ** 5).astype(np.int64):
        rows[v].append((int(num_relations * generator.random() ** 2), int(generator.integers(num_nodes))))
    return typed(rows)


@given(st.data(), st.integers(1, 4), st.booleans(), st.integers(1, 3))
def test_blocks_equal_the_reference(data, num_relations, replace, threads):
    graph = data.draw(typed_topologies(num_relations))
    table = st.lists(NUMBERS, min_size=num_relations, max_size=num_relations)
    fanouts = data.draw(st.lists(st.one_of(table, st.sampled_from([-1, 1, 3])), min_size=1, max_size=3))
    seeds = np.array(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True)), graph.indices.dtype)
    sampler = Sampler(graph, fanouts, seed=5, replace=replace, threads=threads)
    for step in range(2):
        batch = BatchKey(0, 3, step)
        expected = sample_reference(graph, layer_fanouts(fanouts), batch, seeds, seed=5, replace=replace)
        assert_same_blocks(sampler.sample(batch, seeds, transpose="all"), expected)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("num_relations", [1, 2, 256])
def test_many_relations_and_long_rows(num_relations, replace):
    graph, numbers = large(num_relations), [(-1, 0, 1, 2, 40, 5)[r % 6] if r else 70 for r in range(num_relations)]
    fanouts, seeds = layer_fanouts([numbers, 3, numbers[::-1]]), np.arange(300, dtype=np.int32)[::-1].copy()
    made = [Sampler(graph, fanouts, seed=2, replace=replace, threads=threads) for threads in (1, 3)]
    one, three = (sampler.sample(KEY, seeds, transpose="all") for sampler in made)
    fields = ("start", "end", "indices", "src_ids", "edge_type")
    assert_same_blocks(one, three, fields)
    assert_same_blocks(one, sample_reference(graph, fanouts, KEY, seeds, seed=2, replace=replace))
    made[0].read_ahead()
    assert_same_blocks(made[0].sample(KEY, seeds, transpose="all"), three, fields)


def test_each_relation_has_its_number():
    graph = large(4)
    (block,) = Sampler(graph, [(0, -1, 5, 2)], seed=1).sample(KEY, np.arange(300))
    assert block.edge_type is not None
    for i, v in enumerate(block.dst_ids):
        row, picked = graph.indptr[v : v + 2], slice(block.start[i], block.end[i])
        types = graph.edge_types[row[0] : row[1]]
        found = block.edge_type[picked]
        assert (np.diff(found.astype(int)) >= 0).all()
        there = np.bincount(types, minlength=4)
        assert np.bincount(found, minlength=4).tolist() == [0, there[1], min(5, there[2]), min(2, there[3])]
        sources = block.src_ids[block.indices[picked]]
        whole = graph.indices[row[0] : row[1]]
        assert sources[found == 1].tolist() == whole[types == 1].tolist()


def test_a_relation_is_keyed_by_its_number_alone():
    """The draws of a relation depend on no other relation's number, and are those of a row of its own."""
    graph, seeds = large(3), np.arange(300)
    picked = []
    for numbers in ((3, 4, 2), (0, 4, -1)):
        (block,) = Sampler(graph, [numbers], seed=1).sample(KEY, seeds)
        assert block.edge_type is not None
        picked.append(
            [
                block.src_ids[block.indices[s:e]][block.edge_type[s:e] == 1]
                for s, e in zip(block.start, block.end, strict=True)
            ]
        )
    layer_key = key(1, KEY.stream, KEY.epoch, KEY.step, 0)
    for v, (one, other) in enumerate(zip(*picked, strict=True)):
        low, high = graph.indptr[v], graph.indptr[v + 1]
        run = graph.indices[low:high][graph.edge_types[low:high] == 1]
        chosen = choose_reference(absorb(absorb(layer_key, v), 1), len(run), 4)
        assert one.tolist() == other.tolist() == run[chosen].tolist()


def test_equal_numbers_draw_by_relation():
    """A number for the whole row keeps its draws; equal numbers in a table draw each run, so that rare relations are not missed."""
    graph, seeds = large(3), np.arange(300)
    bare = dataclasses.replace(graph, edge_types=None)
    plain, untyped = (Sampler(each, [4], seed=1).sample(KEY, seeds)[0] for each in (graph, bare))
    assert plain.indices.tobytes() == untyped.indices.tobytes()
    (table,) = Sampler(graph, [(4, 4, 4)], seed=1).sample(KEY, seeds)
    assert plain.num_edges < table.num_edges <= 3 * 4 * 300


@pytest.mark.parametrize("replace", [False, True])
def test_neighbours_of_a_relation_are_equally_likely(replace):
    graph = typed([[(r, u) for r, d in ((0, 3), (2, 20)) for u in range(d)]] + [[] for _ in range(19)])
    sampler, counts, batches = Sampler(graph, [(2, 1, 5)], seed=3, replace=replace), np.zeros((3, 20)), 4000
    for step in range(batches):
        (block,) = sampler.sample(BatchKey(0, 0, step), np.array([0]))
        assert block.edge_type is not None
        np.add.at(counts, (block.edge_type, block.src_ids[block.indices]), 1)
    assert counts[1].sum() == 0
    for relation, degree, taken in ((0, 3, 2), (2, 20, 5)):
        expected = batches * taken / degree
        assert np.abs(counts[relation, :degree] - expected).max() < 5 * np.sqrt(expected)


def test_numbers_that_do_not_fit_are_refused():
    graph = large(3)
    for fanouts in ([()], [(1, -2)], [[2**31]], [[1] * 257], [0], []):
        with pytest.raises(InputError, match="fanouts = "):
            Sampler(graph, fanouts, seed=0)
    with pytest.raises(InputError, match="the edges have no relations"):
        Sampler(dataclasses.replace(graph, edge_types=None), [(1, 2)], seed=0)
    with pytest.raises(InputError, match=r"edge_types is int64\[6000\]"):
        Sampler(dataclasses.replace(graph, edge_types=graph.edge_types.astype(np.int64)), [(1, 2)], seed=0)
    with pytest.raises(InputError, match="has the relation 2, and there are fan-outs of 2 relations"):
        Sampler(graph, [(1, 2)], seed=0).sample(KEY, np.arange(300))
    assert [most_of_row(each) for each in (5, (1, 2), (1, -1), (2**31 - 1, 1))] == [5, 3, -1, -1]


def test_other_samplers_refuse_numbers_per_relation():
    graph, numbers = large(2), cast(Any, [(1, 2)])
    for make in (
        lambda: TwoStepSampler(graph, numbers, seed=0),
        lambda: WalkSampler(graph, Walks(), numbers, seed=0),
        lambda: OwnSampler(graph, numbers, lambda *_: None, seed=0, name="own"),
    ):
        with pytest.raises(InputError, match="which uniform sampling draws alone"):
            make()
