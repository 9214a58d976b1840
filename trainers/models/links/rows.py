"""A model that is a learnable row per node and nothing else: with a head of links the baseline that every graph network must beat."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.assets.features.read import NodeTypes
from graphmill.kernels.types import Array, Block
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.node_rows import LearntRows
from graphmill.trainers.models.own import OwnModule


class RowsAlone(OwnModule):
    """A learnable row for each node of a graph; only the rows that a step reads change (trainers/models/node_rows.py).

    Args:
        depth: blocks of its batches, of which it reads the seeds alone.
        link_head: the head by which a loss scores pairs of rows.
        init: as of `LearntRows`.
    """

    def __init__(
        self,
        num_nodes: int,
        width: int,
        depth: int = 1,
        link_head: nn.Module | None = None,
        init: Literal["row", "table"] = "row",
    ):
        nn.Module.__init__(self)
        self.name, self.depth = "rows", depth
        self.nodes = LearntRows(NodeTypes(starts=(0, num_nodes), columns=(0,)), width, init)
        self.link_head = link_head

    def forward(self, blocks: tuple[Block, ...], x: Tensor, rng: StepRandom) -> Tensor:
        """Returns float[num_seeds, width], the rows of the seeds."""
        return self.rows(blocks[-1].dst_ids, rng.training)

    def rows(self, node_ids: Array, training: bool = False) -> Tensor:
        """Returns float[n, width], the rows of distinct nodes ids[n]."""
        return self.nodes(torch.from_numpy(np.asarray(node_ids).astype(np.int64)), training)
