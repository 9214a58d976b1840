"""Node types with features of their own: each has a linear map from its own columns to the rows that the first layer reads.

    h_v = dropout(W_t x_v + b_t)      a node v of a type t with features
    h_v = dropout(e_t)                of a type without features: one learnable row for all its nodes
    h_v = dropout(e_v)                or, with `embedding = "node"`, one for each (trainers/models/node_rows.py)

It stands where the projection of one type stands (trainers/models/ends.py) and is row-wise as that is, so every executor runs it. The type
of a node follows from its id, since the nodes of a type are a range of ids.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.assets.features.read import NodeTypes
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.node_rows import LearntRows


class TypedProjection(nn.Module):
    """A linear map per node type, and keyed dropout; rows of types without features are learnt.

    Args:
        types: the node types and their columns, the first ones of the feature rows.
        out_width: columns of the first layer's input rows.
        dropout: probability that a projected value is dropped.
        activation: function of the result; None for none.
        of_nodes: whether each node of a type without features has a row of its own; else those of a type share one.
    """

    def __init__(
        self,
        types: NodeTypes,
        out_width: int,
        dropout: float = 0.0,
        activation: Callable[[Tensor], Tensor] | None = None,
        *,
        of_nodes: bool = False,
    ):
        super().__init__()
        self.types, self.width, self.dropout, self.activation = types, out_width, dropout, activation
        self.maps = nn.ModuleDict(
            {str(each): nn.Linear(columns, out_width) for each, columns in enumerate(types.columns) if columns}
        )
        # Matrices of one row, since initial values follow from the shape of a matrix.
        shared = () if of_nodes else types.featureless
        self.embeddings = nn.ParameterDict({str(each): torch.empty(1, out_width) for each in shared})
        self.nodes = LearntRows(types, out_width) if of_nodes else None

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
