"""One layer at a time for any nodes, and blocks of edge lists: the bytes of the fused sampler."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler, sample_reference
from graphmill.kernels.sampling.sample_layer import LayerSampler, Renamer, unweighted_rows
from graphmill.kernels.types import BatchKey
from tests.trainers.graphs import random_topology


@st.composite
def cases(draw):
    nodes = draw(st.integers(1, 40))
    topology = random_topology(nodes, draw(st.integers(0, 200)), draw(st.integers(0, 5)))
    fanouts = draw(st.lists(st.sampled_from([-1, 1, 2, 5]), min_size=1, max_size=3))
    seeds = draw(st.lists(st.integers(0, nodes - 1), unique=True, max_size=nodes))
    batch = BatchKey(0, draw(st.integers(0, 3)), draw(st.integers(0, 99)))
    return topology, fanouts, np.array(seeds, np.int32), batch, draw(st.booleans())


@given(cases())
def test_layers_and_names_make_the_blocks_of_the_fused_sampler(case):
    topology, fanouts, seeds, batch, repeats = case
    renamer, rows = Renamer(topology.num_nodes, topology.indices.dtype), unweighted_rows(topology)
    for _ in range(2):  # a second batch finds no names of the first
        renamer.begin(seeds)
        made = []
        for layer, fanout in zip(reversed(range(len(fanouts))), fanouts, strict=True):
            sampler, nodes = LayerSampler(fanout, layer, seed=7, replace=repeats), renamer.nodes
            order = np.argsort(nodes)
            # Each node by itself, as if every one had another owner, and in the order of their ids.
            found = [sampler.draw(rows, batch, np.array([node])) for node in nodes[order]]
            counts = np.array([int(each.counts[0]) for each in found], np.int32)
            block, places = renamer.block(counts, np.concatenate([each.sources for each in found] or [seeds]), order)
            assert np.array_equal(np.sort(places), np.arange(len(block.indices)))
            made.insert(0, block)
    fused = Sampler(topology, fanouts, seed=7, replace=repeats).sample(batch, seeds, transpose="none")
    for blocks in (fused, sample_reference(topology, fanouts, batch, seeds, seed=7, replace=repeats)):
        for one, two in zip(made, blocks, strict=True):
            assert (one.num_dst, one.num_src) == (two.num_dst, two.num_src)
            for name in ("start", "end", "indices", "src_ids"):
                left, right = getattr(one, name), getattr(two, name)
                assert left.dtype == right.dtype and left.tobytes() == right.tobytes(), name


def test_weights_and_wrong_nodes_are_refused():
    topology = random_topology(10, 30, 1)
    weighted = replace(topology, weights=np.ones(topology.num_edges, np.float32))
    with pytest.raises(InputError, match="edge weights or types"):
        unweighted_rows(weighted)
    for node in (10, -1):
        with pytest.raises(InputError, match=f"row of node {node} is not among those of nodes 0 to 9"):
            LayerSampler(2, 0, seed=0).draw(unweighted_rows(topology), BatchKey(0, 0, 0), np.array([node]))


@pytest.mark.parametrize(
    ("counts", "sources", "order"),
    [
        ([1, -1], [0], None),
        ([1, 1], [0], None),
        ([1], [0], [0]),
        ([1, 0], [5], None),
        ([0, 0], [], [0, 0]),
        ([0, 0], [], [0, 2]),
    ],
)
def test_drawn_rows_that_do_not_fit_are_refused(counts, sources, order):
    renamer = Renamer(5, np.dtype(np.int32))
    renamer.begin(np.array([3, 4], np.int32))
    given = np.array(counts, np.int32), np.array(sources, np.int32), None if order is None else np.array(order)
    with pytest.raises(InputError, match="do not fit each other"):
        renamer.block(*given)
