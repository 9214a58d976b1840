"""Graph attention (Velickovic et al., 2018): h_v = act(concat over heads of (sum of alpha_uv W h_u) + b), the node itself included.

Hidden layers concatenate their heads, so each head is out_width / heads wide; the last layer averages heads of full width. The self term
belongs to the model, and the graph holds no self-loops.

With `edge_weight = true` the data's weight w_uv multiplies alpha_uv after the softmax; the self term has the weight 1.
"""

from typing import Any

import torch
from torch import Tensor, nn

from graphmill.kernels.types import Block
from graphmill.trainers.models.attention import attend, attend_projected, by_head
from graphmill.trainers.models.layers.finish import Finish, LayerOptions
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import own_rows
from graphmill.trainers.models.products import Map, map_evaluated, times


class GatLayer(nn.Module):
    """One layer; its twin is `dgl.nn.GATConv(num_heads=heads)`, slope 0.2, on a graph with self-loops.

    Args:
        in_width, out_width: row widths; out_width is a multiple of the heads, except in the last layer.
    """

    cacheable = False
    maps_apart = True  # trainers/techniques/fullgraph/passes/row_passes.py
    edge_weight: str | None = None

    def __init__(self, in_width: int, out_width: int, options: LayerOptions):
        super().__init__()
        if options.edge_weight:
            self.edge_weight = "data"
        self.heads, self.average = options.heads, options.last
        self.depth = out_width if options.last else out_width // options.heads
        self.projected_width = self.heads * self.depth
        self.projection = Map(in_width, self.projected_width, bias=False)
        # The two halves of the attention vector: for sources and for destinations.
        self.left = nn.Parameter(torch.zeros(self.heads, self.depth))
        self.right = nn.Parameter(torch.zeros(self.heads, self.depth))
        self.bias = nn.Parameter(torch.zeros(self.heads * self.depth))
        self.attention_dropout = options.attention_dropout
        self.finish = Finish(in_width, out_width, options)
        self.reads_own = options.residual

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """Attention-weighted sum of the projected in-neighbours and the node itself: float[num_dst, heads * depth]."""
        return self.aggregate_projected(block, self.project(h_src), rng)

    @property
    def map_weight(self) -> Tensor:
        """The matrix of the projection: float[heads * depth, in_width]."""
        return self.projection.weight

    def project(self, h_src: Tensor) -> Tensor:
        """Returns the projection with which `aggregate` begins: float[n, heads * depth]. Row-wise."""
        return self.projection(h_src)

    def aggregate_projected(self, block: Block, z: Tensor, rng: LayerRandom) -> Tensor:
        """The same as `aggregate`, from projected rows z: float[num_src, heads * depth]."""
        mask = rng.edge_mask(block, self.heads, self.attention_dropout)
        more: Any = {"weighted": self.edge_weight is not None, "edge": self.edge_scores(block)}
        if z.dtype == self.left.dtype:
            return attend_projected(block, z, self.left, self.right, mask, **more)
        # If products are computed from bfloat16, z is bfloat16, and the scores' halves take its type after their sums.
        by_head = z.view(-1, self.heads, self.depth)
        left = (by_head * self.left).sum(dim=2).to(z.dtype)
        right = (own_rows(by_head, block) * self.right).sum(dim=2).to(z.dtype)
        return attend(block, z, left, right, mask, **more)

    def edge_scores(self, block: Block) -> Tensor | None:
        """Returns the addition of features of edges to the scores, None without them; see `graphmill.trainers.models.attention.attend`."""
        return None

    def split(self, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps rows for a pass that reads each row once (trainers/inference/whole.py). Row-wise.

        Args:
            h: float[n, in_width], input rows.

        Returns:
            float[n, heads * depth], projected rows; float[n, heads], their halves of the scores as sources; and float[n, K], what `join`
            needs of the nodes themselves: their halves of the scores as destinations and, to the right of them, their residual.
        """
        (z,) = map_evaluated(h, self.map_weight)
        scores = times(z, torch.cat([by_head(self.left), by_head(self.right)]))
        left, own = scores[:, : self.heads], scores[:, self.heads :]
        if self.finish.options.residual:
            own = torch.cat([own, h if self.finish.skip is None else self.finish.skip(h)], dim=1)
        return z, left, own

    def join(self, agg: Tensor, own: Tensor, rng: LayerRandom) -> Tensor:
        """Returns the layer's output, float[num_dst, out_width], from attended rows and the destinations' own results of `split`."""
        h = agg + self.bias
        if self.average:
            h = h.view(-1, self.heads, self.depth).mean(dim=1)
        return self.finish.end(h + own[:, self.heads :] if self.finish.options.residual else h, rng)

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """Bias, heads put side by side or averaged, and the layer's end: float[num_dst, out_width]. It may overwrite the aggregate."""
        made = agg.dtype == self.bias.dtype and not (agg.is_leaf and agg.requires_grad)
        h = agg.add_(self.bias) if made else agg + self.bias
        if self.average:
            h = h.view(-1, self.heads, self.depth).mean(dim=1)
        return self.finish(h, h_dst, rng)
