"""The text of a module of PyG or DGL that computes what a trained model computes, and the state dict that fills it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphmill.trainers.inference.exports.convolutions import (
    Convolution,
    Edges,
    Library,
    convolution_of,
    linear_text,
    state_of,
)
from graphmill.trainers.models.ends import LinearHead, Projection, TypedProjection
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.feed_forward import FeedForwardLayer
from graphmill.trainers.models.layers.finish import ACTIVATIONS
from graphmill.trainers.models.layers.pinsage import PinSageLayer
from graphmill.trainers.models.links.heads import (
    BilinearHead,
    DistMultHead,
    LinkHead,
    MlpHead,
    RelationHead,
    RotatEHead,
    TransEHead,
)
from graphmill.trainers.models.own import dtype_of

ACTIVATION_TEXT = {name: f"torch.nn.functional.{name}({{}})" for name in ACTIVATIONS} | {"tanh": "torch.tanh({})"}
RELATION_TEXT: dict[type[LinkHead], str] = {
    DistMultHead: "(source * r * target).sum(-1)",
    TransEHead: "-(source + r - target).norm(dim=-1)",
    RotatEHead: "-(torch.cat([a * r.cos() - b * r.sin(), a * r.sin() + b * r.cos()], -1) - target).norm(dim=-1)",
}
"""Head with a row r for each relation -> the score of pairs; a and b are the real and the imaginary half of the sources."""
WEIGHTS = {
    "gcn": '''
def weights(edge_index, num_nodes, edge_weight=None):
    """Returns 1 / sqrt((d_in(v) + 1) (d_out(u) + 1)) of each edge u -> v, times its weight, and of each node itself."""
    of_source, of_target = ((torch.bincount(ends, minlength=num_nodes).double() + 1).rsqrt() for ends in edge_index)
    found = of_source[edge_index[0]] * of_target[edge_index[1]]
    return found if edge_weight is None else found * edge_weight, of_source * of_target
''',
    "mean with self": '''
def weights(edge_index, num_nodes, edge_weight=None):
    """Returns the shares of edges and of nodes themselves, whose weight is 1, in the mean of a node and its neighbours."""
    total = 1 + torch.bincount(edge_index[1], edge_weight, num_nodes).double()
    own = torch.where(total != 0, 1 / total, 0)
    return own[edge_index[1]] if edge_weight is None else own[edge_index[1]] * edge_weight, own
''',
    "mean": '''
def weights(edge_index, num_nodes, edge_weight):
    """Returns the shares of edges in the weighted mean of their destination; 0 if its weights sum to 0."""
    total = torch.bincount(edge_index[1], edge_weight.double(), num_nodes)
    return torch.where(total != 0, 1 / total, 0)[edge_index[1]] * edge_weight
''',
    "relation": '''
def weights(edge_index, edge_type, num_nodes, edge_weight=None):
    """Returns the shares of edges in the mean of their destination over the edges of their relation."""
    run = edge_type * num_nodes + edge_index[1]
    edge_weight = torch.ones(len(run)) if edge_weight is None else edge_weight
    total = torch.bincount(run, edge_weight.double())[run]
    return torch.where(total != 0, edge_weight / total, 0)
''',
}
"""Kind of edge weights -> the text of a function that computes them of a whole graph."""


def kind_of_weights(model: LayeredModel) -> str:
    """Returns the entry of `WEIGHTS` that the programs of a model read, "" if the data's weights, or none, are all that they read."""
    return next((kind for kind in ("gcn", "mean with self", "mean") if (model.edge_weight or "").endswith(kind)), "")


class ModuleText:
    """The text and the state dict of a module.

    Args:
        model: the trained model, a list of graphmill's own layers.

    Raises:
        NoCounterpartError: the library has no convolution that computes the same as a layer.
    """

    def __init__(self, model: LayeredModel, library: Library):
        self.library: Library = library
        self.made: list[str] = []
        self.lines: list[str] = []
        self.tensors: dict[str, Tensor] = {}
        self.classes: set[str] = set()
        self.cast = ".double()" if dtype_of(model) == torch.float64 else ""
        self.weighted = "data" in (model.edge_weight or "")
        self.typed, self.relations = isinstance(model.projection, TypedProjection), model.reads_relations
        found = [convolution_of(getattr(each, "convolution", each), library) for each in model.layers]
        self._edges(found[0].edges, kind_of_weights(model))
        self.lines.append("h = x")
        if isinstance(model.projection, Projection | TypedProjection):
            self._input(model.projection)
        for number, (layer, convolution) in enumerate(zip(model.layers, found, strict=True), 1):
            self._layer(layer, convolution, number)
            if model.jumps:
                self.lines.append(f"outputs{' = [h]' if number == 1 else '.append(h)'}")
        if model.readout is not None:
            self._head(model.readout)
        self.score = self._score(model.link_head) if isinstance(model.link_head, LinkHead) else []

    def text(self, title: str, state: str) -> str:
        """Returns the text of a Python file.

        Args:
            state: name of the file of the state dict, beside it.
        """
        library = "torch_geometric.nn" if self.library == "pyg" else "dgl.nn"
        lines = [f'"""{title}"""', "", "from pathlib import Path", ""]
        lines += [*(["import dgl"] if self.library == "dgl" else []), "import torch"]
        lines += [
            f"from {library} import {', '.join(sorted(self.classes))}",
            "from safetensors.torch import load_file",
            "",
        ]
        lines += [*self.helper.splitlines(), "", "class Model(torch.nn.Module):", "    def __init__(self):"]
        lines += _indented(["super().__init__()", *self.made], 8)
        lines += ["", f"    def forward(self, {', '.join(self.arguments)}):"]
        lines += _indented([*self.lines, "return h"], 8)
        lines += [f"    {line}" if line else "" for line in self.score]
        lines += ["", "", "def trained():", '    """Returns the model with the trained weights, in evaluation."""']
        lines += [f"    model = Model(){self.cast}"]
        lines += [f'    model.load_state_dict(load_file(Path(__file__).with_name("{state}")))']
        return "\n".join([*lines, "    return model.eval()", ""])

    @property
    def arguments(self) -> list[str]:
        """The arguments of its forward."""
        graph = ["x", "edge_index"] if self.library == "pyg" else ["graph", "x"]
        more = {"edge_weight": self.weighted, "edge_type": self.relations, "node_ids=None": self.typed}
        return [*graph, *(name for name, there in more.items() if there)]

    def _edges(self, edges: Edges, kind: str) -> None:
        """Adds the lines that make the edges which the convolutions read."""
        pyg, given = self.library == "pyg", ", edge_weight" if self.weighted else ""
        index = "edge_index" if pyg else "torch.stack(graph.edges())"
        self.helper = (
            "" if edges in ("plain", "loops") else WEIGHTS.get("relation" if edges == "by relation" else kind, "")
        )
        add = self.lines.append
        if edges == "by relation":
            add(f"edge_weight = weights({index}, edge_type, len(x){given}).to(x.dtype)")
        elif edges == "weighted loops" and kind:
            add(f"edge_weight, own_weight = weights({index}, len(x){given})")
        elif edges == "weighted loops":
            add("own_weight = torch.ones(len(x))")
        elif self.helper:
            add(f"edge_weight = weights({index}, len(x){given})")
        if edges == "by degree":
            degree = "graph.in_degrees()[graph.edges()[1]]"
            add(f"edge_weight = ({f'edge_weight * {degree}' if self.weighted else degree}).to(x.dtype)")
        elif edges == "weighted":
            add("edge_weight = edge_weight.to(x.dtype)")
        if edges.endswith("loops"):
            add("loops = torch.arange(len(x)).repeat(2, 1)" if pyg else "graph = dgl.add_self_loop(graph)")
            if pyg:
                add("edge_index = torch.cat([edge_index, loops], 1)")
            if edges == "weighted loops":
                add("edge_weight = torch.cat([edge_weight, own_weight]).to(x.dtype)")

    def _add(self, name: str, made: str, module: nn.Module | None = None) -> str:
        """Adds a module and its tensors, and returns its text in `forward`."""
        self.made.append(f"self.{name} = {made}")
        if module is not None:
            self.tensors |= state_of(module, name)
        return f"self.{name}"

    def _input(self, projection: Projection | TypedProjection) -> None:
        """Adds the projection of the features."""
        if isinstance(projection, Projection):
            self.lines.append(f"h = {self._add('input', linear_text(projection.linear), projection.linear)}(x)")
        else:
            self._typed_input(projection)
        if projection.activation is not None:
            name = next(name for name, function in ACTIVATIONS.items() if function is projection.activation)
            self.lines.append(f"h = {ACTIVATION_TEXT[name].format('h')}")

    def _typed_input(self, projection: TypedProjection) -> None:
        types, first = projection.types, 0
        self.lines += ["node_ids = torch.arange(len(x)) if node_ids is None else node_ids"]
        self.lines += [f"h = x.new_zeros(len(x), {projection.width})"]
        for each, columns in enumerate(types.columns):
            low, high = types.starts[each : each + 2]
            name, there = f"input_{each}", f"there = (node_ids >= {low}) & (node_ids < {high})"
            if columns:
                linear: Any = projection.maps[str(each)]
                rows = f"{self._add(name, linear_text(linear), linear)}(x[there, :{columns}])"
            else:
                count = 1 if projection.nodes is None else high - low
                self._add(name, f"torch.nn.Embedding({count}, {projection.width})")
                if projection.nodes is None:
                    self.tensors[f"{name}.weight"] = projection.embeddings[str(each)]
                else:
                    self.tensors[f"{name}.weight"] = projection.nodes.table.values[first : (first := first + count)]
                rows = f"self.{name}.weight" + ("" if projection.nodes is None else f"[node_ids[there] - {low}]")
            self.lines += [there, f"h[there] = {rows}"]

    def _layer(self, layer: Any, convolution: Convolution, number: int) -> None:
        """Adds a layer: its convolution, and its end."""
        blocks, name = isinstance(layer, FeedForwardLayer), f"conv{number}"
        rows = "h"
        if blocks and layer.norm is not None:
            rows = f"{self._norm(layer.norm, f'norm{number}')}(h)"
            self.lines.append(f"r = {rows}")
            rows = "r"
        self.classes |= set(convolution.classes)
        self.made += [f"self.{key.format(name=name)} = {made}" for key, made in convolution.made.items()]
        self.tensors |= {key.format(name=name): value for key, value in convolution.tensors.items()}
        value, end = convolution.call.format(name=name, h=rows), (layer.convolution if blocks else layer).finish
        activation = ACTIVATION_TEXT[end.options.activation]
        if blocks:
            if end.first is not None:
                value = f"{self._add(f'first{number}', linear_text(end.first), end.first)}({value})"
            second = self._add(f"second{number}", linear_text(end.second), end.second)
            self.lines.append(f"h = h + {second}({activation.format(value)})")
            return
        if end.skip is not None:
            value += f" + {self._add(f'skip{number}', linear_text(end.skip), end.skip)}(h)"
        elif end.options.residual:
            value += " + h"
        if end.norm is not None:
            value = f"{self._norm(end.norm, f'norm{number}')}({value})"
        value = value if end.options.last else activation.format(value)
        normed = isinstance(layer, PinSageLayer) and not end.options.last
        self.lines.append(f"h = torch.nn.functional.normalize({value}, dim=1)" if normed else f"h = {value}")

    def _norm(self, norm: nn.Module, name: str) -> str:
        """Adds a normalisation, and returns its text."""
        batch = isinstance(norm, nn.BatchNorm1d)
        width = norm.num_features if isinstance(norm, nn.BatchNorm1d) else norm.normalized_shape[0]  # pyright: ignore[reportIndexIssue]
        return self._add(name, f"torch.nn.{'BatchNorm1d' if batch else 'LayerNorm'}({width})", norm)

    def _head(self, readout: LinearHead) -> None:
        joined = {"sum": "sum(outputs)", "max": "torch.stack(outputs).max(0).values", "cat": "torch.cat(outputs, 1)"}
        value = joined.get(readout.jk, "h")
        if readout.norm is not None:
            value = f"{self._norm(readout.norm, 'head_norm')}({value})"
        self.lines.append(f"h = {self._add('head', linear_text(readout.linear), readout.linear)}({value})")

    def _score(self, head: LinkHead) -> list[str]:
        """Adds a head of links, and returns the lines of the method that scores pairs."""
        value, more = "(source * target).sum(-1)", ""
        lines: list[str] = []
        if isinstance(head, BilinearHead):
            width = len(head.weight)
            self._add("link", f"torch.nn.Bilinear({width}, {width}, 1, bias=False)")
            self.tensors["link.weight"] = head.weight[None]
            value = "self.link(source, target).squeeze(-1)"
        elif isinstance(head, RelationHead):
            values, halves = head.relation, []
            if isinstance(head, RotatEHead):
                values, halves = values * head.unit, ["a, b = source.chunk(2, -1)"]
            self._add("link", f"torch.nn.Embedding({', '.join(map(str, values.shape))})")
            self.tensors["link.weight"] = values
            lines = ["r = self.link(relation)", *halves]
            value, more = RELATION_TEXT[type(head)], ", relation"
        elif isinstance(head, MlpHead):
            source, target, score = (
                self._add(f"link_{name}", linear_text(linear), linear)
                for name, linear in (("source", head.source), ("target", head.target), ("score", head.score))
            )
            value = f"{score}(torch.relu({source}(source) + {target}(target))).squeeze(-1)"
        return [
            "",
            f"def score(self, source, target{more}):",
            '    """Returns the scores of pairs of rows."""',
            *(f"    {line}" for line in lines),
            f"    return {value}",
        ]


def _indented(lines: Sequence[str], columns: int) -> Iterator[str]:
    return (" " * columns + line for line in lines)
