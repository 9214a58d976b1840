"""GraphSAGE (Hamilton et al., 2017): h_v = act(W_self h_v + W_neigh agg of h_u + b), the aggregate being a mean, a sum or a maximum.

With the aggregator "gcn" (their section 3.3) the mean includes the node itself and has the only map: h_v = act(W mean of h_u and h_v + b).

With `edge_weight = true` the data's weights w_uv count: the mean is sum of w_uv h_u over sum of w_uv, 0 if the weights sum to 0, and the
sum is sum of w_uv h_u. In the mean of the aggregator "gcn" the node itself has the weight 1.
"""

import torch
from torch import Tensor, nn

from graphmill.kernels.layers.aggregate import Reduce
from graphmill.kernels.types import Block
from graphmill.trainers.models.layers.finish import Finish, LayerOptions
from graphmill.trainers.models.layers.gcn import GcnLayer, SumLayer
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import add_gradient, beside_own, maximum, shared_mean
from graphmill.trainers.models.products import Map, map_both, map_halves, summed_over_rows, times


class SageLayer(SumLayer):
    """One layer with the mean; its twin is `dgl.nn.SAGEConv(aggregator_type="mean")`, without the data's weights: DGL divides by the
    number of edges.
    """

    reads_own = ends_linear = joins_own = True
    edge_weight: str | None = None

    def __init__(self, in_width: int, out_width: int, options: LayerOptions):
        super().__init__()
        if options.edge_weight:
            self.edge_weight = f"data {self.edge_weight or 'mean'}"
        self.own = Map(in_width, out_width)
        self.neighbours = Map(in_width, out_width, bias=False)
        self.finish = Finish(in_width, out_width, options)

    def summed(self, block: Block) -> tuple[Block, Reduce]:
        """Returns block and reduction of the mean: by the block's shares or, if they count, by the data's weights, which it has then."""
        return (block, "weighted") if self.edge_weight else shared_mean(block)

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """Both linear maps and the layer's end: float[num_dst, out_width]."""
        return self.finish(map_both(h_dst, self.own, agg, self.neighbours), h_dst, rng)

    def forward_block(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """The layer over a sampled block, with one product for both maps of own rows and aggregates: float[num_dst, out_width]."""
        weighed, reduce = self.summed(block)
        rows = beside_own(weighed, h_src, reduce, self.beside(weighed, reduce, h_src.dtype))
        return self.finish(map_halves(rows, self.own, self.neighbours), rows[:, : h_src.shape[1]], rng, self.own.bias)

    def beside(self, block: Block, reduce: Reduce, dtype: torch.dtype) -> Tensor | None:
        """Returns columns right of those of the aggregate, which have no gradient: float[num_dst, K], or None."""
        return None

    def update_backward(
        self, grad: Tensor, out: Tensor, agg: Tensor, h_dst: Tensor, rng: LayerRandom, needed: tuple[bool, bool]
    ) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of agg and h_dst, and of the parameters, as in `GcnLayer.update_backward`."""
        grad = self.finish.backward(grad, out, rng)
        add_gradient(self.neighbours.weight, summed_over_rows(grad, agg))
        of_agg = times(grad, self.neighbours.weight.T) if needed[0] else None
        return of_agg, self.own_backward(grad, h_dst, needed[1])

    def own_backward(self, grad: Tensor, h_dst: Tensor, needed: bool) -> Tensor | None:
        """Adds the gradients of the own rows' map; returns that of the own rows if it is needed.

        Args:
            grad: float[num_dst, out_width], the gradient of the map's result.
            h_dst: float[num_dst, in_width], the own rows.
        """
        add_gradient(self.own.weight, summed_over_rows(grad, h_dst))
        add_gradient(self.own.bias, grad.sum(0))
        return times(grad, self.own.weight.T) if needed else None


class SageSumLayer(SageLayer):
    """One layer with the sum; a sampled neighbour counts for those that were not drawn, as in trainers/models/layers/gin.py."""

    edge_weight = "sum"


class SageMaxLayer(SageLayer):
    """One layer with the maximum of each column; its twin is `torch_geometric.nn.SAGEConv(aggr="max")`."""

    cacheable = False  # the backward pass needs to know whose value was taken
    joins_own = False

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """Largest value of each column over the in-neighbours: float[num_dst, in_width], 0 without neighbours."""
        return maximum(block, h_src)


class SageGcnLayer(GcnLayer):
    """One layer with the mean of the node and its in-neighbours; its twin is `dgl.nn.SAGEConv(aggregator_type="gcn")`."""

    edge_weight = "mean with self"


AGGREGATORS: dict[str, type[nn.Module]] = {
    "mean": SageLayer,
    "gcn": SageGcnLayer,
    "sum": SageSumLayer,
    "max": SageMaxLayer,
}
"""Values of the key `aggregator`."""
