"""Softmax attention: native equals the rule, gradients equal finite differences, masks follow edges wherever they lie."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.arrays import BFLOAT16, narrow, widen
from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.attention import attend, attend_backward, attend_reference, edge_mask, edge_mask_reference
from graphmill.kernels.types import Array, Block
from tests.kernels.graphs import blocks


def inputs(block: Block, heads: int, depth: int, dtype: type = np.float64, seed: int = 0):
    generator = np.random.default_rng(seed)
    z = narrow(generator.standard_normal((block.num_src, heads * depth)), dtype)
    left = narrow(generator.standard_normal((block.num_src, heads)), dtype)
    return z, left, narrow(generator.standard_normal((block.num_dst, heads)), dtype)


@settings(max_examples=60, deadline=None)
@given(
    block=blocks(),
    heads=st.one_of(st.integers(1, 8), st.integers(9, 40)),
    depth=st.one_of(st.integers(0, 9), st.integers(10, 150)),
    p=st.sampled_from([0.0, 0.4]),
    key=st.integers(0, 99),
    weighted=st.booleans(),
    of_edges=st.booleans(),
)
def test_native_equals_the_rule(
    block: Block, heads: int, depth: int, p: float, key: int, weighted: bool, of_edges: bool
) -> None:
    mask, expected_mask = edge_mask(block, heads, key, p), edge_mask_reference(block, heads, key, p)
    np.testing.assert_array_equal(mask.kept, expected_mask.kept)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        given_, weight = inputs(block, heads, depth, dtype), block.weight if weighted else None
        space, more = np.zeros((len(mask.kept), heads), dtype), {"mask": mask if p else None, "weight": weight}
        more |= {"edge": terms(block, heads, dtype) if of_edges else None}
        out, alpha = attend(block, *given_, **more, alpha=space)
        expected_out, expected_alpha = attend_reference(block, *given_, **more)
        np.testing.assert_allclose(alpha, expected_alpha, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(out, expected_out, rtol=tolerance, atol=10 * tolerance)


@settings(max_examples=30, deadline=None)
@given(
    block=blocks(),
    heads=st.integers(1, 9),
    depth=st.integers(1, 40),
    dtype=st.sampled_from([np.dtype(np.float16), BFLOAT16]),
)
def test_half_rows_are_the_float32_result_rounded_once(block: Block, heads: int, depth: int, dtype) -> None:
    block = transpose(block)
    halves = inputs(block, heads, depth, dtype)
    wide = [widen(array) for array in halves]
    out, alpha = attend(block, *halves)
    wide_out, wide_alpha = attend(block, *wide)
    np.testing.assert_array_equal(out, narrow(wide_out, dtype))
    live = np.concatenate([*[np.arange(a, b) for a, b in zip(block.start, block.end, strict=True)], np.arange(0)])
    np.testing.assert_array_equal(alpha[live.astype(int)], wide_alpha[live.astype(int)])
    grads = attend_backward(block, *halves, alpha, out)
    for mine, expected in zip(grads, attend_backward(block, *wide, alpha, widen(out)), strict=True):
        np.testing.assert_array_equal(mine, narrow(expected, dtype))


@settings(max_examples=25, deadline=None)
@given(
    block=blocks(max_src=5),
    heads=st.integers(1, 2),
    depth=st.integers(1, 3),
    p=st.sampled_from([0.0, 0.4]),
    weighted=st.booleans(),
    of_edges=st.booleans(),
)
def test_gradients_equal_finite_differences(
    block: Block, heads: int, depth: int, p: float, weighted: bool, of_edges: bool
) -> None:
    block, given_ = transpose(block), list(inputs(block, heads, depth))
    weight = block.weight if weighted else None
    mask = edge_mask(block, heads, 3, p) if p else None
    grad_out = np.random.default_rng(1).standard_normal((block.num_dst, heads * depth))
    edge = terms(block, heads) if of_edges else None
    grad_edge = None if edge is None else np.zeros_like(edge)
    more = {"mask": mask, "weight": weight, "edge": edge}
    alpha = attend(block, *given_, **more)[1]
    grads = attend_backward(block, *given_, alpha, grad_out, **more, grad_edge=grad_edge)
    given_, grads = [*given_, *([] if edge is None else [edge])], [*grads, *([] if grad_edge is None else [grad_edge])]
    for number, (array, grad) in enumerate(zip(given_, grads, strict=True)):
        for at in np.ndindex(array.shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = array.copy()
                moved[at] += step
                z, left, right, *of_edge = *given_[:number], moved, *given_[number + 1 :]
                more["edge"] = of_edge[0] if of_edge else None
                out = attend_reference(block, z, left, right, **more)[0]
                sides.append((out * grad_out).sum())
            assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(grad[at], abs=1e-6)


def terms(block: Block, heads: int, dtype=np.float64) -> Array:
    """Drawn terms of the scores of edges and own terms."""
    shape = (len(block.indices) + block.num_dst, heads)
    return np.random.default_rng(9).standard_normal(shape).astype(dtype)


def skewed_block() -> Block:
    generator = np.random.default_rng(5)
    lengths = np.concatenate([[4000, 0, 1], generator.integers(0, 9, 300)])
    ends = np.cumsum(lengths).astype(np.int32)
    return transpose(Block(
        num_dst=len(lengths), num_src=700, start=ends - lengths.astype(np.int32), end=ends,
        indices=generator.integers(0, 700, ends[-1]).astype(np.int32), src_ids=generator.permutation(9999)[:700],
    ))  # fmt: skip


def test_bits_do_not_depend_on_threads() -> None:
    block = skewed_block()
    given_, results = inputs(block, 3, 5, np.float32), []
    weight = np.random.default_rng(2).random(len(block.indices)).astype(np.float32)
    for threads in (1, 2, 8):
        mask = edge_mask(block, 3, 11, 0.3, threads=threads)
        out, alpha = attend(block, *given_, mask=mask, weight=weight, threads=threads)
        grads = attend_backward(block, *given_, alpha, out, mask=mask, weight=weight, threads=threads)
        results.append([array.tobytes() for array in (mask.kept, out, alpha, *grads)])
    assert results[0] == results[1] == results[2]


def hub_block(num_edges: int, num_dst: int) -> Block:
    """Destination 0 has num_edges edges, the others one each from source 5."""
    generator = np.random.default_rng(6)
    ends = num_edges + np.arange(num_dst, dtype=np.int32)
    indices = np.concatenate([generator.integers(0, num_dst, num_edges), np.full(num_dst - 1, 5)]).astype(np.int32)
    return transpose(Block(
        num_dst=num_dst, num_src=num_dst, start=np.concatenate([[0], ends[:-1]]).astype(np.int32), end=ends,
        indices=indices, src_ids=np.arange(num_dst),
    ))  # fmt: skip


def test_a_million_edges_of_one_row_have_the_same_bits_on_any_team() -> None:
    block, results = hub_block(1_000_000, 20_000), []
    given_ = inputs(block, 4, 16, np.float32)
    mask = edge_mask(block, 4, 11, 0.3, threads=2)
    for threads in (1, 2, 8):
        out, alpha = attend(block, *given_, mask=mask, threads=threads)
        grads = attend_backward(block, *given_, alpha, given_[0], mask=mask, threads=threads)
        results.append([array.tobytes() for array in (out, alpha, *grads)])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(("heads", "depth"), [(4, 25), (1, 64), (2, 8), (3, 21), (5, 100)])
def test_hubs_and_streamed_rows_equal_a_dense_formula(heads: int, depth: int) -> None:
    block = hub_block(9_000, 9_500)
    given_ = inputs(block, heads, depth)
    mask = edge_mask(block, heads, 5, 0.4)
    rows = np.arange(block.num_dst)
    weight = np.random.default_rng(4).standard_normal(len(block.indices)).astype(np.float32) if heads % 2 else None
    sources = torch.from_numpy(np.concatenate([block.indices, rows])).long()
    dsts = torch.from_numpy(np.concatenate([np.repeat(rows, block.end - block.start), rows]))
    z, left, right = (torch.from_numpy(array).requires_grad_() for array in given_)
    power = torch.exp(torch.nn.functional.leaky_relu(left[sources] + right[dsts], 0.2))
    weights = power / torch.zeros_like(right).index_add(0, dsts, power)[dsts]
    kept = torch.from_numpy(mask.kept).double() * mask.scale
    if weight is not None:
        kept[: len(weight)] *= torch.from_numpy(weight)[:, None]
    products = (weights * kept)[:, :, None] * z.view(-1, heads, depth)[sources]
    expected = torch.zeros(block.num_dst, heads, depth, dtype=z.dtype).index_add(0, dsts, products).flatten(1)
    expected.backward(z.detach())
    out, alpha = attend(block, *given_, mask=mask, weight=weight, threads=2)
    grads = attend_backward(block, *given_, alpha, given_[0], mask=mask, weight=weight, threads=2)
    np.testing.assert_allclose(out, expected.detach().numpy(), rtol=1e-11, atol=1e-12)
    for mine, tensor in zip(grads, (z, left, right), strict=True):
        np.testing.assert_allclose(mine, tensor.grad.numpy(), rtol=1e-10, atol=1e-11)  # pyright: ignore[reportOptionalMemberAccess]


def test_weights_of_a_row_sum_to_one_even_when_scores_are_huge() -> None:
    block = skewed_block()
    z, left, right = inputs(block, 2, 4, np.float32)
    _, alpha = attend(block, z, 1e4 * left, 1e4 * right)
    sums = np.add.reduceat(np.vstack([alpha[: len(block.indices)], np.zeros((1, 2), np.float32)]), block.start)
    sums = np.where((block.end > block.start)[:, None], sums, 0) + alpha[len(block.indices) :]
    np.testing.assert_allclose(sums, 1, atol=1e-4)


def test_a_nan_spoils_its_own_rows_only() -> None:
    block = replace(skewed_block(), start=np.arange(303, dtype=np.int32), end=np.arange(1, 304, dtype=np.int32))
    z, left, right = inputs(block, 1, 4)
    left[block.indices[7]] = np.nan
    out, _ = attend(block, z, left, right)
    touched = (block.indices[block.start] == block.indices[7]) | (np.arange(303) == block.indices[7])
    assert np.isnan(out[touched]).all() and np.isfinite(out[~touched]).all()


def test_masks_are_named_by_the_edge_and_not_by_its_place() -> None:
    """The same edge in a block with other rows, other local ids and another order has the same mask."""
    ids = np.array([40, 7, 19, 3])
    first = Block(num_dst=2, num_src=4, start=np.array([0, 3], np.int32), end=np.array([3, 5], np.int32),
                  indices=np.array([2, 3, 2, 0, 3], np.int32), src_ids=ids)  # fmt: skip
    second = Block(num_dst=1, num_src=3, start=np.array([0], np.int32), end=np.array([3], np.int32),
                   indices=np.array([0, 0, 2], np.int32), src_ids=np.array([19, 40, 3]), dst_pos=np.array([1], np.int32))  # fmt: skip
    a, b = (edge_mask(block, 64, 5, 0.5).kept for block in (first, second))
    np.testing.assert_array_equal(a[0], b[0])  # 19 -> 40, the first time
    np.testing.assert_array_equal(a[2], b[1])  # 19 -> 40 again
    np.testing.assert_array_equal(a[1], b[2])  # 3 -> 40
    np.testing.assert_array_equal(a[5], b[3])  # 40's own term
    assert (a[0] != a[2]).any() and (a[0] != edge_mask(first, 64, 6, 0.5).kept[0]).any()


def test_the_share_of_dropped_weights_is_p() -> None:
    kept = edge_mask(skewed_block(), 8, 1, 0.25).kept
    assert abs(kept.mean() - 0.75) < 0.01 and abs(kept.mean(axis=0) - 0.75).max() < 0.02


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"right": np.zeros((303, 1))}, "heads do not fit"),
        ({"z": np.zeros((700, 7))}, "heads do not fit"),
        ({"left": np.zeros((700, 2), np.float32)}, "heads do not fit"),
        ({"z": np.zeros((699, 8))}, "z is float64"),
        ({"weight": np.zeros(3, np.float32)}, "weight is float32"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(change: dict, message: str) -> None:
    block = skewed_block()
    arrays = dict(zip(("z", "left", "right"), inputs(block, 2, 4), strict=True)) | change
    with pytest.raises(InputError, match=message):
        attend(block, **arrays)


def test_backward_needs_a_transpose_of_the_present_edges() -> None:
    block = skewed_block()
    given_ = inputs(block, 2, 4)
    out, alpha = attend(block, *given_)
    changed = {
        "no transpose": replace(block, t_start=None),
        "transpose holds 5190 edges, the block 0": replace(block, end=block.start),
    }
    for problem, stale in changed.items():
        with pytest.raises(InputError, match=problem):
            attend_backward(stale, *given_, alpha, out)
