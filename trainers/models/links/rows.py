"""A model that is a learnable row per node and nothing else: with a head of links the baseline that every graph network must beat."""

from __future__ import annotations

from torch import Tensor, nn

from graphmill.assets.features.read import NodeTypes
from graphmill.trainers.models.node_rows import LearntRows


class RowsAlone(nn.Module):
    """A learnable row for each node of a graph; only the rows that a step reads change (trainers/models/node_rows.py)."""

    def __init__(self, num_nodes: int, width: int):
        super().__init__()
        self.nodes = LearntRows(NodeTypes(starts=(0, num_nodes), columns=(0,)), width)

    def forward(self, node_ids: Tensor, training: bool) -> Tensor:
        """Returns float[n, width], the rows of distinct nodes i64[n]."""
        return self.nodes(self.nodes.rows_of([node_ids]), training)
