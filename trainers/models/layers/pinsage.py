"""PinSAGE's convolution with importance pooling (Ying et al., 2018, Algorithm 1):

    n_v = sum over u of share_uv ReLU(Q h_u + q)
    z_v = act(W_self h_v + W_neigh n_v + b), divided by its length

The shares are those of the visits of random walks, which the sampler puts on the edges (kernels/sampling/walk.py); on other blocks each
neighbour has the same share, which makes n_v a mean. The paper writes W of h_v and n_v side by side; two matrices are the same map.

Unlike the paper: the last layer gives logits of classes, instead of two dense layers and a loss of pairs; and rows are divided by their
length after dropout, so that every row that a layer reads has length 1, in training, too.
"""

from torch import Tensor, nn
from torch.nn import functional

from graphmill.kernels.types import Block
from graphmill.trainers.models.layers.finish import Finish, LayerOptions
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import aggregate, shared_mean
from graphmill.trainers.models.products import Map, map_both


class PinSageLayer(nn.Module):
    """One layer.

    Args:
        in_width, out_width: row widths; the pooled rows are out_width wide in hidden layers and in_width wide in one that gives logits.
    """

    cacheable = False  # Q is a parameter inside the aggregation
    reads_own = True
    ends_with_dropout = False  # rows are divided by their length after it
    edge_weight = None

    def __init__(self, in_width: int, out_width: int, options: LayerOptions):
        super().__init__()
        pooled = in_width if options.last else out_width
        self.projection = Map(in_width, pooled)
        self.own = Map(in_width, out_width)
        self.neighbours = Map(pooled, out_width, bias=False)
        self.finish = Finish(in_width, out_width, options)

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """Importance pooling of the projected sources: float[num_dst, pooled]."""
        shared, reduce = shared_mean(block)
        return aggregate(shared, self.projection(h_src).relu(), reduce)

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """Both linear maps, the layer's end, and the division by the length: float[num_dst, out_width]."""
        z = self.finish(map_both(h_dst, self.own, agg, self.neighbours), h_dst, rng)
        return z if self.finish.options.last or rng.before_norm else self.ended(z)

    def ended(self, z: Tensor) -> Tensor:
        """Divides the rows of a layer's end by their lengths: float[n, out_width]."""
        return functional.normalize(z, dim=1)
