"""Layers that map rows before they sum them: W (sum of c_uv h_u) = sum of c_uv (W h_u), and the second sum is of narrower rows.

A pass over the whole graph maps as many rows either way, so the order that sums narrower rows is the cheaper one: that of full-graph
training, and of exact inference, whatever the trainer. In a sampled block there are many more sources than destinations, so mini-batches
sum first. The two orders round differently.

Exact inference reads each row once. So a layer's `split` gives both what its neighbours need of a row and what the node itself needs of it
(its own map, its residual), and `join` makes the layer's output of the sum and of the latter.
"""

import copy
from typing import Any

import torch
from torch import Tensor

from graphmill.kernels.types import Block
from graphmill.trainers.models.layers.gcn import GcnLayer
from graphmill.trainers.models.layers.gin import GinLayer
from graphmill.trainers.models.layers.sage import SageGcnLayer, SageLayer, SageSumLayer
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import add_gradient
from graphmill.trainers.models.products import map_evaluated, map_twice, mapped


class MapsFirst:
    """The order of such a layer, beside the class of the layer that sums first.

    Attributes:
        maps_apart: the map may be a pass of its own over rows where they are.
        sums_projected: the sum of projected rows has no parameters: `aggregate_backward` is its gradient.
        map_weight: float[out_width, in_width], the matrix that maps rows.
    """

    cacheable = False  # the map is inside the aggregation
    joins_own = False
    maps_apart = sums_projected = True
    projected_width: int
    map_weight: Tensor

    def __init__(self, in_width: int, out_width: int, options: Any):
        super().__init__(in_width, out_width, options)  # pyright: ignore[reportCallIssue]
        self.projected_width = out_width

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """Sum of the mapped in-neighbours' rows: float[num_dst, out_width]."""
        return self.aggregate_projected(block, self.project(h_src), rng)

    def aggregate_projected(self, block: Block, z: Tensor, rng: LayerRandom) -> Tensor:
        """The same as `aggregate`, from mapped rows z: float[num_src, out_width]."""
        return super().aggregate(block, z, rng)  # pyright: ignore[reportAttributeAccessIssue]

    def project(self, h_src: Tensor) -> Tensor:
        """Returns the mapped rows: float[n, out_width]. Row-wise."""
        return mapped(h_src, self.map_weight)

    def split(self, h: Tensor) -> tuple[Tensor, Tensor | None]:
        """Maps rows for `aggregate_projected` and for `join`. Row-wise.

        Args:
            h: float[n, in_width], input rows.

        Returns:
            float[n, out_width], as of `project`, and float[n, K], the terms of the nodes themselves, or None without any.
        """
        (z,) = map_evaluated(h, self.map_weight)
        return z, self._residual(h)

    def join(self, agg: Tensor, own: Tensor | None, rng: LayerRandom) -> Tensor:
        """Returns the layer's output, float[num_dst, out_width], from the sum of mapped rows and the destinations' own terms of `split`."""
        raise NotImplementedError

    def _residual(self, h: Tensor) -> Tensor | None:
        """Returns the residual of rows, float[n, out_width], None without one; a layer that narrows its rows maps it."""
        return None if self.finish.skip is None else self.finish.skip(h)  # pyright: ignore[reportAttributeAccessIssue]


class NarrowGcnLayer(MapsFirst, GcnLayer):
    """`GcnLayer` that maps first."""

    @property
    def map_weight(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """W: float[out_width, in_width]."""
        return self.linear.weight

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """Bias and the layer's end: float[num_dst, out_width]."""
        return self.finish(agg + self.linear.bias, h_dst, rng)

    def join(self, agg: Tensor, own: Tensor | None, rng: LayerRandom) -> Tensor:
        """The same from the terms of `split`."""
        h = agg + self.linear.bias
        return self.finish.end(h if own is None else h + own, rng)

    def update_backward(
        self, grad: Tensor, out: Tensor, agg: Tensor, h_dst: Tensor | None, rng: LayerRandom, needed: tuple[bool, bool]
    ) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of agg and h_dst, and of the bias, as in `GcnLayer.update_backward`."""
        grad = self.finish.backward(grad, out, rng)
        add_gradient(self.linear.bias, grad.sum(0))
        return grad, None


class NarrowSageGcnLayer(NarrowGcnLayer, SageGcnLayer):
    """`SageGcnLayer` that maps first."""


class NarrowSageLayer(MapsFirst, SageLayer):
    """`SageLayer` that maps first."""

    @property
    def map_weight(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """W_neigh: float[out_width, in_width]."""
        return self.neighbours.weight

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """The own rows' map and the layer's end: float[num_dst, out_width]."""
        return self.finish(self.own(h_dst) + agg, h_dst, rng)

    def split(self, h: Tensor) -> tuple[Tensor, Tensor | None]:
        """Maps rows; the own term is the own rows' map, with the residual."""
        z, own = map_evaluated(h, self.neighbours.weight, self.own.weight)
        own, residual = own + self.own.bias, self._residual(h)
        return z, own if residual is None else own + residual

    def join(self, agg: Tensor, own: Tensor | None, rng: LayerRandom) -> Tensor:
        """The same as `update` from the terms of `split`."""
        assert own is not None
        return self.finish.end(own + agg, rng)

    def update_backward(
        self, grad: Tensor, out: Tensor, agg: Tensor, h_dst: Tensor, rng: LayerRandom, needed: tuple[bool, bool]
    ) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of agg and h_dst, and of the own rows' map, as in `GcnLayer.update_backward`."""
        grad = self.finish.backward(grad, out, rng)
        return grad, self.own_backward(grad, h_dst, needed[1])

    def forward_whole(self, block: Block, h: Tensor, rng: LayerRandom) -> Tensor:
        """The layer over a block whose sources are its destinations, with one product for both maps: float[num_dst, out_width]."""
        z, own = map_twice(h, self.neighbours, self.own)
        return self.finish(own + self.own.bias + self.aggregate_projected(block, z, rng), h, rng)


class NarrowSageSumLayer(NarrowSageLayer, SageSumLayer):
    """`SageSumLayer` that maps first."""


class NarrowGinLayer(MapsFirst, GinLayer):
    """`GinLayer` that applies the first matrix of its MLP first."""

    @property
    def map_weight(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """W_1: float[out_width, in_width]."""
        return self.mlp[0].weight  # pyright: ignore[reportReturnType]

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """The rest of the MLP and the layer's end: float[num_dst, out_width]."""
        return self.finish(self.mlp[2](self.mlp[1](self.mlp[0]((1 + self.eps) * h_dst) + agg)), h_dst, rng)

    def split(self, h: Tensor) -> tuple[Tensor, Tensor | None]:
        """Maps rows; the own terms are the first matrix of the MLP and, to the right of it, the residual."""
        (z,), residual = map_evaluated(h, self.map_weight), self._residual(h)
        own = (1 + self.eps) * z + self.mlp[0].bias  # pyright: ignore[reportOperatorIssue]
        return z, own if residual is None else torch.cat([own, residual], dim=1)

    def join(self, agg: Tensor, own: Tensor | None, rng: LayerRandom) -> Tensor:
        """The same as `update` from the terms of `split`."""
        assert own is not None
        width = agg.shape[1]
        h = self.mlp[2](self.mlp[1](own[:, :width] + agg))
        return self.finish.end(h if self.finish.skip is None else h + own[:, width:], rng)


NARROW: dict[type, type] = {
    GcnLayer: NarrowGcnLayer,
    SageGcnLayer: NarrowSageGcnLayer,
    SageLayer: NarrowSageLayer,
    SageSumLayer: NarrowSageSumLayer,
    GinLayer: NarrowGinLayer,
}
"""Layer that sums first -> the same layer that maps first."""


def mapped_first(layer: Any) -> Any:
    """Returns a layer with the same parameters that maps rows before it sums them if that narrows the summed rows, else the layer."""
    kind = NARROW.get(type(layer), type(layer))
    if not issubclass(kind, MapsFirst):
        return layer
    twin = copy.copy(layer)  # shares the parameters
    twin.__class__ = kind
    out_width, in_width = twin.map_weight.shape
    if out_width >= in_width:
        return layer
    twin.projected_width = out_width
    return twin
