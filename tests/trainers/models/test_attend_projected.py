"""Attention from projected rows and attention vectors has the values and gradients of its parts."""

import numpy as np
import pytest
import torch

from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.layers.attention import edge_mask
from graphmill.kernels.types import Block
from graphmill.trainers.models.attention import attend, attend_projected
from graphmill.trainers.models.ops import own_rows
from tests.kernels.graphs import random_topology


def drawn_block(own_apart):
    """Returns a block of 30 destinations among 50 sources."""
    graph = random_topology(50, 200, seed=1)
    indptr = graph.indptr[:31].astype(np.int32)
    places = np.random.default_rng(0).permutation(50)[:30].astype(np.int32) if own_apart else None
    return transpose(
        Block(
            num_dst=30, num_src=50, start=indptr[:-1], end=indptr[1:], indices=graph.indices[: indptr[-1]].astype(np.int32),
            src_ids=np.arange(50), dst_pos=places,
        )
    )  # fmt: skip


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("own_apart", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_values_and_gradients_are_those_of_the_parts(heads, own_apart, p):
    block, generator = drawn_block(own_apart), torch.Generator().manual_seed(0)
    shapes = (50, 12), (heads, 12 // heads), (heads, 12 // heads)
    given = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]
    above = torch.randn(30, 12, generator=generator, dtype=torch.float64)
    mask = edge_mask(block, heads, 7, p) if p else None
    ours = [each.clone().requires_grad_() for each in given]
    out = attend_projected(block, *ours, mask)
    out.backward(above)
    parts = [each.clone().requires_grad_() for each in given]
    by_head = parts[0].view(50, heads, -1)
    left, right = (by_head * parts[1]).sum(2), (own_rows(by_head, block) * parts[2]).sum(2)
    expected = attend(block, parts[0], left, right, mask)
    expected.backward(above)
    torch.testing.assert_close(out, expected)
    for mine, other in zip(ours, parts, strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
