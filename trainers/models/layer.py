"""The two halves of a layer, and a model as a list of layers.

Every executor calls the halves separately: full-graph training keeps the aggregate of one chunk while it recomputes another, and history
pruning replaces rows between them. A model that is a list of such layers runs in every trainer. Its ends before the first layer and after
the last are row-wise and called separately (trainers/models/ends.py).
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import key as rng_key
from graphmill.kernels.rng import uniform
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import Array, Block, Stream
from graphmill.trainers.models.ends import LinearHead, Projection, TypedProjection
from graphmill.trainers.models.masks import FEATURES, PROJECTED, LayerRandom, StepRandom
from graphmill.trainers.models.node_rows import LearntRows
from graphmill.trainers.models.ops import own_rows


class Layer(Protocol):
    """The interface of a layer that every executor needs."""

    # Whether `aggregate` has no parameters and keeps nothing for its backward pass, so its output may be cached instead of
    # recomputed, and as a first layer on the features themselves it needs no gradient of its input rows.
    cacheable: bool
    # Whether `update` reads the destinations' own rows.
    reads_own: bool
    # "gcn" if the blocks must carry GCN coefficients, "sum" for the factors that make a sampled sum unbiased, or None. With
    # the data's weights: "data" for these alone, "data gcn", "data sum" or "data mean"
    # (`graphmill.trainers.batches.batch.attach_weights`).
    edge_weight: str | None

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """Returns float[num_dst, A] from h_src: float[num_src, F]."""
        ...

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """Returns float[num_dst, H] from the aggregate and the destinations' own rows h_dst: float[num_dst, F]."""
        ...

    def aggregate_backward(self, block: Block, grad: Tensor) -> Tensor:
        """Returns the gradient of h_src, float[num_src, F], from that of the aggregate, without a forward pass; for `cacheable` layers."""
        ...


class Between(Protocol):
    """A function between two layers: it replaces, adds or remembers rows."""

    def __call__(self, layer: int, block: Block, h: Tensor) -> Tensor:
        """Returns the rows that the layer reads, float[block.num_src, H].

        Args:
            layer: number of the layer that reads, 1 or more.
            h: float[c, H], output of the layer below, before dropout if that is the layer's last operation.
        """
        ...


class LayeredModel(nn.Module):
    """A model that is a list of layers, with an optional projection of the features and an optional head.

    Args:
        layers: modules with the two halves of `Layer`, from the features (or their projection) to the logits (or the head's input).
        input_dropout: probability that an input feature is dropped while training.
        projection: the projection of the features before the first layer, or None.
        readout: the head that makes logits of the layers' outputs; None if the last layer gives them.
        link_head: the head by which a loss scores pairs of the model's outputs (trainers/models/links/heads.py); None for other losses.

    Attributes:
        changed_buffers: names of the buffers that a training pass changes, of a user's model; running statistics of ours are none of them.
    """

    changed_buffers: Sequence[str] = ()

    def __init__(
        self,
        layers: list[nn.Module],
        input_dropout: float = 0.0,
        *,
        projection: Projection | TypedProjection | None = None,
        readout: LinearHead | None = None,
        link_head: nn.Module | None = None,
    ):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.input_dropout = input_dropout
        self.projection, self.readout, self.link_head = projection, readout, link_head
        wanted = {str(layer.edge_weight) for layer in layers if layer.edge_weight}
        if len(wanted) > 1:
            problem = f"the layers ask for different edge weights: {', '.join(sorted(wanted))}"
            raise InputError(problem, "a block carries one kind")

    @property
    def edge_weight(self) -> str | None:
        """The kind of weights that every block must carry on its edges, one of those of a layer; None for none."""
        return next((layer.edge_weight for layer in self.layers if layer.edge_weight), None)  # pyright: ignore[reportReturnType]

    @property
    def reads_relations(self) -> bool:
        """Whether a layer reads the relations of edges, which every block must carry then."""
        return any(getattr(layer, "reads_relations", False) for layer in self.layers)

    @property
    def reads_weights(self) -> bool:
        """Whether a layer reads the data's weights if edges have some, though it does not ask for them."""
        return False

    @property
    def border_widths(self) -> list[int]:
        """Columns of the rows that pass from each layer to the next one, if they may differ from the key `hidden`; else none."""
        return []

    @property
    def transpose(self) -> Transposes:
        """The blocks that need a transpose: all if the first layer's aggregation or a projection has parameters, else the hidden ones."""
        return "hidden" if self.layers[0].cacheable and self.projection is None else "all"

    @property
    def jumps(self) -> bool:
        """Whether the head reads the outputs of all layers."""
        return self.readout is not None and self.readout.jumps

    def forward(
        self,
        blocks: tuple[Block, ...],
        x: Tensor,
        rng: StepRandom,
        between: Between | None = None,
        summed: Tensor | None = None,
    ) -> Tensor:
        """Returns float[num_seeds, num_classes] from x: float[num_src of blocks[0], F].

        Args:
            between: makes the rows that a layer reads from the output of the one below; None passes them on unchanged. The bits are the
                same if it passes them on unchanged, too.
            summed: float[num_dst of blocks[0], A], the first layer's aggregate if it is known (`keeps_first_sums`); None to compute it.
        """
        h, outputs = self.input(x, blocks[0].src_ids, rng), []
        for index, block in enumerate(blocks):
            if index and between is not None:
                p = last_dropout(self.layers[index - 1])
                h = rng.layer(index, block.src_ids).dropout(between(index, block, h), p)
            if index and self.jumps:
                outputs.append(seed_rows(h, blocks[index:]))
            held = between is not None and index + 1 < len(blocks)
            h = self.forward_layer(index, block, h, rng, held, summed if index == 0 else None)
        return self.head([*outputs, h])

    def input(self, x: Tensor, node_ids: Array, rng: StepRandom) -> Tensor:
        """Returns the input rows of the first layer: float[n, H] from the nodes' features x: float[n, F]. Row-wise."""
        if self.input_dropout:
            x = rng.layer(FEATURES, node_ids).dropout(x, self.input_dropout)
        return x if self.projection is None else self.projection(x, rng.layer(PROJECTED, node_ids))

    def forward_layer(
        self, index: int, block: Block, h_src: Tensor, rng: StepRandom, held: bool = False, summed: Tensor | None = None
    ) -> Tensor:
        """Runs layer `index` alone: float[num_dst, H] from h_src: float[num_src, F].

        Args:
            held: leaves the layer's last dropout out.
            summed: float[num_dst, A], its aggregate if it is known.
        """
        layer: Any = self.layers[index]
        masks = rng.layer(index + 1, block.dst_ids, held and last_dropout(layer) > 0)
        if summed is None:
            whole = block.dst_pos is None and block.num_src == block.num_dst
            if whole and hasattr(layer, "forward_whole"):
                return layer.forward_whole(block, h_src, masks)
            # Evaluation has the same bits in whatever pieces nodes are scored, so it has one order of operations.
            if rng.training and not whole and getattr(layer, "joins_own", False):
                return layer.forward_block(block, h_src, masks)
        aggregate = layer.aggregate(block, h_src, masks) if summed is None else summed
        return layer.update(aggregate, own_rows(h_src, block), masks)

    @property
    def keeps_first_sums(self) -> bool:
        """Whether the first layer's aggregate of all nodes is the same in every pass: no parameter and no dropout comes before it."""
        return self.layers[0].cacheable is True and self.projection is None and not self.input_dropout  # pyright: ignore[reportReturnType]

    def head(self, outputs: Sequence[Tensor]) -> Tensor:
        """Returns the logits of nodes: float[n, num_classes]. Row-wise.

        Args:
            outputs: float[n, H] of the same nodes: the output of every layer in order if the model `jumps`, else that of the last.
        """
        if self.readout is None:
            return outputs[-1]
        rows = None
        for h in outputs:
            rows = self.readout.jump(rows, h)
        return self.readout(rows)


def last_dropout(layer: nn.Module) -> float:
    """Returns the probability of the dropout that ends a layer (trainers/models/layers/finish.py), 0 if the layer ends otherwise."""
    options = getattr(getattr(layer, "finish", None), "options", None)
    ends_so = getattr(layer, "ends_with_dropout", True)
    return 0.0 if options is None or options.last or not ends_so else options.dropout


def seed_rows(h: Tensor, above: Sequence[Block]) -> Tensor:
    """Returns the seeds' rows among the rows of a layer's output; a copy, so that the others need not stay in memory.

    Args:
        h: float[num_src of above[0], ...], the rows that the layer above reads.
        above: the blocks of the layers above, the last of which ends at the seeds. If a block has a splice, the seeds' rows are among the
            computed ones, except for above[0].
    """
    if not above:
        return h
    if all(block.dst_pos is None for block in above):
        return h[: above[-1].num_dst].clone()
    places = torch.arange(above[-1].num_dst, device=h.device)
    for block in reversed(above):
        places = places if block.dst_pos is None else torch.as_tensor(block.dst_pos).long()[places]
        if block.splice is not None and block is not above[0]:
            # Places among the sources become places among the destinations of the block below, which computes some of them.
            places = torch.searchsorted(torch.as_tensor(block.splice.computed).long(), places)
    return h[places]


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
    for name, module in model.named_modules():
        if isinstance(module, LearntRows):
            module.fill(seed, name)
