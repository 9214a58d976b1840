"""Residual blocks with a feed-forward part (Platonov et al., 2023, "A critical look at the evaluation of GNNs under heterophily"):

    h_v + dropout(W_2 act(dropout(W_1 agg(norm(h)) + b_1)) + b_2)

The convolution stands where a transformer has attention: rows are normalised before it, and a network of two linear maps follows it. For
`sage` and `gcn` the convolution's own map is W_1; `gin` and `gat` have it besides their own.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from graphmill.kernels.types import Block
from graphmill.trainers.models.layers.finish import ACTIVATIONS, LayerOptions
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.products import Map


class FeedForward(nn.Module):
    """The part behind a convolution; it takes the place of a layer's `Finish`.

    Args:
        in_width: columns of the convolution's result; they are mapped to `inner` ones first, unless they are these already.
        inner, out_width: columns between the two maps, and of the result.
    """

    def __init__(self, in_width: int, inner: int, out_width: int, options: LayerOptions):
        super().__init__()
        self.options = options
        self.first = None if in_width == inner else Map(in_width, inner)
        self.second = Map(inner, out_width)
        self.activation = ACTIVATIONS[options.activation]

    def forward(self, h: Tensor, h_dst: Tensor, rng: LayerRandom, bias: Tensor | None = None) -> Tensor:
        """Returns float[n, out_width] from the convolution's h: float[n, in_width], to which a bias is added; `h_dst` is not read."""
        h = h if bias is None else h + bias
        h = h if self.first is None else self.first(h)
        h = self.activation(rng.inner().dropout(h, self.options.dropout))
        return rng.dropout(self.second(h), self.options.dropout)


class FeedForwardLayer(nn.Module):
    """A convolution between a norm of the rows that it reads and a feed-forward part, its `finish`, added to the rows themselves."""

    cacheable = False
    reads_own = True

    def __init__(self, convolution: Any, width: int, options: LayerOptions):
        super().__init__()
        self.convolution = convolution
        self.norm = nn.LayerNorm(width) if options.norm == "layer" else None
        self.edge_weight = self.convolution.edge_weight
        self.heads: int = getattr(convolution, "heads", 0)
        self.inner_width: int = convolution.finish.second.in_features
        self.projected_width: int = getattr(convolution, "projected_width", width)

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """The convolution's aggregate of normalised rows: float[num_dst, A]."""
        return self.aggregate_projected(block, self.project(h_src), rng)

    def project(self, h_src: Tensor) -> Tensor:
        """Returns the rows that are aggregated, normalised and projected where the convolution projects first: float[n, A]. Row-wise."""
        rows = self._normalised(h_src)
        return self.convolution.project(rows) if hasattr(self.convolution, "project") else rows

    def aggregate_projected(self, block: Block, z: Tensor, rng: LayerRandom) -> Tensor:
        """The same as `aggregate`, from rows of `project`: float[num_src, A]."""
        if hasattr(self.convolution, "project"):
            return self.convolution.aggregate_projected(block, z, rng)
        return self.convolution.aggregate(block, z, rng)

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """The rows themselves and what the convolution and the feed-forward part make of them: float[num_dst, width]."""
        own = self._normalised(h_dst) if self.convolution.reads_own else h_dst
        return h_dst + self.convolution.update(agg, own, rng)

    def _normalised(self, h: Tensor) -> Tensor:
        return h if self.norm is None else self.norm(h)


def feed_forward_layer(kind: Any, width: int, factor: float, options: LayerOptions) -> FeedForwardLayer:
    """Returns a layer of a kind of convolution between a norm and a feed-forward part.

    Args:
        kind: class of the convolution; one that ends with a linear map (`ends_linear`) has the first of the two maps in it.
        factor: columns between the two linear maps, over `width`.
    """
    inner = max(1, round(factor * width))
    given = inner if getattr(kind, "ends_linear", False) else width
    convolution = kind(width, given, replace(options, norm="none", residual=False, last=False))
    convolution.finish = FeedForward(given, inner, width, options)
    return FeedForwardLayer(convolution, width, options)
