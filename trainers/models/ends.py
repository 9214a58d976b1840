"""The optional ends of a model: a projection before the first layer and a linear head after the last one (Luo, Shi, Wu, 2024).

The usual form of tuned GNNs, according to "Classic GNNs are Strong Baselines" (NeurIPS 2024), is

    h_0 = dropout(W x + b)                                 the projection; without it h_0 = x
    h_l = dropout(act(norm(conv_l(h_(l-1)) + residual)))   for every l of 1..L, the last one included
    logits = W' jump(h_1, ..., h_L) + b'                   the head; jump is the last, the sum, the maximum, or all side by side

Both ends are row-wise: a row of their result depends on rows of one node. So they are not part of a layer, whose two halves meet at a block
and whose output executors cache, spill and exchange. An executor that runs layers one by one calls `LayeredModel.input` on any rows of the
features and `LayeredModel.head` on any rows of the outputs, in pieces of any size, and each layer remains a function of a block and the
rows below it. Jumping knowledge (Xu et al., 2018) needs the outputs of all layers, of the head's own rows alone; none of its three ways
depends on how the layers are grouped, so `jump` folds them one by one, and only the folded rows are carried.

Node types with features of their own: each has a linear map from its own columns to the rows that the first layer reads.

    h_v = dropout(W_t x_v + b_t)      a node v of a type t with features
    h_v = dropout(e_t)                of a type without features: one learnable row for all its nodes
    h_v = dropout(e_v)                or, with `embedding = "node"`, one for each (trainers/models/node_rows.py)

It stands where the projection of one type stands and is row-wise as that is, so every executor runs it. The type
of a node follows from its id, since the nodes of a type are a range of ids.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.assets.features.read import NodeTypes
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.node_rows import LearntRows
from graphmill.trainers.models.products import Map

Jump = Literal["none", "sum", "max", "cat"]
FOLDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "cat": lambda carried, h: torch.cat([carried, h], dim=1),
}


class Projection(nn.Module):
    """A linear map of the input rows, and keyed dropout. No activation follows unless layers begin with a norm: others have their own.

    Args:
        in_width, out_width: columns of the feature rows and of the first layer's input rows.
    """

    def __init__(
        self, in_width: int, out_width: int, dropout: float = 0.0, activation: Callable[[Tensor], Tensor] | None = None
    ):
        super().__init__()
        self.width = out_width
        self.linear, self.dropout, self.activation = Map(in_width, out_width), dropout, activation

    def forward(self, x: Tensor, rng: LayerRandom) -> Tensor:
        """Returns float[n, out_width] from x: float[n, in_width]."""
        h = rng.dropout(self.linear(x), self.dropout)
        return h if self.activation is None else self.activation(h)


class LinearHead(nn.Module):
    """One linear layer from the outputs of the layers to the logits.

    Args:
        jk: the combination of the outputs into one row: the last alone, their sum, their maximum, or all side by side.
        norm: whether that row is normalised, as for layers that begin with a norm.
    """

    def __init__(self, num_layers: int, width: int, num_classes: int, jk: Jump = "none", norm: bool = False):
        super().__init__()
        self.jk: Jump = jk
        columns = width * num_layers if jk == "cat" else width
        self.norm = nn.LayerNorm(columns) if norm else None
        self.linear = Map(columns, num_classes)

    @property
    def jumps(self) -> bool:
        """Whether it reads the outputs of all layers, not that of the last alone."""
        return self.jk != "none"

    def jump(self, carried: Tensor | None, h: Tensor) -> Tensor:
        """Folds the output of one more layer into those of the layers below.

        Args:
            carried: the result for the layer below, of the same nodes; None for the first layer.
            h: float[n, width], the layer's output.

        Returns:
            float[n, width]; with "cat" one width more than `carried` has.
        """
        return h if carried is None or not self.jumps else FOLDS[self.jk](carried, h)

    def forward(self, rows: Tensor) -> Tensor:
        """Returns float[n, num_classes] from the rows into which `jump` folded all layers."""
        return self.linear(rows if self.norm is None else self.norm(rows))


class TypedProjection(nn.Module):
    """A linear map per node type, and keyed dropout; rows of types without features are learnt.

    Args:
        types: the node types and their columns, the first ones of the feature rows.
        out_width: columns of the first layer's input rows.
        of_nodes: the initial values of the rows of nodes, as of `LearntRows`, if each node of a type without features has a row of its
            own; None if those of a type share one.
    """

    def __init__(
        self,
        types: NodeTypes,
        out_width: int,
        dropout: float = 0.0,
        activation: Callable[[Tensor], Tensor] | None = None,
        *,
        of_nodes: Literal["row", "table"] | None = None,
    ):
        super().__init__()
        self.types, self.width, self.dropout, self.activation = types, out_width, dropout, activation
        self.maps = nn.ModuleDict(
            {str(each): Map(columns, out_width) for each, columns in enumerate(types.columns) if columns}
        )
        # Matrices of one row, since initial values follow from the shape of a matrix.
        shared = () if of_nodes else types.featureless
        self.embeddings = nn.ParameterDict({str(each): torch.empty(1, out_width) for each in shared})
        self.nodes = LearntRows(types, out_width, of_nodes) if of_nodes else None

    def forward(self, x: Tensor, rng: LayerRandom) -> Tensor:
        """Returns float[n, out_width] from x: float[n, F], the rows of the nodes `rng.node_ids`."""
        dtype = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
        ids, places = self._places(rng.node_ids)
        parts = [
            (found.to(x.device), self._mapped(each, x, found.to(x.device), dtype))
            for each, found in enumerate(places)
            if len(found) and (self.nodes is None or self.types.columns[each])
        ]
        if self.nodes is not None:
            own = [places[each] for each in self.types.featureless]
            rows = self.nodes(self.nodes.rows_of([ids[found] for found in own]), rng.training)
            parts.append((torch.cat(own).to(x.device), rows.to(dtype)))
        if not parts:
            return x.new_empty((0, self.width))
        order = torch.cat([found for found, _ in parts])
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=x.device)
        h = rng.dropout(torch.cat([mapped for _, mapped in parts])[back], self.dropout)
        return h if self.activation is None else self.activation(h)

    def _mapped(self, each: int, x: Tensor, places: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns the projected rows of one type, which stand at `places` of x."""
        columns = self.types.columns[each]
        if not columns:
            return self.embeddings[str(each)].to(dtype).expand(len(places), -1)
        return self.maps[str(each)](x[places, :columns])

    def _places(self, node_ids: Any) -> tuple[Tensor, list[Tensor]]:
        """Returns the ids as a tensor and, per type, the places of its nodes among them, ascending."""
        ids = node_ids if isinstance(node_ids, Tensor) else torch.from_numpy(np.asarray(node_ids).astype(np.int64))
        return ids, [((ids >= low) & (ids < high)).nonzero()[:, 0] for low, high in pairwise(self.types.starts)]
