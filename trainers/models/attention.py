"""Softmax attention as differentiable torch operations, and the scores of heads as matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphmill.kernels.layers.attention import EdgeMask, attend_backward
from graphmill.kernels.layers.attention import attend as attend_arrays
from graphmill.kernels.types import Block
from graphmill.trainers.models.ops import as_array


class _Attend(torch.autograd.Function):
    """Softmax attention of a block's destinations; backward over the block's transpose."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, left: Tensor, right: Tensor, block: Block, mask: EdgeMask | None, weight: Any
    ) -> Tensor:
        z, left, right = (each.contiguous() for each in (z, left, right))
        ctx.block, ctx.factors = block, (mask, weight)
        out, alpha = attended(block, z, left, right, mask, weight)
        ctx.save_for_backward(z, left, right, alpha)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        return *attended_backward(ctx.block, ctx.saved_tensors, grads[0], *ctx.factors), None, None, None


def attended(
    block: Block, z: Tensor, left: Tensor, right: Tensor, mask: EdgeMask | None, weight: Any
) -> tuple[Tensor, Tensor]:
    """Returns the attended rows, float[num_dst, H D], and the attention of each edge and own term, which the gradient needs.

    Args:
        block, z, left, right, mask: see `attend`; the tensors are contiguous.
        weight: float[E], factors of the edges after the softmax, or None.
    """
    out = torch.empty((block.num_dst, z.shape[1]), dtype=z.dtype, device=z.device)
    alpha = torch.empty(
        (len(block.indices) + block.num_dst, left.shape[1]),
        dtype=torch.promote_types(z.dtype, torch.float32),
        device=z.device,
    )
    rows, into = (as_array(each) for each in (z, left, right)), {"out": as_array(out), "alpha": as_array(alpha)}
    attend_arrays(block, *rows, mask=mask, weight=weight, **into, threads=torch.get_num_threads())
    return out, alpha


def attended_backward(
    block: Block, kept: Sequence[Tensor], grad: Tensor, mask: EdgeMask | None, weight: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of z, left and right.

    Args:
        block, mask, weight: those of `attended`.
        kept: its z, left and right, and the attention that it returned.
        grad: float[num_dst, H D], the gradient of the attended rows.
    """
    z, left, right, _ = kept
    found = torch.empty_like(z), torch.empty_like(left), torch.empty_like(right)
    rows, into = (as_array(each) for each in (*kept, grad.contiguous())), tuple(as_array(each) for each in found)
    attend_backward(block, *rows, mask=mask, weight=weight, out=into, threads=torch.get_num_threads())
    return found


def by_head(vectors: Tensor) -> Tensor:
    """Returns float[H, H D]: row h has the vector of head h, one of float[H, D], in that head's columns, and zeros; differentiable."""
    heads, depth = vectors.shape
    diagonal = torch.eye(heads, dtype=vectors.dtype, device=vectors.device)
    return (diagonal[:, :, None] * vectors).view(heads, heads * depth)


def attend(
    block: Block, z: Tensor, left: Tensor, right: Tensor, mask: EdgeMask | None = None, *, weighted: bool = False
) -> Tensor:
    """Attends from every destination to its sources and itself, with gradient; see `graphmill.kernels.layers.attention`.

    Args:
        block: the edges; needs its transpose if a gradient is needed.
        z: float[num_src, H D], head after head.
        left: float[num_src, H] and right: float[num_dst, H], the two halves of the scores.
        mask: attention dropout, or None.
        weighted: whether `block.weight` multiplies the attention of each edge after the softmax; the own term has the factor 1.

    Returns:
        float[num_dst, H D].
    """
    weight = block.weight if weighted else None
    return _Attend.apply(z, left, right, block, mask, weight)  # pyright: ignore[reportReturnType]
