"""Cuts a user's module between its layers, and shows on a small graph that what is left of it computes the same.

A trainer that runs one layer at a time can then train a module over whole blocks, `forward(blocks, x)`, and in chunks one over a graph,
`forward(x, edge_index)`, as it trains a list of layers. Whether that is right follows from no list of convolutions: the cut module has to
have the logits and the gradients of the whole one, and the same logits if each layer computes the nodes in two pieces. A convolution of
several hops fails there, and so does a norm over all nodes; the message names the layer's convolutions.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.kernels.blocks.pyg_blocks import to_subgraph
from graphmill.kernels.types import Block
from graphmill.trainers.models.cut.cut_layer import DEGREE, CutLayer
from graphmill.trainers.models.cut.small import NUM_NODES, give_rows, small_block, small_rows
from graphmill.trainers.models.cut.trace import RELATIONS, WEIGHTS, CutError, Root, first_line, pieces, read
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import FORMS, Model, OwnLayers, OwnModule, build_own_model, dtype_of
from graphmill.trainers.recipe.techniques import find_technique

if TYPE_CHECKING:
    from graphmill.trainers.recipe.config import TrainConfig

STILL, TRAINING = StepRandom(0, training=False), StepRandom(0)
TOLERANCE = 1e-3
"""Most that float32 sums in another order may differ on the small graph, relative to the largest value."""
ALL = (0, NUM_NODES)
CUTS = ((0, NUM_NODES // 2), (NUM_NODES // 2, NUM_NODES))
REMEDY = "train it on mini-batches, or write it as a list of layers (docs/own-models.md)"
UNCUT_REMEDY = f'set mode = "device" in [train.fullgraph] or cut the graph into one chunk, or {REMEDY}'


class CutModule(OwnLayers):
    """A user's module as a list of layers; its parameters have the names that they have in the whole one.

    Args:
        layers: its layers, whose parameters are those of the module.
    """

    def __init__(self, module: OwnModule, layers: list[CutLayer]):
        super().__init__([*layers], link_head=module.link_head)
        self.inner, self.whole = module.inner, (module,)

    @property
    def cut_layers(self) -> list[CutLayer]:
        """Its layers."""
        return [each for each in self.layers if isinstance(each, CutLayer)]

    @property
    def border_widths(self) -> list[int]:
        """Columns of the rows that pass from each layer to the next one."""
        return [sum(each.widths) for each in self.cut_layers[1:]]

    @property
    def reads_weights(self) -> bool:
        """Whether it reads weights of edges."""
        return any(each.reads(WEIGHTS) for each in self.cut_layers)

    @property
    def reads_relations(self) -> bool:
        """Whether it reads relations of edges."""
        return any(each.reads(RELATIONS) for each in self.cut_layers)


def runs_layers(config: TrainConfig) -> bool:
    """Returns whether a training runs one layer at a time: with a history between layers, or in chunks of the whole graph."""
    technique = find_technique(config.trainer)
    return technique.halves and (not technique.whole_graph or "chunks" in config.needs)


def build_fitting_model(
    config: TrainConfig,
    in_width: int,
    num_classes: int,
    seed: int,
    link_head: nn.Module | None = None,
    edge_width: int = 0,
) -> Model:
    """Makes the model that `config.model` names, cut between its layers if the trainer runs one at a time.

    A module that cannot be cut is returned as it is for a pass over the whole graph, of which there may be one chunk; its `uncut` says why.

    Args:
        link_head, edge_width: as of `build_own_model`.

    Raises:
        InputError: as for `build_own_model`, or the module cannot be cut for a history.
    """
    model = _fitting(config, in_width, num_classes, seed, link_head, edge_width)
    with torch.random.fork_rng(devices=[]):
        model.changed_buffers = changed_buffers(model, in_width, edge_width)
    return model


def _fitting(
    config: TrainConfig, in_width: int, num_classes: int, seed: int, link_head: nn.Module | None, edge_width: int
) -> Model:
    model = build_own_model(config, in_width, num_classes, seed, link_head, edge_width)
    if not isinstance(model, OwnModule) or not runs_layers(config):
        return model
    whole_graph = find_technique(config.trainer).whole_graph
    try:
        with torch.random.fork_rng(devices=[]):
            found = cut_module(model, in_width)
        if found.edge_weight == DEGREE and not whole_graph:
            raise CutError("its convolutions weigh edges by degrees, which a batch does not show", REMEDY)
        return found
    except Exception as error:
        how = "in chunks" if whole_graph else "with a history between its layers"
        inside = f" (built of {', '.join(model.convolutions)})" if model.convolutions else ""
        why = error.problem if isinstance(error, CutError) else f"a layer by itself fails: {first_line(error)}"
        problem = f"{model.name}{inside} cannot be trained {how}: {why}"
        model.uncut = CutError(problem, UNCUT_REMEDY if whole_graph else REMEDY)
        if not whole_graph:
            raise model.uncut from error
        return model


def cut_module(module: OwnModule, in_width: int) -> Model:
    """Returns a module as layers that can be computed one at a time; the module itself if it cannot compute a small graph.

    Raises:
        CutError: its forward cannot be read or has no layers, or the layers compute something else.
    """
    root, x = Root(module), small_rows(in_width, dtype_of(module))
    able = [attributes for attributes in (False, True) if _computes(module, x, attributes)]
    if not able:
        return module
    block = small_block(attributes=able[0])
    given = to_subgraph([block]) if module.takes_graph else [FORMS[module.form][1](block)] * module.depth
    trained, evaluated = (
        pieces(root, read(root, given, training), x, given, len(block.indices)) for training in (True, False)
    )
    if [each.entering for each in trained] != [each.entering for each in evaluated]:
        raise CutError("its layers pass on other values while it trains", REMEDY)
    found = CutModule(module, [CutLayer(root, *both) for both in zip(trained, evaluated, strict=True)])
    for attributes in able:
        # Degrees take the place of weights in the blocks of layers that weigh edges by them.
        if attributes and found.edge_weight is not None and found.reads_weights:
            continue
        _set_widths(found, x, attributes)
        for rng in (STILL, TRAINING):
            _require_same(found, x, attributes, rng)
        _require_apart(found, x, attributes)
    return found


def changed_buffers(model: Model, in_width: int, edge_width: int = 0) -> list[str]:
    """Returns the names of the buffers of a user's model that a training pass changes; all of them if it cannot compute a small graph."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    if not before:
        return []
    tried = copy.deepcopy(model)
    depth = len(tried.layers) if isinstance(tried, LayeredModel) else tried.depth
    block = small_block(attributes=True, kind=tried.edge_weight)
    if edge_width:
        give_rows((block,), edge_width, dtype_of(tried))
    try:
        with torch.no_grad():
            tried((block,) * depth, small_rows(in_width, dtype_of(tried)), TRAINING)
    except Exception:
        return [*before]
    return [name for name, buffer in tried.named_buffers() if not torch.equal(buffer, before[name])]


def _computes(module: OwnModule, x: Tensor, attributes: bool) -> bool:
    """Tells whether the whole module computes the small graph, whose edges have attributes or not."""
    try:
        with torch.no_grad():
            copy.deepcopy(module)((small_block(attributes=attributes),) * module.depth, x, STILL)
    except Exception:
        return False
    return True


def _set_widths(model: CutModule, x: Tensor, attributes: bool) -> None:
    """Finds the columns of the values that enter each layer."""
    block, entering = small_block(attributes=attributes, kind=model.edge_weight), [x]
    for index, layer in enumerate(model.cut_layers):
        if not all(isinstance(each, Tensor) and each.dim() == 2 for each in entering):
            raise CutError(f"layer {index - 1} passes on values that are not rows of numbers", REMEDY)
        layer.widths = [each.shape[1] for each in entering]
        tried = copy.deepcopy(layer).eval()
        with torch.no_grad():
            entering = tried.leaving(block, torch.cat(entering, 1))


def _results(model: Model, block: Block, x: Tensor, rng: StepRandom) -> list[Tensor]:
    """Returns the logits, the gradients of the rows and of all parameters for a loss of them, and the buffers afterwards."""
    tried, x = copy.deepcopy(model), x.clone().requires_grad_()
    depth = len(tried.layers) if isinstance(tried, LayeredModel) else tried.depth
    logits = tried((block,) * depth, x, rng)
    (logits * small_rows(logits.shape[1], logits.dtype)).sum().backward()
    gradients = [each.grad for each in (x, *tried.parameters())]
    return [logits.detach(), *(torch.zeros(()) if each is None else each for each in gradients), *tried.buffers()]


def _require_same(model: CutModule, x: Tensor, attributes: bool, rng: StepRandom) -> None:
    """Raises CutError if the layers one after another have other logits or gradients than the whole module."""
    wanted = _results(model.whole[0], small_block(attributes=attributes), x, rng)
    found = _results(model, small_block(attributes=attributes, kind=model.edge_weight), x, rng)
    if not all(_close(*both) for both in zip(found, wanted, strict=True)):
        raise CutError("its layers, computed one after another, give other logits, gradients or buffers", REMEDY)


def _require_apart(model: CutModule, x: Tensor, attributes: bool) -> None:
    """Raises CutError if a layer has other rows if it computes the nodes in two pieces."""
    tried, h, masks = copy.deepcopy(model).eval(), x, STILL.layer(0, np.arange(NUM_NODES))
    with torch.no_grad():
        for index, layer in enumerate(tried.cut_layers):
            blocks = [small_block(low, high, attributes, model.edge_weight) for low, high in (ALL, *CUTS)]
            whole, *parts = (layer.aggregate(block, h, masks) for block in blocks)
            if not _close(torch.cat(parts), whole):
                inside = ", ".join(layer.modules_inside) or "no module"
                raise CutError(f"layer {index} ({inside}) reads more than the neighbours of a node", REMEDY)
            h = whole


def _close(found: Tensor, wanted: Tensor) -> bool:
    if found.shape != wanted.shape:
        return False
    scale = float(wanted.abs().max()) if wanted.numel() else 0.0
    return torch.allclose(found, wanted, rtol=0.0, atol=TOLERANCE * scale + 1e-12, equal_nan=True)
