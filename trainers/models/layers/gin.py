"""Graph isomorphism network (Xu et al., 2019, equation 4.1): h_v = MLP((1 + eps) h_v + sum of h_u).

A sum grows with the number of neighbours, so if k of d neighbours were sampled each counts d / k: training then sees sums of the same size
as exact evaluation. The weights arrive with the block; a block without weights is summed as it is. With `edge_weight = true` the data's
weight w_uv multiplies h_u and this factor.
"""

import torch
from torch import Tensor, nn

from graphmill.kernels.layers.aggregate import Reduce
from graphmill.kernels.types import Block
from graphmill.trainers.models.layers.finish import Finish, LayerOptions
from graphmill.trainers.models.layers.gcn import SumLayer
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.products import Map


class GinLayer(SumLayer):
    """One layer; its twin is `dgl.nn.GINConv(mlp, "sum", learn_eps=True)`, the MLP being linear, ReLU, linear, and out_width wide."""

    reads_own = True
    edge_weight: str | None = "sum"

    def __init__(self, in_width: int, out_width: int, options: LayerOptions):
        super().__init__()
        if options.edge_weight:
            self.edge_weight = "data sum"
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(Map(in_width, out_width), nn.ReLU(), Map(out_width, out_width))
        self.finish = Finish(in_width, out_width, options)

    def summed(self, block: Block) -> tuple[Block, Reduce]:
        """Returns the block and its sum, estimated from the sampled rows."""
        return block, "sum" if block.weight is None else "weighted"

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """The MLP and the layer's end: float[num_dst, out_width]."""
        return self.finish(self.mlp((1 + self.eps) * h_dst + agg), h_dst, rng)
