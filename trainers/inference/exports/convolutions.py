"""The convolutions of `torch_geometric.nn` and `dgl.nn` that compute what a layer's convolution computes, with its weights.

Each is one expression over the rows `h` in the text of a module (trainers/inference/exports/modules.py), and the tensors of its state dict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphmill.trainers.models.layers.gat import GatLayer
from graphmill.trainers.models.layers.gcn import GcnLayer
from graphmill.trainers.models.layers.gin import GinLayer
from graphmill.trainers.models.layers.pinsage import PinSageLayer
from graphmill.trainers.models.layers.rgat import RgatLayer
from graphmill.trainers.models.layers.rgcn import RgcnLayer
from graphmill.trainers.models.layers.sage import SageGcnLayer, SageLayer, SageMaxLayer, SageSumLayer

Library = Literal["pyg", "dgl"]
Edges = Literal["plain", "loops", "weighted", "weighted loops", "by degree", "by relation"]
"""Edges that a convolution reads: the graph's; with an edge from each node to itself; each with a weight, where there are loops too; with
weights times the number of edges of the destination, since DGL divides by it; with shares in the mean of a relation."""


class NoCounterpartError(Exception):
    """A library has no convolution that computes the same; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution of a library.

    Attributes:
        classes: the classes that the text imports from the library's `nn`.
        made: module name -> the text that makes it; `{name}` is the name of the convolution.
        tensors: key in the state dict -> tensor.
        call: the expression of its rows; `{h}` are the rows that it reads.
    """

    made: Mapping[str, str]
    tensors: Mapping[str, Tensor]
    call: str
    edges: Edges = "plain"
    classes: tuple[str, ...] = ()


def widths_of(linear: nn.Linear) -> str:
    """Returns the columns of a map's rows and of its result, as text."""
    return f"{linear.in_features}, {linear.out_features}"


def linear_text(linear: nn.Linear) -> str:
    """Returns the text that makes a linear map of the same shape."""
    return f"torch.nn.Linear({widths_of(linear)}{'' if linear.bias is not None else ', bias=False'})"


def state_of(module: nn.Module, name: str) -> dict[str, Tensor]:
    """Returns the tensors of a module under a name."""
    return {f"{name}.{key}": value for key, value in module.state_dict().items()}


def _one(made: str, call: str, tensors: Mapping[str, Any], edges: Edges = "plain") -> Convolution:
    """Returns a single module of a library; `tensors` are by its own keys."""
    return Convolution(
        made={"{name}": made},
        tensors={f"{{name}}.{key}": value for key, value in tensors.items()},
        call=f"self.{{name}}({call})",
        edges=edges,
        classes=(made.partition("(")[0],),
    )


def _gcn(layer: GcnLayer, library: Library) -> Convolution:
    weight, bias, widths = layer.linear.weight, layer.linear.bias, widths_of(layer.linear)
    plain_mean = layer.edge_weight == SageGcnLayer.edge_weight
    if library == "pyg":
        tensors = {"bias": bias, "lin.weight": weight}
        if plain_mean:
            tensors = {"lin_l.weight": weight, "lin_l.bias": bias}
            return _one(f"SAGEConv({widths}, root_weight=False)", "{h}, edge_index", tensors, "loops")
        return _one(f"GCNConv({widths}, normalize=False)", "{h}, edge_index, edge_weight", tensors, "weighted loops")
    if plain_mean:
        return _one(f'SAGEConv({widths}, "gcn")', "graph, {h}", {"fc_neigh.weight": weight, "bias": bias})
    tensors = {"weight": weight.T, "bias": bias}
    call = "graph, {h}, edge_weight=edge_weight"
    return _one(f'GraphConv({widths}, norm="none")', call, tensors, "weighted loops")


def _sage(layer: SageLayer, library: Library) -> Convolution:
    own, neighbours, widths = layer.own, layer.neighbours, widths_of(layer.own)
    summed, weighted = isinstance(layer, SageSumLayer), "data" in (layer.edge_weight or "")
    largest = isinstance(layer, SageMaxLayer)
    if library == "dgl":
        if largest:
            raise NoCounterpartError("dgl.nn.SAGEConv takes a maximum only of rows that another map made before")
        tensors = {"fc_self.weight": own.weight, "fc_self.bias": own.bias, "fc_neigh.weight": neighbours.weight}
        made = f'SAGEConv({widths}, "mean")'
        if weighted or summed:
            return _one(made, "graph, {h}, edge_weight=edge_weight", tensors, "by degree")
        return _one(made, "graph, {h}", tensors)
    if weighted:
        tensors = {"lin_rel.weight": neighbours.weight, "lin_rel.bias": own.bias, "lin_root.weight": own.weight}
        return _one(f"GraphConv({widths})", "{h}, edge_index, edge_weight", tensors, "weighted")
    tensors = {"lin_l.weight": neighbours.weight, "lin_l.bias": own.bias, "lin_r.weight": own.weight}
    how = ', aggr="max"' if largest else ', aggr="sum"' if summed else ""
    return _one(f"SAGEConv({widths}{how})", "{h}, edge_index", tensors)


def _gin(layer: GinLayer, library: Library) -> Convolution:
    first, _, last = layer.mlp
    network = f"torch.nn.Sequential({linear_text(first)}, torch.nn.ReLU(), {linear_text(last)})"  # pyright: ignore[reportArgumentType]
    weighted = layer.edge_weight == "data sum"
    if library == "pyg":
        if weighted:
            raise NoCounterpartError("torch_geometric.nn.GINConv takes no edge weights")
        tensors = {"eps": layer.eps, **state_of(layer.mlp, "nn")}
        return _one(f"GINConv({network}, train_eps=True)", "{h}, edge_index", tensors)
    tensors = {"eps": layer.eps, **state_of(layer.mlp, "apply_func")}
    made = f'GINConv({network}, "sum", learn_eps=True)'
    if weighted:
        return _one(made, "graph, {h}, edge_weight=edge_weight", tensors, "weighted")
    return _one(made, "graph, {h}", tensors)


def _gat(layer: GatLayer, library: Library) -> Convolution:
    shape, weighted = f"{layer.projection.in_features}, {layer.depth}", layer.edge_weight is not None
    if library == "pyg":
        if weighted:
            raise NoCounterpartError("torch_geometric.nn.GATConv has no weights that multiply its attention")
        bias = layer.bias.view(layer.heads, layer.depth).mean(0) if layer.average else layer.bias
        tensors = {"att_src": layer.left[None], "att_dst": layer.right[None], "bias": bias}
        tensors |= {"lin.weight": layer.projection.weight}
        concat = ", concat=False" if layer.average else ""
        made = (
            f"GATConv({shape}, heads={layer.heads}{concat}, add_self_loops=False)"  # it would remove those of the graph
        )
        return _one(made, "{h}, edge_index", tensors, "loops")
    tensors = {"attn_l": layer.left[None], "attn_r": layer.right[None], "bias": layer.bias}
    tensors |= {"fc.weight": layer.projection.weight}
    call, edges = ("graph, {h}, edge_weight=edge_weight", "weighted loops") if weighted else ("graph, {h}", "loops")
    found = _one(f"GATConv({shape}, {layer.heads})", call, tensors, edges)  # pyright: ignore[reportArgumentType]
    return _joined(found, layer.average)


def _joined(found: Convolution, average: bool) -> Convolution:
    """Returns a convolution of DGL whose heads are averaged, or put side by side."""
    return replace(found, call=f"{found.call}.{'mean(1)' if average else 'flatten(1)'}")


def _rgcn(layer: RgcnLayer, library: Library) -> Convolution:
    relations = len(layer.matrices) if layer.coefficients is None else len(layer.coefficients)
    widths, weight = widths_of(layer.own), torch.stack([matrix.T for matrix in layer.matrices])
    bases = len(layer.matrices) if layer.coefficients is not None else 0
    if library == "pyg":
        if layer.edge_weight:
            raise NoCounterpartError("torch_geometric.nn.RGCNConv takes no edge weights")
        tensors = {"weight": weight, "root": layer.own.weight.T, "bias": layer.own.bias}
        tensors |= {"comp": layer.coefficients} if bases else {}
        basis = f", num_bases={bases}" if bases else ""
        return _one(f"RGCNConv({widths}, {relations}{basis})", "{h}, edge_index, edge_type", tensors)
    tensors = {"linear_r.W": weight, "loop_weight": layer.own.weight.T, "h_bias": layer.own.bias}
    tensors |= {"linear_r.coeff": layer.coefficients} if bases else {}
    basis = f', "basis", {bases}' if bases else ""
    made = f"RelGraphConv({widths}, {relations}{basis})"
    return _one(made, "graph, {h}, edge_type, edge_weight[:, None]", tensors, "by relation")


def _rgat(layer: RgatLayer, library: Library) -> Convolution:
    shape, relations = f"{layer.own.in_features}, {layer.depth}", len(layer.matrices)
    if library == "pyg":
        keys, concat = ("lin.weight", "att_src", "att_dst"), ", concat=False" if layer.average else ""
        one = f"GATConv({shape}, heads={layer.heads}{concat}, add_self_loops=False, bias=False)"
        call = "conv({h}, edge_index[:, edge_type == kind])"
    else:
        keys = ("fc.weight", "attn_l", "attn_r")
        one = f"GATConv({shape}, {layer.heads}, bias=False, allow_zero_in_degree=True)"
        heads = "mean(1)" if layer.average else "flatten(1)"
        call = f"conv(graph.edge_subgraph(edge_type == kind, relabel_nodes=False), {{h}}).{heads}"
    tensors = state_of(layer.own, "own_{name}")
    for kind, matrix in enumerate(layer.matrices):
        halves = (each[kind].view(1, layer.heads, layer.depth) for each in (layer.left, layer.right))
        tensors |= {f"{{name}}.{kind}.{key}": value for key, value in zip(keys, (matrix, *halves), strict=True)}
    return Convolution(
        made={
            "own_{name}": linear_text(layer.own),
            "{name}": f"torch.nn.ModuleList({one} for _ in range({relations}))",
        },
        tensors=tensors,
        call=f"self.own_{{name}}({{h}}) + sum({call} for kind, conv in enumerate(self.{{name}}))",
        classes=("GATConv",),
    )


def _pinsage(layer: PinSageLayer, library: Library) -> Convolution:
    own, neighbours, pool = layer.own, layer.neighbours, layer.projection
    shape, rows = f"({pool.out_features}, {own.in_features}), {own.out_features}", "(self.pool_{name}({h}).relu(), {h})"
    if library == "pyg":
        tensors = {"lin_l.weight": neighbours.weight, "lin_l.bias": own.bias, "lin_r.weight": own.weight}
        found = _one(f"SAGEConv({shape})", f"{rows}, edge_index", tensors)
    else:
        tensors = {"fc_self.weight": own.weight, "fc_self.bias": own.bias, "fc_neigh.weight": neighbours.weight}
        found = _one(f'SAGEConv({shape}, "mean")', f"graph, {rows}", tensors)
    made, tensors = {"pool_{name}": linear_text(pool)}, state_of(pool, "pool_{name}")
    return replace(found, made={**made, **found.made}, tensors={**tensors, **found.tensors})


CONVOLUTIONS: Mapping[type[nn.Module], Callable[[Any, Library], Convolution]] = {
    GcnLayer: _gcn,
    SageLayer: _sage,
    GinLayer: _gin,
    GatLayer: _gat,
    RgcnLayer: _rgcn,
    RgatLayer: _rgat,
    PinSageLayer: _pinsage,
}
"""Class of a layer, or a class that it is derived from -> its convolution in a library."""


def convolution_of(layer: nn.Module, library: Library) -> Convolution:
    """Returns the convolution of a library that computes that of a layer.

    Raises:
        NoCounterpartError: the library has none.
    """
    for kind, make in CONVOLUTIONS.items():
        if isinstance(layer, kind):
            return make(layer, library)
    raise NoCounterpartError(f"there is none of a layer {type(layer).__name__}")
