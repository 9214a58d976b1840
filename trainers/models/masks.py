"""The dropout masks of a step, keyed by run, step, layer and node or edge, so that chunks and the order of rows do not matter."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmill.kernels.layers.attention import EdgeMask, edge_mask
from graphmill.kernels.rng import absorb
from graphmill.kernels.rng import key as rng_key
from graphmill.kernels.types import Array, Block, Stream
from graphmill.trainers.models.ops import dropout, relu_dropout, relu_dropout_grad

EDGES, INNER = -1, -2
"""The words that separate the masks of a layer's edges, and of rows inside it, from those of its output rows."""
FEATURES, PROJECTED = 0, -1
"""Layer words of the masks of the features and of their projection. The word of the output of layer l is l + 1; the head draws no mask."""


@dataclass(frozen=True, slots=True)
class StepRandom:
    """Names the masks of one training step; evaluation draws none.

    Attributes:
        train_epoch, position: the step's place in the run; never the sampling epoch, so reused samples get new masks.
        training: False in evaluation, where dropout is the identity.
    """

    seed: int
    train_epoch: int = 0
    position: int = 0
    training: bool = True

    def layer(self, index: int, node_ids: Array, held: bool = False) -> LayerRandom:
        """Returns the masks of a layer word for rows that belong to `node_ids` (global); `held` ones leave dropout to the reader."""
        key = rng_key(self.seed, Stream.DROPOUT, self.train_epoch, self.position, index)
        return LayerRandom(key, node_ids, self.training, held)


@dataclass(frozen=True, slots=True)
class LayerRandom:
    """The masks of one layer in one step; rows are keyed by node, so chunking and order do not matter."""

    # Key of run, step and layer.
    key: int
    # The nodes of the rows, ids[n].
    node_ids: Array
    # False in evaluation, where dropout is the identity.
    training: bool
    # Whether rows stay whole, since a function stands between this layer and the next; the reader drops elements by `dropout`.
    held: bool = False
    # Whether the layer's result is what its batch normalisation reads, which is computed apart.
    before_norm: bool = False

    def dropout(self, x: Tensor, p: float) -> Tensor:
        """Drops elements of x: float[len(node_ids), F] with probability p while training."""
        return dropout(x, self.node_ids, self.key, p) if self.training and not self.held else x

    def relu_dropout(self, x: Tensor, bias: Tensor | None, p: float) -> Tensor:
        """Adds a bias to x: float[len(node_ids), F], sets negative values to 0 and drops elements as `dropout` does, in the place of x."""
        return relu_dropout(x, bias, self.node_ids, self.key, p if self.training and not self.held else 0)

    def relu_dropout_backward(self, grad: Tensor, result: Tensor, p: float) -> Tensor:
        """Returns the gradient of x from that of `relu_dropout`'s result, without a forward pass: float[len(node_ids), F]."""
        return relu_dropout_grad(grad, result, p if self.training and not self.held else 0)

    def inner(self) -> LayerRandom:
        """Returns other masks of the same rows, for a second dropout in the layer; they are drawn whether or not rows are held."""
        return LayerRandom(absorb(self.key, INNER), self.node_ids, self.training)

    def edge_mask(self, block: Block, num_heads: int, p: float) -> EdgeMask | None:
        """Draws the mask of a block's attention weights while training: keyed by edge, so cutting the rows changes nothing."""
        if not self.training or p == 0:
            return None
        return edge_mask(block, num_heads, absorb(self.key, EDGES), p, threads=torch.get_num_threads())
