"""Kernels as differentiable torch operations.

Tensors are float32, float64, float16 or bfloat16; an output has the type of its input, and sums of the last two are kept in float32.
Outputs are allocated by torch: its allocator aligns to 64 bytes, and matrix products round the same only if the alignment is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels.layers.aggregate import Reduce, aggregate_backward
from kernels.layers.aggregate import aggregate as aggregate_arrays
from kernels.layers.attention import EdgeMask, attend_backward
from kernels.layers.attention import attend as attend_arrays
from kernels.layers.dropout import dropout as dropout_arrays
from kernels.rows.move_rows import place_rows
from kernels.types import Array, Block, Splice


def as_array(tensor: Tensor) -> Any:
    """Returns the tensor's memory as kernels take it: on a device the tensor, else an array (bfloat16, which NumPy lacks, as uint16)."""
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        return tensor
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


class _Aggregate(torch.autograd.Function):
    """Sum, mean or weighted sum of a block's sources into its destinations; backward over the block's transpose."""

    @staticmethod
    def forward(ctx: Any, h_src: Tensor, block: Block, reduce: Reduce) -> Tensor:
        ctx.block, ctx.reduce = block, reduce
        h_src = h_src.contiguous()
        out = torch.empty((block.num_dst, h_src.shape[1]), dtype=h_src.dtype, device=h_src.device)
        aggregate_arrays(block, as_array(h_src), reduce, out=as_array(out), threads=torch.get_num_threads())
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return aggregate_grad(ctx.block, grads[0], ctx.reduce), None, None


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


class _MapPieces(torch.autograd.Function):
    """Maps pieces of rows, each by a matrix of its own: one product per piece, into one result."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: tuple[int, ...], *matrices: Tensor) -> Tensor:
        kind, ctx.counts = rows.device.type, counts
        ctx.dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else rows.dtype
        ctx.save_for_backward(rows, *matrices)
        return _mapped(rows, counts, [matrix.T for matrix in matrices], ctx.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (rows, *matrices) = grads, ctx.saved_tensors
        below = _mapped(grad, ctx.counts, matrices, ctx.dtype) if ctx.needs_input_grad[0] else None
        pieces = zip(matrices, grad.split(ctx.counts), rows.split(ctx.counts), strict=True)
        found = [(above.to(ctx.dtype).T @ row.to(ctx.dtype)).to(matrix.dtype) for matrix, above, row in pieces]
        return below, None, *found


class _MapBoth(torch.autograd.Function):
    """a A^T + b + c C^T, the second product being added to the first in its place."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, a_map: Tensor, bias: Tensor, c: Tensor, c_map: Tensor) -> Tensor:
        ctx.save_for_backward(a, a_map, c, c_map)
        return torch.addmm(bias, a, a_map.T).addmm_(c, c_map.T)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (a, a_map, c, c_map), needed = grads, ctx.saved_tensors, ctx.needs_input_grad
        return (
            grad @ a_map if needed[0] else None,
            grad.T @ a if needed[1] else None,
            grad.sum(0) if needed[2] else None,
            grad @ c_map if needed[3] else None,
            grad.T @ c if needed[4] else None,
        )


class _MapTwice(torch.autograd.Function):
    """Two maps of the same rows as one product, and one product of their gradients."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        maps = torch.cat([first, second])
        ctx.save_for_backward(rows, maps)
        found = rows @ maps.T
        return found[:, : len(first)].contiguous(), found[:, len(first) :].contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        rows, maps = ctx.saved_tensors
        grad = torch.cat(grads, dim=1)
        below, found = grad @ maps if ctx.needs_input_grad[0] else None, grad.T @ rows
        return below, *found.split([grads[0].shape[1], grads[1].shape[1]])


class _Dropout(torch.autograd.Function):
    """Keyed dropout; the backward pass draws the same mask again instead of keeping it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, node_ids: Array, key: int, p: float) -> Tensor:
        ctx.node_ids, ctx.key, ctx.p = node_ids, key, p
        return _dropped(x, node_ids, key, p)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return _dropped(grads[0], ctx.node_ids, ctx.key, ctx.p), None, None, None


class _Splice(torch.autograd.Function):
    """Rows of two matrices side by side in the order of a block's sources; backward takes them apart again."""

    @staticmethod
    def forward(ctx: Any, computed: Tensor, cached: Tensor, splice: Splice) -> Tensor:
        ctx.splice, ctx.dtype = splice, cached.dtype
        num_src = len(splice.computed) + len(splice.hist_pos)
        out = torch.empty((num_src, computed.shape[1]), dtype=computed.dtype, device=computed.device)
        _place(computed, None, out, splice.computed)
        _place(cached.to(computed.dtype), None, out, splice.hist_pos)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        grad, splice = grads[0].contiguous(), ctx.splice
        found = []
        for rows in (splice.computed, splice.hist_pos):
            found.append(torch.empty((len(rows), grad.shape[1]), dtype=grad.dtype, device=grad.device))
            _place(grad, rows, found[-1], None)
        return found[0], found[1].to(ctx.dtype), None


def _mapped(rows: Tensor, counts: tuple[int, ...], matrices: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Returns rows times matrices, piece by piece, computed in a type and kept in that of the rows."""
    out = rows.new_empty((len(rows), matrices[0].shape[1]))
    for piece, place, matrix in zip(rows.split(counts), out.split(counts), matrices, strict=True):
        if dtype == rows.dtype == matrix.dtype:
            torch.mm(piece, matrix, out=place)
        else:
            place.copy_(piece.to(dtype) @ matrix.to(dtype))
    return out


def _place(source: Tensor, source_rows: Any, out: Tensor, out_rows: Any) -> None:
    """Writes out[out_rows[k]] = source[source_rows[k]]; None stands for all rows in order."""
    if source.dtype in (torch.float32, torch.float64):
        place_rows(as_array(source.contiguous()), source_rows, as_array(out), out_rows, threads=torch.get_num_threads())
    elif out_rows is None:
        out[...] = source[torch.as_tensor(source_rows).long()]
    else:
        out[torch.as_tensor(out_rows).long()] = source


def _dropped(x: Tensor, node_ids: Array, key: int, p: float) -> Tensor:
    if x.dtype in (torch.float16, torch.bfloat16):
        return _dropped(x.float(), node_ids, key, p).to(x.dtype)  # the scaled value is rounded once
    x = x.contiguous()
    out = torch.empty_like(x)
    dropout_arrays(as_array(x), node_ids, key, p, out=as_array(out), threads=torch.get_num_threads())
    return out


def aggregate(block: Block, h_src: Tensor, reduce: Reduce) -> Tensor:
    """Aggregates a block's source rows into its destinations, with gradient.

    Args:
        block: the edges; needs its transpose if `h_src` requires a gradient.
        h_src: float[num_src, F].
        reduce: "sum", "mean" or "weighted" (`block.weight`, and `block.self_weight` for the own row).

    Returns:
        float[num_dst, F]; rows without edges are 0, except for their own weighted row.
    """
    return _Aggregate.apply(h_src, block, reduce)  # pyright: ignore[reportReturnType]


def maximum(block: Block, h_src: Tensor) -> Tensor:
    """Returns the largest value of each column over a block's sources, with gradient: float[num_dst, F]; 0 for rows without edges.

    If several sources have it, each gets an equal share of the gradient. It takes one row of F values per edge.

    Args:
        block: the edges.
        h_src: float[num_src, F].
    """
    start, end, indices = (torch.as_tensor(each).long() for each in (block.start, block.end, block.indices))
    taken = end - start
    if len(indices) != int(taken.sum()):  # edges were removed between the rows
        places = torch.arange(len(indices), device=indices.device)
        row = torch.searchsorted(end, places, right=True).clamp(max=max(0, block.num_dst - 1))
        kept = (places >= start[row]) & (places < end[row])
        row, indices = row[kept], indices[kept]
    else:
        row = torch.repeat_interleave(taken)
    out = h_src.new_zeros((block.num_dst, h_src.shape[1]))
    if not len(indices):
        return out + 0 * h_src.sum()  # every row has a gradient
    columns = row[:, None].expand(-1, h_src.shape[1])
    return out.scatter_reduce(0, columns, h_src[indices], "amax", include_self=False)


def shared_mean(block: Block) -> tuple[Block, Reduce]:
    """Returns block and reduction of the mean of a block's rows: with equal shares, or with those that the sampler put on the edges."""
    if block.share is None:
        return block, "mean"
    return replace(block, weight=block.share, self_weight=None, t_weight=None), "weighted"


def aggregate_grad(block: Block, grad: Tensor, reduce: Reduce) -> Tensor:
    """Returns the gradient of an aggregation's source rows from that of its result, without a forward pass.

    Args:
        block: the edges, with their transpose.
        grad: float[num_dst, F].
        reduce: of the aggregation.

    Returns:
        float[num_src, F].
    """
    grad = grad.contiguous()
    out = torch.empty((block.num_src, grad.shape[1]), dtype=grad.dtype, device=grad.device)
    aggregate_backward(block, as_array(grad), reduce, out=as_array(out), threads=torch.get_num_threads())
    return out


def add_gradient(parameter: Tensor, grad: Tensor) -> None:
    """Adds to a parameter's gradient, as a backward pass does."""
    parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)


def map_pieces(rows: Tensor, counts: tuple[int, ...], matrices: Sequence[Tensor]) -> Tensor:
    """Maps consecutive pieces of rows, each by a matrix of its own, with gradient.

    Args:
        rows: float[n, F].
        counts: number of rows of each piece; their sum is n.
        matrices: float[G, F] for each piece.

    Returns:
        float[n, G].
    """
    return _MapPieces.apply(rows, counts, *matrices)  # pyright: ignore[reportReturnType]


def map_both(a: Tensor, a_map: nn.Linear, c: Tensor, c_map: nn.Linear) -> Tensor:
    """Returns the sum of two maps, the first with a bias and the second without one, with gradient: float[n, G].

    Args:
        a, c: float[n, F] and float[n, K].
        a_map, c_map: the maps to G columns.
    """
    if torch.is_autocast_enabled(a.device.type):
        return a_map(a) + c_map(c)
    return _MapBoth.apply(a, a_map.weight, a_map.bias, c, c_map.weight)  # pyright: ignore[reportReturnType]


def map_twice(rows: Tensor, first: nn.Linear, second: nn.Linear) -> tuple[Tensor, Tensor]:
    """Returns two maps without bias of the same rows, with gradient: float[n, G] and float[n, K]; their own biases are left out.

    Args:
        rows: float[n, F].
        first, second: the maps, to G and to K columns.
    """
    if torch.is_autocast_enabled(rows.device.type):
        return functional.linear(rows, first.weight), functional.linear(rows, second.weight)
    return _MapTwice.apply(rows, first.weight, second.weight)  # pyright: ignore[reportReturnType]


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


def splice(computed: Tensor, cached: Tensor, places: Splice) -> Tensor:
    """Puts computed rows and rows of the history in the order of a pruned block's sources, with gradient to both.

    Args:
        computed: float[c, F], output of the block below.
        cached: float[h, F], rows of the history, in the order of `places.hist_slot`; converted to the type of the computed ones.
        places: `Block.splice` of the block that reads the rows.

    Returns:
        float[c + h, F] in the order of the block's sources.
    """
    return _Splice.apply(computed, cached, places)  # pyright: ignore[reportReturnType]


def dropout(x: Tensor, node_ids: Array, key: int, p: float) -> Tensor:
    """Drops elements of x by a mask that is a pure function of (key, node, column), with gradient.

    Args:
        x: float[n, F], row i belongs to node_ids[i] (global).
        key: key of step and layer, from `kernels.rng.key`.
        p: probability in [0, 1); kept elements are scaled by 1 / (1 - p).
    """
    return x if p == 0 else _Dropout.apply(x, node_ids, key, p)  # pyright: ignore[reportReturnType]
