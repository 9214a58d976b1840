"""Kernels as differentiable torch operations.

Tensors are float32, float64, float16 or bfloat16; an output has the type of its input, and sums of the last two are kept in float32.
Outputs are allocated by torch: its allocator aligns to 64 bytes, and matrix products round the same only if the alignment is the same.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from graphmill.kernels.blocks.edge_index import EdgeIndexBlock
from graphmill.kernels.layers.aggregate import Reduce, aggregate_backward
from graphmill.kernels.layers.aggregate import aggregate as aggregate_arrays
from graphmill.kernels.layers.dropout import drop_scale, relu_dropout_backward
from graphmill.kernels.layers.dropout import dropout as dropout_arrays
from graphmill.kernels.layers.dropout import relu_dropout as relu_dropout_arrays
from graphmill.kernels.rows.move_rows import place_rows
from graphmill.kernels.types import Array, Block, Splice


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


class _Dropout(torch.autograd.Function):
    """Keyed dropout; the backward pass draws the same mask again instead of keeping it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, node_ids: Array, key: int, p: float) -> Tensor:
        ctx.node_ids, ctx.key, ctx.p = node_ids, key, p
        return _dropped(x, node_ids, key, p)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return _dropped(grads[0], ctx.node_ids, ctx.key, ctx.p), None, None, None


class _ReluDropout(torch.autograd.Function):
    """Bias, ReLU and keyed dropout in the place of their input; the backward pass reads the mask from the result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, node_ids: Array, key: int, p: float) -> Tensor:
        ctx.p = p
        if x.device.type == "cpu":
            threads = torch.get_num_threads()
            added = None if bias is None else as_array(bias)
            relu_dropout_arrays(as_array(x), added, node_ids, key, p, threads=threads)
        else:
            (x if bias is None else x.add_(bias)).relu_()
            if p:
                dropout_arrays(as_array(x), node_ids, key, p, out=as_array(x))
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        (result,) = ctx.saved_tensors
        below = relu_dropout_grad(grads[0], result, ctx.p)
        return below, below.sum(0) if ctx.needs_input_grad[1] else None, None, None, None


class _BesideOwn(torch.autograd.Function):
    """A block's own rows, and the aggregates of their sources to the right of them; backward adds both gradients into one matrix."""

    @staticmethod
    def forward(ctx: Any, h_src: Tensor, block: Block, reduce: Reduce, beside: Tensor | None) -> Tensor:
        width = h_src.shape[1]
        ctx.block, ctx.reduce, ctx.width = block, reduce, width
        summed = torch.empty((block.num_dst, width), dtype=h_src.dtype, device=h_src.device)
        aggregate_arrays(
            block, as_array(h_src.contiguous()), reduce, out=as_array(summed), threads=torch.get_num_threads()
        )
        return torch.cat([own_rows(h_src, block), summed, *([] if beside is None else [beside])], dim=1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        own, summed = grads[0][:, : ctx.width], grads[0][:, ctx.width : 2 * ctx.width]
        found = aggregate_grad(ctx.block, summed, ctx.reduce)
        found[own_places(ctx.block)] += own  # each place once
        return found, None, None, None


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
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        grad, splice = grads[0].contiguous(), ctx.splice
        found: list[Tensor | None] = [None, None]
        for number, rows in enumerate((splice.computed, splice.hist_pos)):
            if ctx.needs_input_grad[number]:  # rows of the history need none
                found[number] = taken = torch.empty((len(rows), grad.shape[1]), dtype=grad.dtype, device=grad.device)
                _place(grad, rows, taken, None)
        return found[0], None if found[1] is None else found[1].to(ctx.dtype), None


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


def aggregate(block: Block | EdgeIndexBlock, h_src: Tensor, reduce: Reduce) -> Tensor:
    """Aggregates a block's source rows into its destinations, with gradient.

    Args:
        block: the edges; needs its transpose if `h_src` requires a gradient.
        h_src: float[num_src, F].
        reduce: "sum", "mean" or "weighted" (`block.weight`, and `block.self_weight` for the own row).

    Returns:
        float[num_dst, F]; rows without edges are 0, except for their own weighted row.
    """
    if isinstance(block, EdgeIndexBlock):
        return block.aggregate(h_src, reduce)
    return _Aggregate.apply(h_src, block, reduce)  # pyright: ignore[reportReturnType]


def beside_own(block: Block, h_src: Tensor, reduce: Reduce, beside: Tensor | None = None) -> Tensor:
    """Returns each destination's own row, and right of it the result of `aggregate`, with gradient: float[num_dst, 2 F + K].

    Args:
        beside: float[num_dst, K], more columns on the right, without gradient; None for none.
    """
    return _BesideOwn.apply(h_src, block, reduce, beside)  # pyright: ignore[reportReturnType]


def own_rows(h_src: Tensor, block: Block) -> Tensor:
    """Returns the destinations' rows among the sources' rows: float[num_dst, ...]."""
    # A slice of everything would cost its gradient a matrix of zeros and a copy.
    return h_src if block.dst_pos is None and len(h_src) == block.num_dst else h_src[own_places(block)]


def own_places(block: Block) -> slice | Tensor:
    """Returns the places of the destinations' rows among the sources' rows, as an index."""
    return slice(block.num_dst) if block.dst_pos is None else torch.as_tensor(block.dst_pos).long()


def maximum(block: Block | EdgeIndexBlock, h_src: Tensor) -> Tensor:
    """Returns the largest value of each column over a block's sources, with gradient: float[num_dst, F]; 0 for rows without edges.

    If several sources have it, each gets an equal share of the gradient. It takes one row of F values per edge.

    Args:
        h_src: float[num_src, F].
    """
    if isinstance(block, EdgeIndexBlock):
        return block.maximum(h_src)
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
        key: key of step and layer, from `graphmill.kernels.rng.key`.
        p: probability in [0, 1); kept elements are scaled by 1 / (1 - p).
    """
    return x if p == 0 else _Dropout.apply(x, node_ids, key, p)  # pyright: ignore[reportReturnType]


def relu_dropout(x: Tensor, bias: Tensor | None, node_ids: Array, key: int, p: float) -> Tensor:
    """Adds a bias, sets negative values to 0 and drops elements as `dropout` does, in the place of x, with gradient.

    Args:
        x: float[n, F], row i belongs to node_ids[i] (global). Whatever made it must not read it for its own gradient.
        bias: float[F], or None.
        key: key of step and layer, from `graphmill.kernels.rng.key`.
        p: probability in [0, 1).
    """
    if x.dtype in (torch.float32, torch.float64) and x.is_contiguous():
        return _ReluDropout.apply(x, bias, node_ids, key, p)  # pyright: ignore[reportReturnType]
    return dropout(functional.relu(x if bias is None else x + bias.to(x.dtype)), node_ids, key, p)


def relu_dropout_grad(grad: Tensor, result: Tensor, p: float) -> Tensor:
    """Returns the gradient of `relu_dropout`'s x from that of its result, without a forward pass: float[n, F].

    Args:
        grad, result: float[n, F], the gradient of the result, and the result, from which the mask is read.
    """
    grad = grad.contiguous()
    below = torch.empty_like(grad)
    if grad.device.type == "cpu" and grad.dtype in (torch.float32, torch.float64):
        arrays = as_array(result.contiguous()), as_array(grad)
        relu_dropout_backward(*arrays, p, as_array(below), threads=torch.get_num_threads())
        return below
    return torch.mul(grad, drop_scale(p), out=below).masked_fill_(result == 0, 0)
