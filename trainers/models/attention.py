"""Softmax attention as differentiable torch operations, and the scores of heads as matrix products.

Attention from projected rows is one operation: the scores' halves of all heads are one product with a matrix whose columns are the
attention vectors, each in the rows of its head. So a projected row is read once for them, and their gradient is added to that of the
attended rows where it lies. Made by products and sums of single heads, they write and read a matrix of the rows' size three times in each
direction, a quarter of an uncut pass.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphmill.kernels.blocks.edge_index import EdgeIndexBlock
from graphmill.kernels.layers.attention import EdgeMask, attend_backward
from graphmill.kernels.layers.attention import attend as attend_arrays
from graphmill.kernels.types import Block
from graphmill.trainers.models.ops import as_array, own_places, own_rows
from graphmill.trainers.models.products import add_times, summed_over_rows, times

Factors = tuple[EdgeMask | None, Any]
"""The mask of edges, and f32[E] or None, what multiplies the attention of each after the softmax."""


class _Attend(torch.autograd.Function):
    """Softmax attention of a block's destinations; backward over the block's transpose."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, left: Tensor, right: Tensor, edge: Tensor | None, block: Block, factors: Factors
    ) -> Tensor:
        z, left, right = (each.contiguous() for each in (z, left, right))
        ctx.block, ctx.factors = block, factors
        out, alpha = attended(block, z, left, right, *factors, edge)
        ctx.save_for_backward(z, left, right, alpha, edge)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *kept, edge = ctx.saved_tensors
        return *attended_backward(ctx.block, kept, grads[0], *ctx.factors, edge=edge), None, None


def attended(
    block: Block, z: Tensor, left: Tensor, right: Tensor, mask: EdgeMask | None, weight: Any, edge: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns the attended rows, float[num_dst, H D], and the attention of each edge and own term, which the gradient needs.

    Args:
        block, z, left, right, mask: see `attend`; the tensors are contiguous.
        weight: float[E], factors of the edges after the softmax, or None.
        edge: float[E + num_dst, H], what is added to the scores of edges and own terms, or None.
    """
    out = torch.empty((block.num_dst, z.shape[1]), dtype=z.dtype, device=z.device)
    alpha = torch.empty(
        (len(block.indices) + block.num_dst, left.shape[1]),
        dtype=torch.promote_types(z.dtype, torch.float32),
        device=z.device,
    )
    rows, into = (as_array(each) for each in (z, left, right)), {"out": as_array(out), "alpha": as_array(alpha)}
    of_edges = None if edge is None else as_array(edge)
    attend_arrays(block, *rows, mask=mask, weight=weight, edge=of_edges, **into, threads=torch.get_num_threads())
    return out, alpha


def attended_backward(
    block: Block, kept: Sequence[Tensor], grad: Tensor, mask: EdgeMask | None, weight: Any, edge: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Returns the gradients of z, left, right and edge, None without `edge`.

    Args:
        kept: its z, left and right, and the attention that it returned.
        grad: float[num_dst, H D], the gradient of the attended rows.
    """
    z, left, right, _ = kept
    found = torch.empty_like(z), torch.empty_like(left), torch.empty_like(right)
    rows, into = (as_array(each) for each in (*kept, grad.contiguous())), tuple(as_array(each) for each in found)
    of_edges: dict[str, Any] = {}
    below = None if edge is None else torch.zeros_like(edge)
    if edge is not None and below is not None:
        of_edges = {"edge": as_array(edge), "grad_edge": as_array(below)}
    attend_backward(block, *rows, mask=mask, weight=weight, out=into, threads=torch.get_num_threads(), **of_edges)
    return *found, below


def by_head(vectors: Tensor) -> Tensor:
    """Returns float[H, H D]: row h has the vector of head h, one of float[H, D], in that head's columns, and zeros; differentiable."""
    heads, depth = vectors.shape
    diagonal = torch.eye(heads, dtype=vectors.dtype, device=vectors.device)
    return (diagonal[:, :, None] * vectors).view(heads, heads * depth)


def attend(
    block: Block | EdgeIndexBlock,
    z: Tensor,
    left: Tensor,
    right: Tensor,
    mask: EdgeMask | None = None,
    *,
    weighted: bool = False,
    edge: Tensor | None = None,
) -> Tensor:
    """Attends from every destination to its sources and itself, with gradient; see `graphmill.kernels.layers.attention`.

    Args:
        block: the edges; needs its transpose if a gradient is needed.
        z: float[num_src, H D], head after head.
        left: float[num_src, H] and right: float[num_dst, H], the two halves of the scores.
        weighted: whether `block.weight` multiplies the attention of each edge after the softmax; the own term has the factor 1.
        edge: float[E + num_dst, H], what features of edges add to the scores of edges and own terms, or None.

    Returns:
        float[num_dst, H D].
    """
    if isinstance(block, EdgeIndexBlock):
        return block.attend(z, left, right, weighted)
    factors = mask, block.weight if weighted else None
    return _Attend.apply(z, left, right, edge, block, factors)  # pyright: ignore[reportReturnType]


class _AttendProjected(torch.autograd.Function):
    """Scores from projected rows, and softmax attention by them; backward over the block's transpose."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, left: Tensor, right: Tensor, edge: Tensor | None, block: Block, factors: Factors
    ) -> Tensor:
        z, heads = z.contiguous(), len(left)
        vectors = torch.cat([by_head(left), by_head(right)])
        scores = times(z, vectors)
        of_left, of_right = scores[:, :heads].contiguous(), own_rows(scores[:, heads:], block).contiguous()
        ctx.block, ctx.factors = block, factors
        out, alpha = attended(block, z, of_left, of_right, *factors, edge)
        ctx.save_for_backward(z, of_left, of_right, alpha, vectors, edge)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *kept, vectors, edge = ctx.saved_tensors
        z, heads = kept[0], kept[1].shape[1]
        below, left, right, of_edge = attended_backward(ctx.block, kept, grads[0], *ctx.factors, edge=edge)
        of_scores = _side_by_side(left, right, ctx.block)
        of_vectors = summed_over_rows(of_scores, z)
        left, right = _own_columns(of_vectors[:heads]), _own_columns(of_vectors[heads:])
        return add_times(below, of_scores, vectors.T), left, right, of_edge, None, None


def attend_projected(
    block: Block | EdgeIndexBlock,
    z: Tensor,
    left: Tensor,
    right: Tensor,
    mask: EdgeMask | None = None,
    *,
    weighted: bool = False,
    edge: Tensor | None = None,
) -> Tensor:
    """As `attend`, from left, right: float[H, D], of z's type, the two halves of the attention vector, for sources and destinations."""
    if isinstance(block, EdgeIndexBlock):
        rows = z.view(z.shape[0], *left.shape)
        return block.attend(z, (rows * left).sum(2), (rows[block.dst_pos] * right).sum(2), weighted)
    factors = mask, block.weight if weighted else None
    return _AttendProjected.apply(z, left, right, edge, block, factors)  # pyright: ignore[reportReturnType]


def _own_columns(rows: Tensor) -> Tensor:
    """Returns float[H, D], the columns of each head from its own row of float[H, H D]."""
    heads = len(rows)
    return rows.view(heads, heads, -1).diagonal(dim1=0, dim2=1).T.contiguous()


def _side_by_side(left: Tensor, right: Tensor, block: Block) -> Tensor:
    """Returns float[num_src, 2 H]: gradients of the left halves, and those of the right halves in their own nodes' rows."""
    heads = left.shape[1]
    both = left.new_zeros((len(left), 2 * heads))
    both[:, :heads] = left
    both[own_places(block), heads:] = right
    return both
