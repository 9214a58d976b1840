"""The two halves of a layer, and a model as a list of layers.

Every executor calls the halves apart: full-graph training keeps the aggregate of one chunk while it recomputes another, and history
pruning replaces rows between them. A model that is a list of such layers runs in every trainer.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from kernels.errors import InputError
from kernels.layers.attention import EdgeMask, edge_mask
from kernels.rng import absorb, uniform
from kernels.rng import key as rng_key
from kernels.sampling.sample import Transposes
from kernels.types import Array, Block, Stream
from trainers.ops import dropout

EDGES = -1
"""The word that sets the masks of a layer's edges apart from those of its rows."""


@dataclass(frozen=True, slots=True)
class StepRandom:
    """Names the masks of one training step; evaluation draws none.

    Attributes:
        seed: the run's seed.
        train_epoch, position: the step's place in the run; never the sampling epoch, so reused samples get new masks.
        training: False in evaluation, where dropout is the identity.
    """

    seed: int
    train_epoch: int = 0
    position: int = 0
    training: bool = True

    def layer(self, index: int, node_ids: Array) -> LayerRandom:
        """Returns the masks of layer `index` for rows that belong to `node_ids` (global)."""
        key = rng_key(self.seed, Stream.DROPOUT, self.train_epoch, self.position, index)
        return LayerRandom(key, node_ids, self.training)


@dataclass(frozen=True, slots=True)
class LayerRandom:
    """The masks of one layer in one step; rows are keyed by node, so chunking and order do not matter."""

    key: int
    node_ids: Array
    training: bool

    def dropout(self, x: Tensor, p: float) -> Tensor:
        """Drops elements of x: float[len(node_ids), F] with probability p while training."""
        return dropout(x, self.node_ids, self.key, p) if self.training else x

    def edge_mask(self, block: Block, num_heads: int, p: float) -> EdgeMask | None:
        """Draws which attention weights of a block are dropped while training: keyed by edge, so cutting the rows changes nothing."""
        if not self.training or p == 0:
            return None
        return edge_mask(block, num_heads, absorb(self.key, EDGES), p, threads=torch.get_num_threads())


class Layer(Protocol):
    """What every executor needs of a layer.

    Attributes:
        cacheable: `aggregate` has no parameters and keeps nothing for its backward pass, so its output may be cached instead of
            recomputed, and as a first layer it needs no gradient of its input rows.
        edge_weight: "gcn" when the blocks must carry GCN coefficients, "sum" for the factors that make a sampled sum unbiased, or None.
    """

    cacheable: bool
    edge_weight: str | None

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """Returns float[num_dst, A] from h_src: float[num_src, F]."""
        ...

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """Returns float[num_dst, H] from the aggregate and the destinations' own rows h_dst: float[num_dst, F]."""
        ...


class LayeredModel(nn.Module):
    """A model that is a list of layers.

    Args:
        layers: modules with the two halves of `Layer`, from the features to the logits.
        input_dropout: probability that an input feature is dropped while training.
    """

    def __init__(self, layers: list[nn.Module], input_dropout: float = 0.0):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.input_dropout = input_dropout
        wanted = {str(layer.edge_weight) for layer in layers if layer.edge_weight}
        if len(wanted) > 1:
            raise InputError(
                f"the layers ask for different edge weights: {', '.join(sorted(wanted))}", "a block carries one kind"
            )

    @property
    def edge_weight(self) -> str | None:
        """What every block must carry on its edges: "gcn", "sum" or None."""
        return next((layer.edge_weight for layer in self.layers if layer.edge_weight), None)  # pyright: ignore[reportReturnType]

    @property
    def transpose(self) -> Transposes:
        """Which blocks need a transpose: all where the first layer sends gradients to its input rows."""
        return "hidden" if self.layers[0].cacheable else "all"

    def forward(self, blocks: tuple[Block, ...], x: Tensor, rng: StepRandom) -> Tensor:
        """Returns float[num_seeds, num_classes] from x: float[num_src of blocks[0], F]."""
        h = x
        for index, block in enumerate(blocks):
            h = self.forward_layer(index, block, h, rng)
        return h

    def forward_layer(self, index: int, block: Block, h_src: Tensor, rng: StepRandom) -> Tensor:
        """Runs layer `index` alone: float[num_dst, H] from h_src: float[num_src, F]."""
        if index == 0 and self.input_dropout:
            # Layer numbers of the masks: 0 is the input, l + 1 the output of layer l.
            h_src = rng.layer(0, block.src_ids).dropout(h_src, self.input_dropout)
        layer = self.layers[index]
        masks = rng.layer(index + 1, block.dst_ids)
        return layer.update(layer.aggregate(block, h_src, masks), own_rows(h_src, block), masks)  # pyright: ignore[reportCallIssue]


def own_rows(h_src: Tensor, block: Block) -> Tensor:
    """Returns the destinations' rows among the sources' rows: float[num_dst, ...]."""
    return h_src[: block.num_dst] if block.dst_pos is None else h_src[torch.from_numpy(block.dst_pos).long()]


def initialise(model: nn.Module, seed: int) -> None:
    """Fills every parameter from (seed, parameter name): Glorot uniform for matrices, zero for vectors, one for a norm's factors.

    The values depend on nothing else: not on torch's generator, not on the order of construction, not on the machine.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
                continue
            word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
            bound = math.sqrt(6.0 / (parameter.shape[0] + parameter.shape[1]))
            values = torch.from_numpy(uniform(rng_key(seed, Stream.INIT, word), parameter.numel()))
            parameter.copy_(((values * 2 - 1) * bound).view_as(parameter))
