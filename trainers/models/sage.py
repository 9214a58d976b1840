"""GraphSAGE with the mean aggregator (Hamilton et al., 2017): h_v = act(W_self h_v + W_neigh mean of h_u + b)."""

from __future__ import annotations

from torch import Tensor, nn

from kernels.types import Block
from trainers.models.finish import Finish, LayerOptions
from trainers.models.masks import LayerRandom
from trainers.models.ops import aggregate, aggregate_grad, shared_mean


class SageLayer(nn.Module):
    """One layer; its twin is `dgl.nn.SAGEConv(aggregator_type="mean")`.

    Args:
        in_width, out_width: row widths.
        options: the options of the layer's end.
    """

    cacheable = reads_own = True
    edge_weight = None

    def __init__(self, in_width: int, out_width: int, options: LayerOptions):
        super().__init__()
        self.own = nn.Linear(in_width, out_width)
        self.neighbours = nn.Linear(in_width, out_width, bias=False)
        self.finish = Finish(in_width, out_width, options)

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """Mean of the in-neighbours' rows, by their shares if the block has shares: float[num_dst, in_width]."""
        shared, reduce = shared_mean(block)
        return aggregate(shared, h_src, reduce)

    def aggregate_backward(self, block: Block, grad: Tensor) -> Tensor:
        """Gradient of the sources' rows from that of `aggregate`'s result: float[num_src, in_width]."""
        shared, reduce = shared_mean(block)
        return aggregate_grad(shared, grad, reduce)

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """Both linear maps and the layer's end: float[num_dst, out_width]."""
        return self.finish(self.own(h_dst) + self.neighbours(agg), h_dst, rng)
