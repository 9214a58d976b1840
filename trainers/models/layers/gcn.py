"""Graph convolution (Kipf and Welling, 2017): h_v = act(W (sum of c_uv h_u + c_vv h_v) + b).

The coefficients c_uv = 1 / sqrt((d_in(v) + 1) (d_out(u) + 1)) come from the whole graph's degrees and arrive with the block, so a
sampled block estimates the same sum; the self term belongs to the model, and the graph holds no self-loops.

With `edge_weight = true` the data's weight w_uv multiplies c_uv. Degrees stay counts of edges, and the self term has the weight 1.

With `maps = false` the sum is all: h_v = sum of c_uv h_u + c_vv h_v, without W, b and act, and with `residual = true` plus h_v. So L layers
give (S + I)^L h_0 of the matrix S of coefficients, a sum of all its powers up to L, as light graph convolution does (He et al.: LightGCN,
2020, with equal weights of the powers and without the self term); without the residual simple graph convolution (Wu et al., 2019).
"""

from dataclasses import replace

from torch import Tensor, nn

from graphmill.kernels.layers.aggregate import Reduce
from graphmill.kernels.types import Block
from graphmill.trainers.models.layers.finish import Finish, LayerOptions
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import add_gradient, aggregate, aggregate_grad
from graphmill.trainers.models.products import Map, mapped, summed_over_rows, times


class SumLayer(nn.Module):
    """The base of layers whose aggregate is a sum or a mean of rows, without parameters."""

    cacheable = True

    def summed(self, block: Block) -> tuple[Block, Reduce]:
        """Returns the block whose rows are reduced, and how: by the weights of edges."""
        return block, "weighted"

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """The in-neighbours' aggregate: float[num_dst, in_width]."""
        summed, reduce = self.summed(block)
        return aggregate(summed, h_src, reduce)

    def aggregate_backward(self, block: Block, grad: Tensor) -> Tensor:
        """Gradient of the sources' rows from that of `aggregate`'s result: float[num_src, in_width]."""
        summed, reduce = self.summed(block)
        return aggregate_grad(summed, grad, reduce)


class PassingLayer(SumLayer):
    """One layer without parameters, whose sum has as many columns as its input."""

    def __init__(self, in_width: int, out_width: int, options: LayerOptions):
        super().__init__()
        assert in_width == out_width, "nothing maps rows"
        self.edge_weight = "data gcn" if options.edge_weight else "gcn"
        self.finish = Finish(in_width, out_width, replace(options, last=True))
        self.reads_own = options.residual

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """The sum, with the residual: float[num_dst, out_width]."""
        return self.finish(agg, h_dst, rng)

    def update_backward(
        self, grad: Tensor, out: Tensor, agg: Tensor, h_dst: Tensor | None, rng: LayerRandom, needed: tuple[bool, bool]
    ) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of agg and h_dst, as in `GcnLayer.update_backward`."""
        return grad, None


class GcnLayer(SumLayer):
    """One layer; its twin is `dgl.nn.GraphConv(norm="none")` with edge weights, on a graph with self-loops."""

    ends_linear = True
    edge_weight: str | None = "gcn"

    def __init__(self, in_width: int, out_width: int, options: LayerOptions):
        super().__init__()
        if options.edge_weight:
            self.edge_weight = f"data {self.edge_weight}"
        self.linear = Map(in_width, out_width)
        self.finish = Finish(in_width, out_width, options)
        self.reads_own = options.residual

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """The linear map and the layer's end: float[num_dst, out_width]."""
        return self.finish(mapped(agg, self.linear.weight), h_dst, rng, self.linear.bias)

    def update_backward(
        self, grad: Tensor, out: Tensor, agg: Tensor, h_dst: Tensor | None, rng: LayerRandom, needed: tuple[bool, bool]
    ) -> tuple[Tensor | None, Tensor | None]:
        """The gradient of `update` from its result, without a forward pass, if `finish.tells_gradient`.

        Args:
            grad, out: float[num_dst, out_width], the gradient of the result, and the result.
            needed: whether the gradients of agg and h_dst are needed.

        Returns:
            The gradients of agg and h_dst; those of the parameters are added to them.
        """
        grad = self.finish.backward(grad, out, rng)
        add_gradient(self.linear.weight, summed_over_rows(grad, agg))
        add_gradient(self.linear.bias, grad.sum(0))
        return times(grad, self.linear.weight.T) if needed[0] else None, None
