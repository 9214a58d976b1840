"""GCN weights follow their formula, on whole rows, sampled rows and rows that lost their edges."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.blocks.coefficients import data_mean_weights, gcn_weights, gcn_weights_reference
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import blocks, random_topology


@given(blocks(), st.booleans())
def test_weights_equal_the_reference(block, sampled):
    in_degree, out_degree = np.random.default_rng(0).integers(0, 50, (2, 100)).astype(np.int32)
    mine, expected = (
        function(block, in_degree, out_degree, sampled) for function in (gcn_weights, gcn_weights_reference)
    )
    for a, b in zip(mine, expected, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_array_equal(a, b)


def test_the_formula_and_the_scale_of_sampled_rows():
    graph = random_topology(60, 900)
    whole = Sampler(graph, [-1], seed=0).sample(BatchKey(0, 0, 0), np.arange(30))[0]
    d_in, d_out = graph.in_degree, graph.out_degree
    weight, self_weight = gcn_weights(whole, d_in, d_out)
    dst = np.repeat(whole.dst_ids, whole.end - whole.start)
    plain = 1 / np.sqrt((d_in[dst] + 1.0) * (d_out[whole.src_ids[whole.indices]] + 1.0))
    np.testing.assert_allclose(weight, plain, rtol=1e-6)
    np.testing.assert_allclose(self_weight, 1 / np.sqrt((d_in[:30] + 1.0) * (d_out[:30] + 1.0)), rtol=1e-6)

    part = Sampler(graph, [4], seed=0).sample(BatchKey(0, 0, 0), np.arange(30))[0]
    scaled, unscaled = (gcn_weights(part, d_in, d_out, sampled)[0] for sampled in (True, False))
    taken = (part.end - part.start).repeat(part.end - part.start)
    ratio = d_in[np.repeat(part.dst_ids, part.end - part.start)] / taken
    np.testing.assert_allclose(scaled / unscaled, ratio, rtol=1e-5)


@given(blocks(), st.booleans(), st.booleans())
def test_means_by_the_datas_weights_follow_their_rule(block, own, shared):
    generator = np.random.default_rng(1)
    given_ = generator.integers(-2, 3, len(block.indices)).astype(np.float32)  # sums of 0 are common
    share = generator.random(len(block.indices)).astype(np.float32) if shared else None
    weight, self_weight = data_mean_weights(replace(block, weight=given_, share=share), own)
    assert weight.dtype == np.float32 and (self_weight is not None) == own
    for i in range(block.num_dst):
        edges = slice(block.start[i], block.end[i])
        each = given_[edges].astype(np.float64) * (1 if share is None else share[edges])
        one = 1.0 if share is None else 1 / max(1, len(each))
        total = sum(each.tolist()) + (one if own else 0)
        np.testing.assert_allclose(weight[edges], each / total if total else 0 * each, rtol=1e-6)
        if own:
            np.testing.assert_allclose(self_weight[i], one / total if total else 0, rtol=1e-6)
    removed = np.ones(len(weight), bool)
    for first, last in zip(block.start, block.end, strict=True):
        removed[first:last] = False
    assert not weight[removed].any()
