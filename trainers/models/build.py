"""Builds the module that a train table's `model` names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from graphmill.assets.features.read import NodeRows, NodeTypes, node_types
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Topology
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.models.cut.cut import build_fitting_model
from graphmill.trainers.models.ends import LinearHead, Projection, TypedProjection
from graphmill.trainers.models.layer import LayeredModel, initialise
from graphmill.trainers.models.layers.edge_features import WITH_EDGES
from graphmill.trainers.models.layers.feed_forward import feed_forward_layer
from graphmill.trainers.models.layers.finish import ACTIVATIONS, LayerOptions
from graphmill.trainers.models.layers.gat import GatLayer
from graphmill.trainers.models.layers.gcn import GcnLayer, PassingLayer
from graphmill.trainers.models.layers.gin import GinLayer
from graphmill.trainers.models.layers.map_first import NARROW
from graphmill.trainers.models.layers.pinsage import PinSageLayer
from graphmill.trainers.models.layers.rgat import RgatLayer
from graphmill.trainers.models.layers.rgcn import RgcnLayer
from graphmill.trainers.models.layers.sage import AGGREGATORS
from graphmill.trainers.models.links.heads import link_head
from graphmill.trainers.models.links.rows import RowsAlone
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.models.own import Model
from graphmill.trainers.models.products import kept_dtype
from graphmill.trainers.recipe.known_mistakes import rows_mistake, widths_mistake
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.record.ledger import Line

if TYPE_CHECKING:
    from graphmill.trainers.recipe.config import TrainConfig

PARAMETERS = Line("h2d", "parameter")
LAYERS: dict[str, type[nn.Module]] = {"gcn": GcnLayer, "gat": GatLayer, "gin": GinLayer, "pinsage": PinSageLayer}


def build_model(
    config: TrainConfig,
    in_width: int,
    num_classes: int,
    seed: int,
    relations: int = 0,
    types: NodeTypes | None = None,
    edge_width: int = 0,
) -> Model:
    """Builds and initialises the model of a train table.

    Args:
        config: the architecture, depth, width and the end of each layer.
        num_classes: number of logits; a model of links gives rows of `hidden` columns instead, for its head.
        seed: with the parameter names, decides every initial value.
        types: the graph's node types and the columns of their features; None if nodes have no types. For `model = "rows"` required.
        edge_width: columns of the rows of edges; 0 without.

    Raises:
        InputError: the model reads rows of edges, and there are none; or the user's own model cannot be made, or the model reads relations
            or node types that the graph does not have, or node types have features of different widths and the model reads one kind of
            rows.
    """
    # Initial values are drawn in float32, so that models of all types begin at the same point.
    return _build(config, in_width, num_classes, seed, relations, types, edge_width).to(
        getattr(torch, kept_dtype(config.dtype))
    )


def require_weights(config: TrainConfig, topology: Topology) -> None:
    """Raises InputError if a table has `edge_weight = true`, and the graph's edges have no weights."""
    if config.edge_weight and topology.weights is None:
        problem = "edge_weight = true multiplies messages by edge weights, and the edges of the graph have none"
        raise InputError(problem, "give the source a column of weights (docs/own-data.md), or remove the key")


def model_types(train: TrainConfig, topology: Topology, stored: NodeRows) -> NodeTypes | None:
    """Returns the node types that a model reads; one without features for a model of rows alone. None if it reads none."""
    if train.model == "rows":
        return NodeTypes(starts=(0, topology.num_nodes), columns=(0,))
    return node_types(topology, stored)


def send_model(model: Model, device: Device) -> Model:
    """Returns the model with its parameters and buffers on a device, and books them beside the batches' traffic."""
    # On the host rows of nodes are in memory only once they are read.
    nodes, host = node_rows(model), device.holds(torch.empty(0))
    tensors = [*model.parameters(), *model.buffers(), *([] if nodes is None or host else [nodes.table.values])]
    if sent := [tensor.nbytes for tensor in tensors if not device.holds(tensor)]:
        device.traffic.crossed(PARAMETERS, sum(sent), requests=len(sent))
        model.to(device.torch_device)
    return model


def _build(
    config: TrainConfig,
    in_width: int,
    num_classes: int,
    seed: int,
    relations: int,
    types: NodeTypes | None,
    edge_width: int,
) -> Model:
    if config.edge_features and not edge_width:
        problem = f"{config.model} was trained with rows of edges (edge_features = true), which are not read here"
        raise InputError(problem, "predict with graphmill predict, on a pipeline with a table [features.edges]")
    wide = {"relations": relations, "outputs": num_classes}
    head = link_head(config.link_head, config.hidden, **wide) if config.predicts_links else None
    if is_reference(config.model):
        return build_fitting_model(config, in_width, num_classes, seed, head, edge_width)
    if config.model == "rows":
        assert types is not None, "a model of rows gets the nodes as one type without features"
        rows = RowsAlone(types.starts[-1], config.hidden, config.layers, head, config.embedding_init)
        initialise(rows, seed)
        return rows
    depth, hidden, linear_head = config.layers, config.hidden, config.head == "linear"
    outputs = config.output_width(num_classes)
    first, last = (hidden if config.projects else in_width), (hidden if linear_head else outputs)
    widths = [first] + [hidden] * (depth - 1) + [last]
    names = ("dropout", "norm", "residual", "activation", "heads", "attention_dropout", "edge_weight")
    inner = LayerOptions(**{name: getattr(config, name) for name in names})
    options = [replace(inner, last=i + 1 == depth and not linear_head) for i in range(depth)]
    kind, blocks = _kind(config, relations, edge_width), config.feed_forward
    layers: list[nn.Module] = []
    for index, (wide, out) in enumerate(pairwise(widths)):
        if blocks:
            layers.append(feed_forward_layer(kind, hidden, blocks, options[index]))
        else:
            made: Any = NARROW.get(kind, kind) if maps_first(config, index, wide, out) else kind
            layers.append(made(wide, out, options[index]))
    activation = ACTIVATIONS[config.activation] if blocks else None
    normed = bool(blocks) and config.norm == "layer"
    model = LayeredModel(
        layers,
        config.input_dropout,
        projection=_projection(config, in_width, types, activation),
        readout=LinearHead(depth, hidden, outputs, config.jk, normed) if linear_head else None,
        link_head=head,
    )
    initialise(model, seed)
    return model


def maps_first(config: TrainConfig, index: int, in_width: int, out_width: int) -> bool:
    """Returns whether a layer maps rows before it sums them (layers/map_first.py): where that narrows them, in a full-graph pass.

    The sums of features that no epoch changes are made once, in whatever width: the first layer sums them first.
    """
    changing = index > 0 or config.projects or config.input_dropout > 0
    return find_technique(config.trainer).whole_graph and changing and out_width < in_width


def _projection(
    config: TrainConfig, in_width: int, types: NodeTypes | None, activation: Callable[[Tensor], Tensor] | None
) -> Projection | TypedProjection | None:
    """Returns the projection of the features, None without one; errors as of `build_model`."""
    if config.input == "typed":
        if types is None:
            problem = 'input = "typed" has a projection per node type, and the nodes of the graph have no types'
            raise InputError(problem, 'set input = "linear", or give the source node types (docs/own-data.md)')
        if mistake := rows_mistake(config, types.columns):
            raise mistake
        of_nodes = config.embedding_init if config.embedding == "node" else None
        return TypedProjection(types, config.hidden, config.dropout, activation, of_nodes=of_nodes)
    if types and (mistake := widths_mistake(config, types.columns)):
        raise mistake
    return Projection(in_width, config.hidden, config.dropout, activation) if config.projects else None


def _kind(config: TrainConfig, relations: int, edge_width: int) -> Any:
    """Returns the function (columns of the input, of the output, options) -> layer."""
    if not config.edge_features:
        return _plain_kind(config, relations)
    kind = _plain_kind(config, relations)
    layer, options = (kind.func, kind.keywords) if isinstance(kind, partial) else (kind, {})
    return partial(WITH_EDGES[cast(type, layer)], edge_width=edge_width, **options)


def _plain_kind(config: TrainConfig, relations: int) -> Any:
    """Returns the kind of layers without rows of edges."""
    if config.model == "sage":
        return AGGREGATORS[config.aggregator]
    if config.model not in ("rgcn", "rgat"):
        return LAYERS[config.model] if config.maps else PassingLayer
    if not relations:
        problem = f'model = "{config.model}" has matrices per relation, and the edges of the graph have no relations'
        remedy = "give the source a column or folders of relations (docs/own-data.md), or take another model"
        raise InputError(problem, remedy)
    if config.model == "rgat":
        return partial(RgatLayer, relations=relations)
    return partial(RgcnLayer, relations=relations, bases=config.bases)
