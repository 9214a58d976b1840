"""The edge weights of a graph convolution, of an unbiased sum, and of means, on a sampled block.

GCN weighs the edge u -> v by 1 / sqrt((d_in(v) + 1)(d_out(u) + 1)) and a node's own row by 1 / sqrt((d_in(v) + 1)(d_out(v) + 1)),
with the degrees of the WHOLE graph. On a row of which k of d_in(v) edges were sampled the neighbour sum is scaled by d_in(v) / k,
so that it is unbiased; the own term is exact and is not scaled. Weights are computed when a batch is assembled and never
stored. Square roots are taken once per node, in float64: O(num_src + nnz).

The GCN weights are the symmetrically normalised adjacency with self-loops. Not checked: that the degrees are those of the whole graph.

If a sampler does not draw neighbours uniformly, blocks carry `share`, each edge's share in the mean of its row. It stands in the place of
1 / k: the neighbour sum is d_in(v) times the shared mean, which with equal shares is the same.

If a graph's own weights count, they multiply the factors of sums, and a mean is sum of w_uv h_u over sum of w_uv, 0 if that is 0.

Source: Kipf and Welling: Semi-Supervised Classification with Graph Convolutional Networks, equation 2.
"""

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_int32, block_edges
from graphmill.kernels.types import Array, Block


def gcn_weights_reference(
    block: Block, in_degree: Array, out_degree: Array, sampled: bool = True
) -> tuple[Array, Array]:
    """Returns (weight, self_weight) as `gcn_weights` does (the rule in NumPy)."""
    root_in = 1 / np.sqrt(in_degree[block.dst_ids] + 1.0)
    root_out = 1 / np.sqrt(out_degree[block.src_ids] + 1.0)
    weight = np.zeros(len(block.indices), np.float32)
    for i in range(block.num_dst):
        edges = slice(block.start[i], block.end[i])
        taken = block.end[i] - block.start[i]
        scale = float(in_degree[block.dst_ids[i]]) / float(taken) if sampled and taken else 1.0
        weight[edges] = root_in[i] * scale * root_out[block.indices[edges]]
    self_weight = root_in * (1 / np.sqrt(out_degree[block.dst_ids] + 1.0))
    return weight, self_weight.astype(np.float32)


def gcn_weights(block: Block, in_degree: Array, out_degree: Array, sampled: bool = True) -> tuple[Array, Array]:
    """Computes the weights of a block's edges and of its destinations' own rows.

    Args:
        in_degree, out_degree: i32[N] of the whole graph, without the own terms.
        sampled: whether the neighbours of a sampled row are scaled by d_in(v) / k; False leaves the plain coefficients.

    Returns:
        weight f32[nnz] (0 for removed edges) and self_weight f32[num_dst].
    """
    in_degree, out_degree = (as_int32(array, "degrees", len(in_degree)) for array in (in_degree, out_degree))
    start, end, indices = block_edges(block)
    weight, self_weight = np.empty(len(indices), np.float32), np.empty(block.num_dst, np.float32)
    dst_ids, shared = block.dst_ids, sampled and block.share is not None
    _native.gcn_weights(
        start,
        end,
        indices,
        in_degree[dst_ids],
        out_degree[dst_ids],
        block.of_sources(out_degree),
        sampled and not shared,
        weight,
        self_weight,
    )
    return (weight * _shared(block, in_degree) if shared else weight), self_weight


def source_degrees(block: Block, in_degree: Array, own_loops: Array) -> tuple[Array, Array]:
    """Returns the in-degrees of the sources of a block's edges, f32[nnz], and those of its destinations, f32[num_dst].

    A node that is its own neighbour has -1 - d instead, where d counts its other neighbours.

    Args:
        in_degree, own_loops: i32[N] and bool[N] of the whole graph; `own_loops` says which nodes are their own neighbours.
    """
    degrees = np.where(own_loops, -in_degree, in_degree).astype(np.float32)
    return block.of_sources(degrees)[block.indices], degrees[block.dst_ids]


def sum_weights(block: Block, in_degree: Array) -> Array:
    """Computes the factors that make a sampled sum estimate the whole one: d_in(v) / k on the k edges of destination v.

    Args:
        in_degree: i32[N] of the whole graph.

    Returns:
        f32[nnz]; 1 on whole rows, 0 for removed edges. If edges have shares, d_in(v) times the share.
    """
    if block.share is not None:
        return _shared(block, in_degree)
    factor = in_degree[block.dst_ids] / np.maximum(block.end - block.start, 1)
    return _by_edge(block, factor.astype(np.float32))


def self_mean_weights(block: Block) -> tuple[Array, Array]:
    """Computes the weights of the mean of a row's sources and the row itself: 1 / (k + 1) on each of its k edges, and on itself.

    Args:
        block: the block. If edges have shares, each has k / (k + 1) times its share.

    Returns:
        (weight f32[nnz], 0 for removed edges; self_weight f32[num_dst]).
    """
    taken = (block.end - block.start).astype(np.float32)
    own = 1 / (taken + 1)
    return (_by_edge(block, own) if block.share is None else _by_edge(block, taken * own) * block.share), own


def data_mean_weights(block: Block, own: bool = False) -> tuple[Array, Array | None]:
    """Computes the weights of the mean of a row's sources by the data's weights: w_e / sum of w over the row, 0 where the sum is 0.

    Args:
        block: the block; `weight` holds the data's weights. If edges have shares, w_e is weight times share.
        own: whether the row itself is among the averaged ones, with the weight 1, or with shares 1 / k.

    Returns:
        weight f32[nnz], 0 for removed edges, and self_weight f32[num_dst], None without `own`. Sums are taken in edge order in float64.
    """
    assert block.weight is not None
    taken = block.end - block.start
    given = block.weight.astype(np.float64)
    given = given if block.share is None else given * block.share
    row = _by_edge(block, np.arange(1, block.num_dst + 1))  # 0 for removed edges
    sums = np.bincount(row, weights=given, minlength=block.num_dst + 1)[1:]
    one = 1.0 if block.share is None else 1 / np.maximum(taken, 1)
    total = sums + one if own else sums
    inverse = np.divide(1, total, out=np.zeros(block.num_dst), where=total != 0)
    return (_by_edge(block, inverse) * given).astype(np.float32), (inverse * one).astype(np.float32) if own else None


def _shared(block: Block, in_degree: Array) -> Array:
    """Returns f32[nnz], d_in(v) times the share of each edge; 0 for removed edges."""
    assert block.share is not None
    return _by_edge(block, in_degree[block.dst_ids].astype(np.float32)) * block.share


def _by_edge(block: Block, values: Array) -> Array:
    """Returns [nnz]: the value [num_dst] of each edge's destination, 0 for removed edges."""
    taken = block.end - block.start
    if len(block.indices) == taken.sum():
        return np.repeat(values, taken)
    spread = np.zeros(len(block.indices), values.dtype)
    for low, high, value in zip(block.start, block.end, values, strict=True):
        spread[low:high] = value
    return spread
