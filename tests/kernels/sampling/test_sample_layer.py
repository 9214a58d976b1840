"""One layer at a time for any nodes, and blocks of edge lists: the bytes of the fused sampler."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler, sample_reference
from graphmill.kernels.sampling.sample_layer import LayerSampler, Renamer
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
    renamer = Renamer(topology.num_nodes)
    for _ in range(2):  # a second batch finds no names of the first
        renamer.begin(seeds)
        made = []
        for layer, fanout in zip(reversed(range(len(fanouts))), fanouts, strict=True):
            sampler = LayerSampler(topology, fanout, layer, seed=7, replace=repeats)
            # Each node by itself, as if every one had another owner.
            found = [sampler.neighbours(batch, np.array([node])) for node in renamer.nodes]
            counts = np.array([int(each[0][0]) for each in found], np.int32)
            made.insert(0, renamer.block(counts, np.concatenate([each[1] for each in found] or [seeds])))
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
        LayerSampler(weighted, 2, 0, seed=0)
    with pytest.raises(InputError, match="seed 10 at position 0 is not a node"):
        LayerSampler(topology, 2, 0, seed=0).neighbours(BatchKey(0, 0, 0), np.array([10]))
