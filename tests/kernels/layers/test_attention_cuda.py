"""Attention on the shim and on a device: the CPU's bits, forward and backward, with and without a mask."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.kernels.arrays import BFLOAT16, sum_dtype
from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.attention import attend, attend_backward, edge_mask
from graphmill.kernels.layers.attention_cuda import Attention
from tests.kernels.graphs import blocks
from tests.kernels.layers.on_device import DTYPES, assert_same_bits, float_rows, received, sent, sent_block
from tests.kernels.layers.test_aggregate_cuda import drawn_block, with_weights


def like(device, array):
    return sent(device, np.empty_like(array))


def assert_attends(machine, block, heads, depth, dtype, p=0.0, seed=0, weighted=False):
    device = machine.device(seed)
    z, left = (float_rows(block.num_src, width, dtype, seed + width) for width in (heads * depth, heads))
    right, grad = (float_rows(block.num_dst, width, dtype, seed + 7 + width) for width in (heads, heads * depth))
    mask = edge_mask(block, heads, 99, p) if p else None
    weight = block.weight if weighted else None
    out, alpha = attend(block, z, left, right, mask=mask, weight=weight)
    expected = attend_backward(block, z, left, right, alpha, grad, mask=mask, weight=weight)

    there, given_rows = sent_block(device, block), [sent(device, each) for each in (z, left, right)]
    kept, scale = (None, 1.0) if mask is None else (sent(device, mask.kept), mask.scale)
    attention = Attention(there, *given_rows, 0.2, kept, scale, there.weight if weighted else None, device)
    found, weights = like(device, out), sent(device, np.zeros_like(alpha))
    attention.attend(found, weights)
    assert_same_bits(received(device, found), out)
    used = np.zeros(len(alpha), bool)  # rows of removed edges are not written
    used[len(block.indices) :] = True
    for first, last in zip(block.start, block.end, strict=True):
        used[first:last] = True
    assert_same_bits(received(device, weights)[used], alpha[used])
    gradients = tuple(like(device, each) for each in expected)
    attention.backward(sent(device, alpha), sent(device, grad), gradients)
    for one, other in zip(gradients, expected, strict=True):
        assert_same_bits(received(device, one), other)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    blocks(), st.sampled_from([1, 2, 3, 5]), st.sampled_from([1, 4, 9]), st.sampled_from(DTYPES), st.sampled_from([0, 0.5]),
    st.integers(0, 99), st.booleans(),
)  # fmt: skip
def test_drawn_blocks(machine, block, heads, depth, dtype, p, seed, weighted):
    assert_attends(machine, with_weights(block, seed), heads, depth, dtype, p, seed, weighted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "depth"), [(1, 47), (8, 8), (4, 16), (3, 19), (2, 64)])
def test_heads_and_depths(machine, heads, depth, dtype):
    assert_attends(machine, drawn_block([0, 1, 2, 5, 9, 4], 12, heads), heads, depth, dtype, p=0.3)


@pytest.mark.parametrize("dst_pos", [False, True])
def test_a_hub_is_summed_in_edge_order(machine, dst_pos):
    assert_attends(machine, drawn_block([3, 500, 0, 1], 5, dst_pos=dst_pos), 2, 8, np.float32)
    assert_attends(machine, drawn_block([3, 500, 0, 1], 5, dst_pos=dst_pos), 2, 8, np.float32, weighted=True)


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_of_a_block_without_edges(machine, dtype, p):
    assert_attends(machine, with_weights(drawn_block([0, 0], 3), 0), 2, 4, dtype, p=p, weighted=True)


def test_huge_scores_and_a_nan(machine):
    block, device = drawn_block([3, 4, 2, 5], 9), machine.device()
    z, left, right = (float_rows(n, width, np.float32) for n, width in ((9, 8), (9, 2), (4, 2)))
    left[3], left[5, 0], z[6, 1] = 3e38, -3e38, np.nan
    out, alpha = attend(block, z, left, right)
    found, weights = like(device, out), like(device, alpha)
    rows = [sent(device, each) for each in (z, left, right)]
    Attention(sent_block(device, block), *rows, 0.2, None, 1.0, None, device).attend(found, weights)
    assert_same_bits(received(device, found), out)
    assert sum_dtype(BFLOAT16) == np.float32


def test_what_does_not_fit_is_refused(machine):
    block, device = drawn_block([2, 1], 4), machine.device()
    there = sent_block(device, block)
    z, left, right = (sent(device, np.ones(shape, np.float32)) for shape in ((4, 6), (4, 2), (2, 2)))
    alpha, out = (sent(device, np.ones(shape, np.float32)) for shape in ((5, 2), (2, 6)))
    for wrong in (
        (sent(device, np.ones((4, 5), np.float32)), left, right),
        (z, sent(device, np.ones((4, 2), np.float64)), right),
        (z, left, sent(device, np.ones((3, 2), np.float32))),
    ):
        with pytest.raises(InputError, match="remedy"):
            Attention(there, *wrong, 0.2, None, 1.0, None, device).attend(out, alpha)
