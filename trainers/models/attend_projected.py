"""Attention of a GAT layer from projected rows and attention vectors, as one differentiable operation.

The scores' halves of all heads are one product: a matrix whose columns are the attention vectors, each in the rows of its head. So a
projected row is read once for them, and their gradient is added to that of the attended rows where it lies. Made by products and sums of
single heads, they write and read a matrix of the rows' size three times in each direction, a quarter of an uncut pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from graphmill.kernels.layers.attention import EdgeMask
from graphmill.kernels.types import Block
from graphmill.trainers.models.attention import attended, attended_backward, by_head
from graphmill.trainers.models.ops import own_rows


class _AttendProjected(torch.autograd.Function):
    """Scores from projected rows, and softmax attention by them; backward over the block's transpose."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, left: Tensor, right: Tensor, block: Block, mask: EdgeMask | None, weight: Any
    ) -> Tensor:
        z, heads = z.contiguous(), len(left)
        vectors = torch.cat([by_head(left), by_head(right)])
        scores = functional.linear(z, vectors)
        of_left, of_right = scores[:, :heads].contiguous(), own_rows(scores[:, heads:], block).contiguous()
        ctx.block, ctx.factors = block, (mask, weight)
        out, alpha = attended(block, z, of_left, of_right, mask, weight)
        ctx.save_for_backward(z, of_left, of_right, alpha, vectors)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        *kept, vectors = ctx.saved_tensors
        z, heads = kept[0], kept[1].shape[1]
        below, left, right = attended_backward(ctx.block, kept, grads[0], *ctx.factors)
        of_scores = _side_by_side(left, right, ctx.block)
        of_vectors = of_scores.T @ z
        left, right = _own_columns(of_vectors[:heads]), _own_columns(of_vectors[heads:])
        return below.addmm_(of_scores, vectors), left, right, None, None, None


def attend_projected(
    block: Block, z: Tensor, left: Tensor, right: Tensor, mask: EdgeMask | None = None, *, weighted: bool = False
) -> Tensor:
    """Attends from every destination to its sources and itself, with gradient; see `graphmill.kernels.layers.attention`.

    Args:
        block: the edges; needs its transpose if a gradient is needed.
        z: float[num_src, H D], head after head.
        left, right: float[H, D], of z's type: the two halves of the attention vector, for sources and for destinations.
        mask: attention dropout, or None.
        weighted: whether `block.weight` multiplies the attention of each edge after the softmax; the own term has the factor 1.

    Returns:
        float[num_dst, H D].
    """
    weight = block.weight if weighted else None
    return _AttendProjected.apply(z, left, right, block, mask, weight)  # pyright: ignore[reportReturnType]


def _own_columns(rows: Tensor) -> Tensor:
    """Returns float[H, D], the columns of each head from its own row of float[H, H D]."""
    heads = len(rows)
    return rows.view(heads, heads, -1).diagonal(dim1=0, dim2=1).T.contiguous()


def _side_by_side(left: Tensor, right: Tensor, block: Block) -> Tensor:
    """Returns float[num_src, 2 H]: gradients of the left halves, and those of the right halves in their own nodes' rows."""
    heads = left.shape[1]
    both = left.new_zeros((len(left), 2 * heads))
    both[:, :heads] = left
    if block.dst_pos is None:
        both[: block.num_dst, heads:] = right
    else:
        both[torch.as_tensor(block.dst_pos, device=left.device).long(), heads:] = right
    return both
