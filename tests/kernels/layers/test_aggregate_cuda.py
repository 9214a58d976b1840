"""Aggregation on the shim and on a device: the CPU's bits, forward and backward."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.aggregate import aggregate, aggregate_backward
from graphmill.kernels.layers.aggregate_cuda import aggregate_backward_cuda, aggregate_cuda
from graphmill.kernels.types import Block
from tests.kernels.graphs import blocks
from tests.kernels.layers.on_device import DTYPES, assert_same_bits, float_rows, received, sent, sent_block

REDUCTIONS = ["sum", "mean", "weighted"]


def assert_aggregates(machine, block, reduce, width, dtype, seed=0):
    device = machine.device(seed)
    h, grad = float_rows(block.num_src, width, dtype, seed), float_rows(block.num_dst, width, dtype, seed + 1)
    there = sent_block(device, block)
    out = sent(device, np.empty((block.num_dst, width), h.dtype))
    found = aggregate_cuda(there, sent(device, h), reduce, out, device)
    assert_same_bits(received(device, found), aggregate(block, h, reduce))
    back = sent(device, np.empty((block.num_src, width), h.dtype))
    found = aggregate_backward_cuda(there, sent(device, grad), reduce, back, device)
    assert_same_bits(received(device, found), aggregate_backward(block, grad, reduce))


def with_weights(block: Block, seed: int = 0) -> Block:
    generator = np.random.default_rng(seed)
    weight = generator.standard_normal(len(block.indices)).astype(np.float32)
    return transpose(replace(block, weight=weight, self_weight=generator.random(block.num_dst).astype(np.float32)))


def drawn_block(degrees: list[int], num_src: int, seed: int = 0, dst_pos: bool = False) -> Block:
    generator, ends = np.random.default_rng(seed), np.cumsum(degrees).astype(np.int32)
    block = Block(
        num_dst=len(degrees),
        num_src=num_src,
        start=np.concatenate([[0], ends[:-1]]).astype(np.int32),
        end=ends,
        indices=generator.integers(0, num_src, ends[-1], dtype=np.int32),
        src_ids=generator.permutation(10 * num_src)[:num_src].astype(np.int32),
        dst_pos=generator.permutation(num_src)[: len(degrees)].astype(np.int32) if dst_pos else None,
    )
    return with_weights(block, seed)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    blocks(),
    st.sampled_from(REDUCTIONS),
    st.sampled_from(DTYPES),
    st.sampled_from([0, 1, 3, 8, 20]),
    st.integers(0, 99),
)
def test_drawn_blocks(machine, block, reduce, dtype, width, seed):
    assert_aggregates(machine, with_weights(block, seed), reduce, width, dtype, seed)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize(
    ("dtype", "width"), [(DTYPES[0], 768), (DTYPES[1], 602), (DTYPES[2], 128), (DTYPES[3], 101), (DTYPES[2], 1)]
)
def test_widths_and_types(machine, reduce, dtype, width):
    assert_aggregates(machine, drawn_block([0, 1, 2, 5, 9, 4], 12, width), reduce, width, dtype)


@pytest.mark.parametrize("dst_pos", [False, True])
def test_a_hub_is_summed_in_edge_order(machine, dst_pos):
    assert_aggregates(machine, drawn_block([3, 2000, 0, 1], 5, dst_pos=dst_pos), "weighted", 4, np.float32)


def test_non_finite_rows_reach_their_users_alone(machine):
    block, device = drawn_block([3, 0, 2, 4], 9), machine.device()
    h = float_rows(9, 5, np.float32)
    h[2], h[4, 1] = np.nan, np.inf
    out = aggregate_cuda(
        sent_block(device, block), sent(device, h), "mean", sent(device, np.empty((4, 5), np.float32)), device
    )
    assert_same_bits(received(device, out), aggregate(block, h, "mean"))


def test_what_does_not_fit_is_refused(machine):
    block, device = drawn_block([2, 1], 4), machine.device()
    there, h = sent_block(device, block), sent(device, np.ones((4, 3), np.float32))
    out = sent(device, np.ones((2, 3), np.float32))
    for change, given_h, given_out in (
        ({"weight": None}, h, out),
        ({"start": sent(device, np.zeros(2, np.int64))}, h, out),
        ({"end": sent(device, np.zeros(3, np.int32))}, h, out),
        ({}, sent(device, np.ones((3, 3), np.float32)), out),
        ({}, sent(device, np.ones((4, 3), np.int32)), out),
        ({}, h, sent(device, np.ones((2, 3), np.float64))),
    ):
        with pytest.raises(InputError, match="remedy"):
            aggregate_cuda(replace(there, **change), given_h, "weighted", given_out, device)
    with pytest.raises(InputError, match="no transpose"):
        aggregate_backward_cuda(replace(there, t_start=None), out, "sum", h, device)
    with pytest.raises(InputError, match="reduction 'max'"):
        aggregate_cuda(there, h, "max", out, device)
