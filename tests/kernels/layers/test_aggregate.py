"""Sums and their gradients equal the sequential reference to the bit, at any thread count."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.arrays import BFLOAT16, STORED_FLOATS, narrow, widen
from graphmill.kernels.blocks.transpose import order_weights, transpose, transpose_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.aggregate import (
    aggregate,
    aggregate_backward,
    aggregate_backward_reference,
    aggregate_reference,
)
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block
from tests.kernels.graphs import blocks, random_topology

pytestmark = pytest.mark.smoke

REDUCES = ("sum", "mean", "weighted")
DTYPES = st.sampled_from(STORED_FLOATS)
WIDTHS = st.one_of(st.sampled_from([0, 1, 15, 16, 17, 64, 129, 256, 300, 513]), st.integers(1, 1030))


def rows(num_rows, width, dtype, seed=0):
    return narrow(np.random.default_rng(seed).standard_normal((num_rows, width)), dtype)


@given(blocks())
def test_transpose_equals_the_reference(block):
    turned = transpose(block)
    for mine, expected in zip((turned.t_start, turned.t_edge, turned.t_dst), transpose_reference(block), strict=True):
        assert mine is not None and mine.dtype == np.int32 and mine.tolist() == expected.tolist()


@given(blocks(), st.sampled_from(REDUCES), DTYPES, WIDTHS, st.sampled_from([1, 2, 8]))
def test_forward_equals_the_reference(block, reduce, dtype, width, threads):
    h = rows(block.num_src, width, dtype)
    out = np.full((block.num_dst, width), 7, dtype)
    assert aggregate(block, h, reduce, out=out, threads=threads) is out
    np.testing.assert_array_equal(out, aggregate_reference(block, h, reduce))
    np.testing.assert_array_equal(aggregate(block, np.asfortranarray(h), reduce), out)


@given(blocks(), st.sampled_from(REDUCES), DTYPES, WIDTHS, st.sampled_from([1, 2, 8]))
def test_backward_equals_the_reference(block, reduce, dtype, width, threads):
    block = transpose(block)
    grad = rows(block.num_dst, width, dtype)
    out = np.full((block.num_src, width), 7, dtype)
    assert aggregate_backward(block, grad, reduce, out=out, threads=threads) is out
    np.testing.assert_array_equal(out, aggregate_backward_reference(block, grad, reduce))


@pytest.mark.parametrize("reduce", REDUCES)
@given(block=blocks())
def test_backward_is_the_adjoint_of_forward(block, reduce):
    block = transpose(block)
    h, grad = rows(block.num_src, 5, np.float64, 1), rows(block.num_dst, 5, np.float64, 2)
    through_forward = (aggregate(block, h, reduce) * grad).sum()
    through_backward = (h * aggregate_backward(block, grad, reduce)).sum()
    assert abs(through_forward - through_backward) <= 1e-12 * (1 + np.abs(h).sum() * np.abs(grad).sum())


@pytest.mark.parametrize("reduce", REDUCES)
def test_a_skewed_block_has_the_same_bits_on_any_team(reduce):
    graph = random_topology(3000, 60000)
    block = Sampler(graph, [-1], seed=0).sample(BatchKey(0, 0, 0), np.arange(1500), transpose="all")[0]
    block.weight, block.self_weight = rows(1, len(block.indices), np.float32)[0], rows(1, 1500, np.float32)[0]
    h, grad = rows(block.num_src, 70, np.float32), rows(block.num_dst, 70, np.float32)
    forward = {aggregate(block, h, reduce, threads=threads).tobytes() for threads in (1, 2, 8)}
    backward = {aggregate_backward(block, grad, reduce, threads=threads).tobytes() for threads in (1, 2, 8)}
    assert len(forward) == len(backward) == 1


@pytest.mark.parametrize("dtype", STORED_FLOATS)
def test_a_hub_is_summed_in_edge_order_however_it_is_shared(dtype):
    generator = np.random.default_rng(3)
    hub = transpose(Block(
        num_dst=20_002, num_src=20_002, start=np.arange(20_002, dtype=np.int32), end=np.arange(1, 20_003, dtype=np.int32),
        indices=np.where(np.arange(20_002) < 20_000, 5, np.arange(20_002)).astype(np.int32), src_ids=np.arange(20_002),
    ))  # fmt: skip
    grad = narrow(generator.standard_normal((20_002, 150)), dtype)
    results = [aggregate_backward(hub, grad, "sum", threads=threads) for threads in (1, 2, 8)]
    assert len({result.tobytes() for result in results}) == 1
    wide = widen(grad)
    total = np.zeros(150, wide.dtype)
    for row in wide[:20_000]:
        total += row
    np.testing.assert_array_equal(results[0][5], narrow(total, dtype))


def test_a_million_edges_of_one_row_are_shared_and_summed_in_order():
    generator = np.random.default_rng(4)
    ends = np.array([1_000_000, 1_000_003], np.int32)
    block = Block(
        num_dst=2, num_src=3000, start=np.array([0, 1_000_000], np.int32), end=ends,
        indices=generator.integers(0, 3000, ends[-1]).astype(np.int32), src_ids=np.arange(3000),
    )  # fmt: skip
    h = generator.standard_normal((3000, 64), np.float32)
    results = [aggregate(block, h, "mean", threads=threads) for threads in (1, 2, 8)]
    assert len({result.tobytes() for result in results}) == 1
    total = np.zeros((1, 64), np.float32)
    for first in range(0, 1_000_000, 10_000):
        total = np.cumsum(np.concatenate([total, h[block.indices[first : first + 10_000]]]), axis=0)[-1:]
    np.testing.assert_array_equal(results[0][0], total[0] / np.float32(1_000_000))


def test_sums_are_the_same_whether_edges_lie_side_by_side_or_apart():
    """Hubs at both ends and next to each other, rows just below and above a hub's edges, empty rows between."""
    rng = np.random.default_rng(8)
    degrees = np.concatenate([[9000, 9001, 0], rng.integers(0, 5, 900), [511, 512, 8192, 8193, 0, 0, 3, 20_000]])
    ends = np.cumsum(degrees)
    rows_of_edges = np.repeat(np.arange(len(degrees)), degrees)
    indices = rng.integers(0, 500, ends[-1])
    h = rng.integers(-8, 9, (500, 70)).astype(np.float32)  # whole numbers: sums are exact in any order
    expected = np.zeros((len(degrees), 70), np.float32)
    np.add.at(expected, rows_of_edges, h[indices])
    for gap in (0, 1):
        shift = gap * np.arange(len(degrees))
        spread = np.zeros(ends[-1] + gap * len(degrees), np.int32)
        spread[np.arange(len(indices)) + gap * rows_of_edges] = indices
        start, end = ((place + shift).astype(np.int32) for place in (ends - degrees, ends))
        block = Block(num_dst=len(degrees), num_src=500, start=start, end=end, indices=spread, src_ids=np.arange(500),
                      dst_pos=np.zeros(len(degrees), np.int32))  # fmt: skip
        for threads in (1, 2, 8):
            np.testing.assert_array_equal(aggregate(block, h, "sum", threads=threads), expected)


@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize(
    ("width", "dtype"),
    [(width, np.float32) for width in (16, 17, 65, 100, 128, 272, 300, 512, 5000)]
    + [(8, np.float64), (136, np.float64)],
)
def test_outputs_that_are_streamed_hold_what_small_ones_do(reduce, width, dtype):
    """Rows are whole lines, or begin and end anywhere in one; what lies beside them is left alone; the widest are not streamed."""
    rng, num = np.random.default_rng(width), 6_000_000 // (4 * width) + 9
    ends = np.cumsum(rng.integers(0, 3, num)).astype(np.int32)
    block = transpose(Block(
        num_dst=num, num_src=num, start=np.concatenate([[0], ends[:-1]]).astype(np.int32), end=ends,
        indices=rng.integers(0, num, ends[-1]).astype(np.int32), src_ids=np.arange(num),
        weight=rng.standard_normal(ends[-1]).astype(np.float32),
    ))  # fmt: skip
    h = rows(num, width, dtype)
    parts = [slice(c, min(c + 50, width)) for c in range(0, width, 50)]
    for operate, place in itertools.product((aggregate, aggregate_backward), (0, 1, 9)):
        around = np.full(num * width + 32, 7, dtype)
        first = place - around.ctypes.data // around.itemsize % 16 + 16
        whole = around[first : first + num * width].reshape(num, width)
        operate(block, h, reduce, out=whole, threads=2)
        for part in (parts[0], parts[-1]):
            np.testing.assert_array_equal(whole[:, part], operate(block, h[:, part], reduce))
        assert set(around[:first]) | set(around[first + num * width :]) == {7}


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16])
def test_every_value_of_16_bits_is_rounded_to_nearest_even(dtype):
    """A weighted sum of one edge is the float32 product, rounded once: torch rounds the same way."""
    bits = np.arange(2**16, dtype=np.uint16)
    h = bits.view(dtype).reshape(-1, 64)
    one = np.arange(len(h), dtype=np.int32)
    block = Block(num_dst=len(h), num_src=len(h), start=one, end=one + 1, indices=one, src_ids=one)
    np.testing.assert_array_equal(widen(aggregate(block, h, "sum")), widen(h))
    for weight in (0.7, 1e-4, 3.1):
        scaled = aggregate(replace(block, weight=np.full(len(h), weight, np.float32)), h, "weighted")
        kind = torch.bfloat16 if dtype == BFLOAT16 else torch.float16
        with np.errstate(invalid="ignore", over="ignore"):
            exact = torch.from_numpy(widen(h) * np.float32(weight))
        expected = exact.to(kind).float().numpy()
        np.testing.assert_array_equal(widen(scaled), expected)


@pytest.mark.parametrize("reduce", REDUCES)
def test_non_finite_rows_reach_exactly_their_users(reduce):
    block = transpose(
        Block(
            num_dst=3,
            num_src=4,
            start=np.array([0, 2, 3], np.int32),
            end=np.array([2, 3, 3], np.int32),
            indices=np.array([3, 1, 1], np.int32),
            src_ids=np.arange(4, dtype=np.int32),
            weight=np.ones(3, np.float32),
        )
    )
    h = np.ones((4, 20), np.float32)
    h[3] = np.nan
    assert np.isnan(aggregate(block, h, reduce)).all(axis=1).tolist() == [True, False, False]
    grad = np.ones((3, 20), np.float32)
    grad[2] = np.inf  # has no edges
    assert np.isfinite(aggregate_backward(block, grad, reduce)).all()


def block_of_two():
    return Block(
        num_dst=2,
        num_src=3,
        start=np.array([0, 2], np.int32),
        end=np.array([2, 3], np.int32),
        indices=np.array([2, 0, 1], np.int32),
        src_ids=np.arange(3, dtype=np.int32),
    )


def test_a_transpose_that_is_missing_or_stale_is_refused():
    grad = np.ones((2, 4), np.float32)
    with pytest.raises(InputError, match=r"transpose=\"hidden\""):
        aggregate_backward(block_of_two(), grad, "sum")
    block = transpose(block_of_two())
    block.end[0] = block.start[0]
    with pytest.raises(InputError, match="transpose holds 3 edges, the block 1"):
        aggregate_backward(block, grad, "sum")
    assert aggregate_backward(transpose(block), grad, "sum").tolist() == [[0] * 4, [1] * 4, [0] * 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.array([2, 0, 3], np.int32)}, "local source id outside 0..2"),
        ({"indices": np.array([2, 0, -1], np.int32)}, "local source id outside 0..2"),
        ({"end": np.array([2, 4], np.int32)}, "not ranges"),
        ({"start": np.array([0, -1], np.int32)}, "not ranges"),
        ({"start": np.array([0, 2], np.int64)}, "start is int64"),
        ({"dst_pos": np.array([0, 3], np.int32)}, "dst_pos"),
        ({"num_src": 1}, "2 destinations among 1 sources"),
    ],
)
def test_unsound_blocks_are_refused(change, message):
    block = replace(block_of_two(), **change)
    with pytest.raises(InputError, match=message):
        aggregate(block, np.ones((block.num_src, 4), np.float32), "sum")


@pytest.mark.parametrize("num_edges", [0, 3, 200])
def test_rows_are_refused_unless_they_are_ranges_of_the_edges(num_edges):
    """All combinations of places near the ends of int32: what is computed from them wraps around."""
    low, high = (-(2**31) + k for k in (0, 1, 99, 100, 101, 200)), (2**31 - 200, 2**31 - 1)
    places = [*low, -200, -1, 0, 1, 3, 4, 200, 201, *high]
    for begin, end in itertools.product(places, places):
        block = Block(num_dst=1, num_src=1, start=np.array([begin], np.int32), end=np.array([end], np.int32),
                      indices=np.zeros(num_edges, np.int32), src_ids=np.arange(1))  # fmt: skip
        if 0 <= begin <= end <= num_edges:
            assert aggregate(block, np.ones((1, 1), np.float32), "sum") == end - begin
        else:
            with pytest.raises(InputError, match="not ranges"):
                aggregate(block, np.ones((1, 1), np.float32), "sum")


@pytest.mark.parametrize("bad", [-1, 3])
def test_an_id_is_looked_at_where_its_edge_is_left(bad):
    """Rows side by side are checked in one go, rows that are apart one by one."""
    block = replace(block_of_two(), indices=np.array([2, bad, 1], np.int32), start=np.array([0, 2], np.int32))
    h = np.arange(12, dtype=np.float32).reshape(3, 4)
    for end, sound in (([1, 3], True), ([2, 3], False)):
        given = replace(block, end=np.array(end, np.int32))
        if sound:
            np.testing.assert_array_equal(aggregate(given, h, "sum"), h[[2, 1]])
        else:
            with pytest.raises(InputError, match="local source id"):
                aggregate(given, h, "sum")


def test_what_does_not_fit_is_refused():
    block, h = block_of_two(), np.ones((3, 4), np.float32)
    for call in (
        lambda: aggregate(block, h, "max"),  # type: ignore[arg-type]
        lambda: aggregate(block, h[:2], "sum"),
        lambda: aggregate(block, h.astype(np.int32), "sum"),
        lambda: aggregate(block, h, "weighted"),
        lambda: aggregate(replace(block, weight=np.ones(2, np.float32)), h, "weighted"),
        lambda: aggregate(block, h, "sum", out=np.empty((2, 4))),
        lambda: aggregate(block, h, "sum", out=h[:2]),
        lambda: aggregate(block, h, "sum", threads=0),
    ):
        with pytest.raises(InputError, match="remedy"):
            call()


def test_a_broken_transpose_is_refused():
    block = transpose(replace(block_of_two(), weight=np.ones(3, np.float32)))
    grad = np.ones((2, 4), np.float32)
    for name, value in (("t_edge", 3), ("t_dst", 2), ("t_start", 9)):
        broken = getattr(block, name).copy()
        broken[1] = value
        with pytest.raises(InputError, match="remedy"):
            aggregate_backward(replace(block, **{name: broken}), grad, "weighted")


def test_destinations_that_are_one_source_are_refused():
    block = replace(
        block_of_two(),
        dst_pos=np.array([1, 1], np.int32),
        weight=np.ones(3, np.float32),
        self_weight=np.ones(2, np.float32),
    )
    with pytest.raises(InputError, match="source row 1 twice"):
        aggregate_backward(transpose(block), np.ones((2, 4), np.float32), "weighted")


def test_weights_in_the_order_of_the_transpose_give_the_same_bits():
    block = transpose(block_of_two())
    block.weight, block.self_weight = np.linspace(0.3, 0.9, len(block.indices), dtype=np.float32), None
    grad = rows(block.num_dst, 20, np.float32)
    expected = aggregate_backward(block, grad, "weighted")
    order_weights(block)
    np.testing.assert_array_equal(aggregate_backward(block, grad, "weighted"), expected)
    assert transpose(block).t_weight is None
    block.t_weight = np.zeros(9, np.float32)
    with pytest.raises(InputError, match="t_weight"):
        aggregate_backward(block, grad, "weighted")
