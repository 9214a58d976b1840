"""A block as tensors of edges, whose operations are torch's own: `torch.export` follows a layer through them.

The kernels read memory, so they have no form that another program could run. Here an edge takes a row of its source, and memory is that of
edges x columns; sums are in the order in which torch adds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

SLOPE = 0.2
"""Slope of the leaky ReLU of attention below 0, as of `graphmill.kernels.layers.attention`."""


@dataclass(frozen=True, kw_only=True)
class EdgeIndexBlock:
    """One bipartite layer as tensors; its attributes and operations are those of a `Block` that layers read.

    Attributes:
        edge_index: int64[2, E], places of the sources in row 0, of the destinations in row 1.
        dst_pos: int64[num_dst], places of the destinations among the sources.
        weight, self_weight: float[E], float[num_dst], as of a `Block`; None for none.
        edge_type: int64[E], relations; None for none.
    """

    edge_index: Any
    dst_pos: Any
    weight: Any = None
    self_weight: Any = None
    edge_type: Any = None
    share: Any = None

    @property
    def num_dst(self) -> int:
        """Number of destinations."""
        return self.dst_pos.shape[0]

    def summed(self, edges: Any) -> Any:
        """Returns [num_dst, ...], the sum of the values [E, ...] of each destination's edges."""
        zeros = edges.new_zeros((self.num_dst, *edges.shape[1:]))
        return zeros.index_add(0, self.edge_index[1], edges)

    def aggregate(self, h_src: Any, reduce: str) -> Any:
        """Returns float[num_dst, F] of h_src: float[num_src, F], as `graphmill.aggregate`."""
        edges = h_src[self.edge_index[0]]
        if reduce != "weighted":
            sums = self.summed(edges)
            return sums if reduce == "sum" else sums / self.summed(edges.new_ones((edges.shape[0], 1))).clamp(min=1)
        sums = self.summed(edges * self.weight[:, None])
        return sums if self.self_weight is None else sums + self.self_weight[:, None] * h_src[self.dst_pos]

    def maximum(self, h_src: Any) -> Any:
        """Returns float[num_dst, F], the largest value of each column of h_src: float[num_src, F]; 0 without edges."""
        edges = h_src[self.edge_index[0]]
        zeros = edges.new_zeros((self.num_dst, edges.shape[1]))
        return zeros.scatter_reduce(0, self.edge_index[1][:, None].expand_as(edges), edges, "amax", include_self=False)

    def attend(self, z: Any, left: Any, right: Any, weighted: bool = False, own: bool = True) -> Any:
        """Returns float[num_dst, H D], as `graphmill.attend` without a mask.

        Args:
            z: float[num_src, H D]; left: float[num_src, H]; right: float[num_dst, H].
            weighted: whether `weight` multiplies the attention of each edge.
            own: whether a destination attends to itself.
        """
        from torch.nn.functional import leaky_relu

        (source, target), heads = self.edge_index, left.shape[1]
        rows = z.view(z.shape[0], heads, z.shape[1] // heads)
        scores = leaky_relu(left[source] + right[target], SLOPE)
        own_scores = leaky_relu(left[self.dst_pos] + right, SLOPE)
        start = own_scores if own else own_scores.new_full(own_scores.shape, float("-inf"))
        most = start.scatter_reduce(0, target[:, None].expand_as(scores), scores, "amax")
        shares = (scores - most[target]).exp()
        own_shares = (start - most).exp() if own else most.new_zeros(most.shape)
        total = own_shares + self.summed(shares)
        shares = shares / total[target]
        shares = shares * self.weight[:, None] if weighted and self.weight is not None else shares
        attended = self.summed(shares[:, :, None] * rows[source])
        if own:
            attended = attended + (own_shares / total)[:, :, None] * rows[self.dst_pos]
        return attended.flatten(1)

    def of_relation(self, relation: int) -> EdgeIndexBlock:
        """Returns the block with the edges of a relation alone."""
        (places,) = (self.edge_type == relation).nonzero(as_tuple=True)
        weight = None if self.weight is None else self.weight[places]
        return replace(self, edge_index=self.edge_index[:, places], weight=weight, edge_type=None)
