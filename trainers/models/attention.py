"""Softmax attention as differentiable torch operations, and the scores of heads as matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.layers.attention import EdgeMask, attend_backward
from kernels.layers.attention import attend as attend_arrays
from kernels.types import Block
from trainers.models.ops import as_array, own_rows


class _Attend(torch.autograd.Function):
    """Softmax attention of a block's destinations; backward over the block's transpose."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, left: Tensor, right: Tensor, block: Block, mask: EdgeMask | None, weight: Any
    ) -> Tensor:
        z, left, right = (each.contiguous() for each in (z, left, right))
        out = torch.empty((block.num_dst, z.shape[1]), dtype=z.dtype, device=z.device)
        alpha = torch.empty(
            (len(block.indices) + block.num_dst, left.shape[1]),
            dtype=torch.promote_types(z.dtype, torch.float32),
            device=z.device,
        )
        attend_arrays(
            block, as_array(z), as_array(left), as_array(right),
            mask=mask, weight=weight, out=as_array(out), alpha=as_array(alpha), threads=torch.get_num_threads(),
        )  # fmt: skip
        ctx.block, ctx.factors = block, {"mask": mask, "weight": weight}
        ctx.save_for_backward(z, left, right, alpha)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        z, left, right, alpha = (as_array(tensor) for tensor in ctx.saved_tensors)
        grad, threads = as_array(grads[0].contiguous()), torch.get_num_threads()
        found = [torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3]]
        out = as_array(found[0]), as_array(found[1]), as_array(found[2])
        attend_backward(ctx.block, z, left, right, alpha, grad, **ctx.factors, out=out, threads=threads)
        return *found, None, None, None  # pyright: ignore[reportReturnType]


class _AttendHeads(torch.autograd.Function):
    """The same from vectors of heads, which are multiplied with the rows here: no matrix of the rows' size is written for the scores."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, left: Tensor, right: Tensor, block: Block, mask: EdgeMask | None, weight: Any
    ) -> Tensor:
        left_of, right_of = (by_heads(each).to(z.dtype) for each in (left, right))
        halves = z @ left_of, own_rows(z, block) @ right_of
        ctx.vectors, ctx.maps = left, (left_of, right_of)
        return _Attend.forward(ctx, z, *halves, block, mask, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        z, block = ctx.saved_tensors[0], ctx.block
        found, left, right = _Attend.backward(ctx, *grads)[:3]
        left_of, right_of = ctx.maps
        maps = z.T @ left, own_rows(z, block).T @ right
        found.addmm_(left, left_of.T)
        if block.dst_pos is None:
            found[: block.num_dst].addmm_(right, right_of.T)
        else:
            found[torch.as_tensor(block.dst_pos).long()] += right @ right_of.T  # each place once
        vectors = (_vectors(each, ctx.vectors) for each in maps)
        return found, *vectors, None, None, None  # pyright: ignore[reportReturnType]


def by_heads(vectors: Tensor) -> Tensor:
    """Returns float[H D, H], by which rows of H D columns, head after head, give each head's product with its vector of float[H, D]."""
    return torch.block_diag(*vectors[:, :, None])


def _vectors(grad: Tensor, like: Tensor) -> Tensor:
    """Returns the gradient of vectors `like`, float[H, D], from that of `by_heads`' result."""
    heads, depth = like.shape
    return grad.view(heads, depth, heads).diagonal(dim1=0, dim2=2).T.to(like.dtype)


def attend(
    block: Block, z: Tensor, left: Tensor, right: Tensor, mask: EdgeMask | None = None, *, weighted: bool = False
) -> Tensor:
    """Attends from every destination to its sources and itself, with gradient; see `kernels.layers.attention`.

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


def attend_heads(
    block: Block, z: Tensor, left: Tensor, right: Tensor, mask: EdgeMask | None = None, *, weighted: bool = False
) -> Tensor:
    """Attends as `attend` does, by scores that are products of each row with its heads' vectors, with gradient.

    Args:
        block, z, mask, weighted: see `attend`.
        left, right: float[H, D], the vectors for sources and for destinations.

    Returns:
        float[num_dst, H D].
    """
    weight = block.weight if weighted else None
    return _AttendHeads.apply(z.contiguous(), left, right, block, mask, weight)  # pyright: ignore[reportReturnType]
