"""Softmax attention over a block's edges (graph attention), with a deterministic gradient.

Every destination attends to its in-neighbours and to itself. For edge e from source s to destination i and each head:

    score_e = leaky(left[s] + right[i] + edge_e)     alpha_e = exp(score_e) / sum over i's edges and its own term
    out[i]  = sum of m_e alpha_e z[s]            m_e: attention dropout, 0 or 1 / (1 - p), times the edge's weight if there are any

Source: Velickovic et al., Graph Attention Networks, equations 3 to 6, with the attention vector cut into its source and its
destination half; edge_e is what features of the edge add to its score, 0 without them. The own term is not an edge of the block (a graph
holds no self-loops): it is always there, so no row is empty, and its weight is row nnz + i of the edge arrays.

Backward, with g = grad_out: d alpha_e = m_e <g[i], z[s]>; d score_e = alpha_e (d alpha_e - sum of alpha d alpha over the row), times the
slope of leaky; destinations sum it to grad_right, and sources pull grad_left and grad_z = sum of m_e alpha_e g[i] over the transpose. The
sources go first: beside the row z[s], one visit to g[i] serves both <g[i], z[s]> and grad_z. Then the destinations turn those products into
gradients of scores, looking at no row, and the sources add them up. Every row is written once, by one thread, in edge order: the same bits
at any thread count. A row with more than 8,192 edges is shared by 32 columns at a time (16 of float64), its products by 8,192 edges.

Rows are float32, float64, float16 or bfloat16 (uint16 holds its bits); of the last two, scores, weights and sums are float32 and each
result is rounded once. exp is our own (kernels/native/layers/vector_exp.h), so bits do not depend on the C library.

Also known as a sampled product (SDDMM), edge softmax and SpMM in one pass. Not checked: that values are finite.

Dropout is keyed by (destination, source, occurrence) in global ids, where occurrence counts equal edges of a row: an edge's mask is the
same in whatever block, chunk or order it turns up. Cost: each edge reads one row in each direction, a z forward and a g backward, and each
source its own z once more; alpha (nnz + num_dst) x H is kept for the backward pass, which takes as much again for scores, and one byte each
for the mask.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import (
    STORED_FLOATS,
    as_ids,
    as_out,
    as_rows,
    as_weights,
    block_rows,
    block_transpose,
    check_threads,
    narrow,
    sum_dtype,
    widen,
)
from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.attention_cuda import Attention
from graphmill.kernels.layers.dropout import LANES, drop_threshold
from graphmill.kernels.layers.edge_mask_cuda import edge_mask_cuda
from graphmill.kernels.rng import MASK, absorb, draws
from graphmill.kernels.types import Array, Block

OWN_TERM = -1  # in the place of an occurrence


@dataclass(frozen=True, kw_only=True)
class EdgeMask:
    """Attention dropout of one block: `kept`, u8[nnz + num_dst, H], is 0 for a dropped weight, and `scale` the factor of the others."""

    kept: Array
    scale: float


def edge_mask_reference(block: Block, num_heads: int, key: int, p: float) -> EdgeMask:
    """Returns the same as `edge_mask` (the rule in plain Python)."""
    threshold, ids, dst_ids = drop_threshold(p), block.src_ids, block.dst_ids
    kept = np.ones((len(block.indices) + block.num_dst, num_heads), np.uint8)
    heads = np.arange(num_heads)

    def lanes(v: int, u: int, occurrence: int) -> Array:
        bits = draws(absorb(absorb(absorb(key, v), u), occurrence), heads >> 2)
        return bits >> (np.uint64(16) * (heads & 3).astype(np.uint64)) & np.uint64(LANES - 1)

    for i in range(block.num_dst):
        seen: dict[int, int] = {}
        for e in range(block.start[i], block.end[i]):
            u = int(ids[block.indices[e]])
            kept[e] = lanes(int(dst_ids[i]), u, seen.get(u, 0)) >= threshold
            seen[u] = seen.get(u, 0) + 1
        kept[len(block.indices) + i] = lanes(int(dst_ids[i]), int(dst_ids[i]), OWN_TERM) >= threshold
    return EdgeMask(kept=kept, scale=LANES / (LANES - threshold))


def edge_mask(block: Block, num_heads: int, key: int, p: float, threads: int = 1) -> EdgeMask:
    """Draws the attention weights of a block that are dropped.

    Args:
        block: a block, whose src_ids name the edges.
        num_heads: H; each head draws 16 bits of its own.
        key: key that names step and layer.
        p: probability in [0, 1), a multiple of 2^-16 as in `graphmill.kernels.layers.dropout`.
    """
    threshold = drop_threshold(p)
    if on_device(block.indices):
        kept = edge_mask_cuda(block, num_heads, key, threshold, device_of(block.indices))
        return EdgeMask(kept=kept, scale=LANES / (LANES - threshold))
    kept = np.ones((len(block.indices) + block.num_dst, num_heads), np.uint8)
    ids = as_ids(block.src_ids, "src_ids")
    _native.edge_mask(*block_rows(block), ids, key & MASK, threshold, kept, check_threads(threads))
    return EdgeMask(kept=kept, scale=LANES / (LANES - threshold))


def attend_reference(
    block: Block,
    z: Array,
    left: Array,
    right: Array,
    slope: float = 0.2,
    mask: EdgeMask | None = None,
    weight: Array | None = None,
    edge: Array | None = None,
) -> tuple[Array, Array]:
    """Returns (out, alpha) as `attend` does; rows of alpha that belong to removed edges are 0 (the rule in NumPy)."""
    heads, nnz, dtype = left.shape[1], len(block.indices), z.dtype
    z, left, right = widen(z), widen(left), widen(right)
    rows = z.reshape(len(z), heads, z.shape[1] // heads)
    alpha, out = np.zeros((nnz + block.num_dst, heads), z.dtype), np.zeros((block.num_dst, *rows.shape[1:]), z.dtype)
    for i in range(block.num_dst):
        own = i if block.dst_pos is None else int(block.dst_pos[i])
        edges = [*range(block.start[i], block.end[i]), nnz + i]
        sources = [*(int(block.indices[e]) for e in edges[:-1]), own]
        raw = left[sources] + right[i] if edge is None else left[sources] + right[i] + edge[edges]
        score = np.where(raw > 0, raw, raw * z.dtype.type(slope))
        power = np.exp(score - score.max(axis=0))
        alpha[edges] = power / power.sum(axis=0)
        factor = alpha[edges] if mask is None else alpha[edges] * mask.kept[edges] * z.dtype.type(mask.scale)
        if weight is not None:
            factor[:-1] *= weight[edges[:-1], None].astype(z.dtype)
        out[i] = (factor[:, :, None] * rows[sources]).sum(axis=0)
    return narrow(out.reshape(block.num_dst, z.shape[1]), dtype), alpha


def attend(
    block: Block,
    z: Array,
    left: Array,
    right: Array,
    *,
    slope: float = 0.2,
    mask: EdgeMask | None = None,
    weight: Array | None = None,
    edge: Array | None = None,
    out: Array | None = None,
    alpha: Array | None = None,
    threads: int = 1,
) -> tuple[Array, Array]:
    """Attends from every destination to its sources and itself.

    Args:
        z: f32, f64, f16 or bfloat16 (as u16) [num_src, H D], head after head.
        left: [num_src, H], the sources' half of the scores; right: [num_dst, H], the destinations' half; both of z's dtype.
        slope: slope of the leaky ReLU below 0.
        weight: f32[nnz], factors of edges after the softmax, or None; the own term has none.
        edge: [nnz + num_dst, H] of alpha's dtype, what is added to the scores before the leaky ReLU, or None; on the host alone.
        out: [num_dst, H D], or None.
        alpha: [nnz + num_dst, H] of f64 for f64, else f32, or None; rows of removed edges are not written.

    Returns:
        (out, alpha): alpha before dropout, which the backward pass needs.
    """
    if on_device(z):
        assert out is not None and alpha is not None
        _there(block, z, left, right, slope, mask, weight, edge).attend(out, alpha)
        return out, alpha
    z, left, right = _inputs(block, z, left, right)
    out = as_out(out, (block.num_dst, z.shape[1]), z.dtype)
    alpha = as_out(alpha, (len(block.indices) + block.num_dst, left.shape[1]), sum_dtype(z.dtype))
    factors = *_mask(mask, alpha.shape), _weight(weight, block), _edge(edge, alpha)
    _native.attend(*block_rows(block), z, left, right, slope, *factors, alpha, out, check_threads(threads))
    return out, alpha


def attend_backward(
    block: Block,
    z: Array,
    left: Array,
    right: Array,
    alpha: Array,
    grad_out: Array,
    *,
    slope: float = 0.2,
    mask: EdgeMask | None = None,
    weight: Array | None = None,
    edge: Array | None = None,
    grad_edge: Array | None = None,
    out: tuple[Array, Array, Array] | None = None,
    threads: int = 1,
) -> tuple[Array, Array, Array]:
    """Sends the gradient of `attend` back.

    Args:
        grad_out: [num_dst, H D].
        grad_edge: like `edge`, written with its gradient, or None; rows of removed edges are not written.
        out: arrays for the three results, or None for new ones.

    Returns:
        (grad_z [num_src, H D], grad_left [num_src, H], grad_right [num_dst, H]).

    Raises:
        InputError: the transpose is missing or stale, or a shape or dtype does not fit.
    """
    if on_device(z):
        assert out is not None
        _there(block, z, left, right, slope, mask, weight, edge).backward(alpha, grad_out, out)
        return out
    z, left, right = _inputs(block, z, left, right)
    transposed = block_transpose(block)
    grad_out = as_out(np.require(grad_out, requirements=["C", "A", "W"]), (block.num_dst, z.shape[1]), z.dtype)
    alpha = as_out(alpha, (len(block.indices) + block.num_dst, left.shape[1]), sum_dtype(z.dtype))
    factors = *_mask(mask, alpha.shape), _weight(weight, block), _edge(edge, alpha)
    threads, grad_score = check_threads(threads), as_out(grad_edge, alpha.shape, alpha.dtype)
    places, like = out or (None, None, None), (z, left, right)
    grad_z, grad_left, grad_right = (as_out(place, x.shape, x.dtype) for place, x in zip(places, like, strict=True))
    _native.attend_backward(
        *block_rows(block), *transposed, z, left, right, slope, *factors,
        alpha, grad_out, grad_score, grad_z, grad_left, grad_right, threads,
    )  # fmt: skip
    return grad_z, grad_left, grad_right


def _there(
    block: Block,
    z: Array,
    left: Array,
    right: Array,
    slope: float,
    mask: EdgeMask | None,
    weight: Array | None,
    edge: Array | None,
) -> Attention:
    """Returns what both passes take on the device that holds z."""
    if edge is not None:
        raise InputError("scores with features of edges are computed on the host alone", 'set device = "cpu"')
    kept, scale = (None, 1.0) if mask is None else (mask.kept, mask.scale)
    return Attention(block, z, left, right, slope, kept, scale, weight, device_of(z))


def _inputs(block: Block, z: Array, left: Array, right: Array) -> tuple[Array, Array, Array]:
    z, left = (as_rows(x, name, block.num_src, STORED_FLOATS) for x, name in ((z, "z"), (left, "left")))
    right = as_rows(right, "right", block.num_dst, STORED_FLOATS)
    heads = left.shape[1]
    if right.shape[1] != heads or not heads or z.shape[1] % heads or not z.dtype == left.dtype == right.dtype:
        given = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in
                          (("z", z), ("left", left), ("right", right)))  # fmt: skip
        problem = f"heads do not fit together: {given}"
        raise InputError(problem, "give z [num_src, H D], left [num_src, H], right [num_dst, H]")
    return z, left, right


def _mask(mask: EdgeMask | None, shape: tuple[int, ...]) -> tuple[Any, float]:
    if mask is None:
        return None, 1.0
    if mask.kept.shape != shape or mask.kept.dtype != np.uint8:
        raise InputError(f"the mask is {mask.kept.dtype}{list(mask.kept.shape)}", f"give uint8{list(shape)}")
    return mask.kept, mask.scale


def _weight(weight: Array | None, block: Block) -> Array | None:
    return None if weight is None else as_weights(weight, "weight", len(block.indices))


def _edge(edge: Array | None, alpha: Array) -> Array | None:
    if edge is None:
        return None
    if edge.shape != alpha.shape or edge.dtype != alpha.dtype:
        given = f"the terms of edges are {edge.dtype}{list(edge.shape)}"
        raise InputError(given, f"give {alpha.dtype}{list(alpha.shape)}: a row per edge, and one per destination")
    return np.require(edge, requirements=["C", "A"])
