"""Kernels as torch operations: gradients, half types, and a step that trains in them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.layers.aggregate import Reduce
from graphmill.kernels.types import Block, Splice
from graphmill.trainers.models.attention import attend
from graphmill.trainers.models.ops import aggregate, beside_own, dropout, maximum, own_rows, relu_dropout, splice
from tests.kernels.graphs import blocks

HALVES = (torch.float16, torch.bfloat16)


def weighted_block(num_dst: int = 30, num_src: int = 80, seed: int = 0) -> Block:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 9, num_dst)
    ends = np.cumsum(lengths).astype(np.int32)
    return transpose(Block(
        num_dst=num_dst, num_src=num_src, start=ends - lengths.astype(np.int32), end=ends,
        indices=generator.integers(0, num_src, ends[-1]).astype(np.int32), src_ids=generator.permutation(num_src),
        weight=generator.random(ends[-1], dtype=np.float32), self_weight=generator.random(num_dst, dtype=np.float32),
    ))  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(block=blocks(max_src=5), reduce=st.sampled_from(["sum", "mean", "weighted"]), width=st.integers(1, 20))
def test_gradients_of_sums_pass_gradcheck(block: Block, reduce: Reduce, width: int) -> None:
    h = torch.randn(block.num_src, width, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: aggregate(transpose(block), h, reduce), (h,))


@settings(max_examples=25, deadline=None)
@given(block=blocks(max_src=5), reduce=st.sampled_from(["sum", "mean", "weighted"]), width=st.integers(1, 20))
def test_own_rows_beside_sums_are_both_and_pass_gradcheck(block: Block, reduce: Reduce, width: int) -> None:
    turned = transpose(block)
    h = torch.randn(block.num_src, width, dtype=torch.float64, requires_grad=True)
    both = torch.cat([own_rows(h, turned), aggregate(turned, h, reduce)], dim=1)
    assert torch.equal(beside_own(turned, h, reduce), both)
    assert torch.autograd.gradcheck(lambda h: beside_own(turned, h, reduce), (h,))


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES])
def test_bias_relu_and_dropout_in_one_are_the_three(dtype: torch.dtype, p: float) -> None:
    x, bias, above = (torch.randn(shape, dtype=dtype) for shape in ((9, 33), (33,), (9, 33)))
    ids, found = np.arange(9) * 5, []
    for composed in (True, False):
        rows, added = x.clone().requires_grad_(), bias.clone().requires_grad_()
        made = rows * 1  # a leaf cannot be overwritten
        out = dropout((made + added).relu(), ids, 7, p) if composed else relu_dropout(made, added, ids, 7, p)
        out.backward(above)
        found.append((out.detach(), rows.grad, added.grad))
    for one, other in zip(*found, strict=True):
        assert one.dtype == dtype and torch.equal(one, other)


@settings(max_examples=15, deadline=None)
@given(block=blocks(max_src=5), heads=st.integers(1, 4), depth=st.integers(1, 10))
def test_gradients_of_attention_pass_gradcheck(block: Block, heads: int, depth: int) -> None:
    shapes = (block.num_src, heads * depth), (block.num_src, heads), (block.num_dst, heads)
    given_ = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda *x: attend(transpose(block), *x), given_)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("reduce", ["sum", "mean", "weighted"])
def test_half_sums_are_float32_sums_rounded_once(reduce: Reduce, dtype: torch.dtype) -> None:
    block = weighted_block()
    h = torch.randn(block.num_src, 37).to(dtype).requires_grad_()
    wide = h.detach().float().requires_grad_()
    out, expected = aggregate(block, h, reduce), aggregate(block, wide, reduce)
    assert out.dtype == dtype and torch.equal(out, expected.to(dtype))
    grad = torch.randn(out.shape).to(dtype)
    out.backward(grad)
    expected.backward(grad.float())
    assert h.grad is not None and wide.grad is not None and torch.equal(h.grad, wide.grad.to(dtype))


def test_a_view_that_is_not_contiguous_is_taken() -> None:
    block = weighted_block()
    h = torch.randn(37, block.num_src, dtype=torch.bfloat16).T
    assert torch.equal(aggregate(block, h, "sum"), aggregate(block, h.contiguous(), "sum"))


@pytest.mark.parametrize("dtype", HALVES)
def test_half_dropout_keeps_and_scales(dtype: torch.dtype) -> None:
    x = torch.ones(50, 8, dtype=dtype, requires_grad=True)
    out = dropout(x, np.arange(50), 3, 0.5)
    assert out.dtype == dtype and set(out.unique().tolist()) == {0.0, 2.0}
    out.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, out.detach())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["weighted", "attend"])
def test_a_model_of_half_precision_learns(kind: str, dtype: torch.dtype) -> None:
    block = weighted_block(num_dst=60, num_src=60)
    block = replace(block, self_weight=np.ones(60, np.float32))
    torch.manual_seed(0)
    layer, labels = torch.nn.Linear(16, 4).to(dtype), torch.randint(0, 4, (60,))
    x = (torch.randn(60, 16) + 2 * torch.eye(4, 16)[labels]).to(dtype)
    optimiser, losses = torch.optim.SGD(layer.parameters(), lr=0.5), []
    for _ in range(40):
        z = layer(x)
        out = aggregate(block, z, "weighted") if kind == "weighted" else attend(block, z, z[:, :2], z[:, 2:])
        loss = torch.nn.functional.cross_entropy(out.float(), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]


def drawn_splice(computed: int, cached: int, seed: int = 0) -> Splice:
    places = np.random.default_rng(seed).permutation(computed + cached).astype(np.int32)
    slots = np.arange(cached, dtype=np.int32)
    return Splice(computed=np.sort(places[:computed]), hist_pos=np.sort(places[computed:]), hist_slot=slots)


@settings(max_examples=25, deadline=None)
@given(computed=st.integers(0, 9), cached=st.integers(1, 9), width=st.integers(1, 20), seed=st.integers(0, 9))
def test_gradients_of_spliced_rows_pass_gradcheck(computed: int, cached: int, width: int, seed: int) -> None:
    places = drawn_splice(computed, cached, seed)
    given_ = [torch.randn(rows, width, dtype=torch.float64, requires_grad=True) for rows in (computed, cached)]
    out = splice(*given_, places)
    assert torch.equal(out[places.computed], given_[0]) and torch.equal(out[places.hist_pos], given_[1])
    assert torch.autograd.gradcheck(lambda *rows: splice(*rows, places), given_)
    kept = given_[1].detach()  # as the history's, which need no gradient
    assert torch.autograd.gradcheck(lambda rows: splice(rows, kept, places), given_[:1])


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
def test_cached_rows_take_the_type_of_the_computed_ones(dtype: torch.dtype) -> None:
    places = drawn_splice(5, 4)
    computed = torch.randn(5, 7).to(dtype).requires_grad_()
    cached = torch.randn(4, 7).requires_grad_()
    out = splice(computed, cached, places)
    assert out.dtype == dtype and torch.equal(out[places.hist_pos], cached.to(dtype))
    grad = torch.randn(9, 7).to(dtype)
    out.backward(grad)
    assert computed.grad is not None and cached.grad is not None and cached.grad.dtype == torch.float32
    assert torch.equal(computed.grad, grad[places.computed]) and torch.equal(cached.grad, grad[places.hist_pos].float())


def test_the_maximum_skips_removed_edges_and_shares_the_gradient_of_equals() -> None:
    """Rows by hand: of destination 0 sources 0 and 1, of 1 nothing any more, of 2 sources 2, 0 and 2 again."""
    block = Block(
        num_dst=3,
        num_src=3,
        start=np.array([0, 2, 3], np.int32),
        end=np.array([2, 2, 6], np.int32),
        indices=np.array([0, 1, 1, 2, 0, 2], np.int32),
        src_ids=np.arange(3, dtype=np.int32),
    )
    x = torch.tensor([[1.0, -5.0], [1.0, -4.0], [0.5, 9.0]], requires_grad=True)
    out = maximum(block, x)
    assert out.tolist() == [[1.0, -4.0], [0.0, 0.0], [1.0, 9.0]]
    out.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[1.5, 0.0], [0.5, 1.0], [0.0, 1.0]]
    empty = replace(block, start=np.zeros(3, np.int32), end=np.zeros(3, np.int32), indices=np.zeros(0, np.int32))
    assert maximum(empty, x).tolist() == [[0.0, 0.0]] * 3
