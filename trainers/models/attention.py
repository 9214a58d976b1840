"""Softmax attention as differentiable torch operations, and the scores of heads as matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.layers.attention import EdgeMask, attend_backward
from kernels.layers.attention import attend as attend_arrays
from kernels.types import Block
from trainers.models.ops import as_array


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


def by_head(vectors: Tensor) -> Tensor:
    """Returns float[H, H D]: row h has the vector of head h, one of float[H, D], in that head's columns, and zeros; differentiable."""
    heads, depth = vectors.shape
    diagonal = torch.eye(heads, dtype=vectors.dtype, device=vectors.device)
    return (diagonal[:, :, None] * vectors).view(heads, heads * depth)


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
