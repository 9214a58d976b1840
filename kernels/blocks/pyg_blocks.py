"""Our blocks as the bipartite edges that PyG's convolutions take. The arrays are plain tensors: PyG itself is not imported."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphmill.kernels.blocks.dgl_blocks import present_edges
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Block


@dataclass(kw_only=True)
class PygBlock:
    """One bipartite layer of a mini-batch: `conv((h, h[: block.size[1]]), block.edge_index)` computes it from its sources' rows h.

    Attributes:
        edge_index: int64[2, E], local sources in row 0, local destinations in row 1; the edges of a destination stand together.
        size: (number of sources, number of destinations). The destinations are the first sources.
        n_id: int64[size[0]], global ids of the sources.
        edge_weight: float32[E], if the sampler or the table's model gives weights; else None.
        share: float32[E], shares of the edges in the mean of their destination, if neighbours are drawn by weight or walks; else None.
        self_weight: float32[size[1]], weights of the destinations' own rows beside `edge_weight` in the batches of a GCN; else None.
        edge_type: int64[E], if the graph has relations; else None.
        x: float[size[0], F], input rows of the sources, on the first block of a `MiniBatch`; else None.
        y: int64[size[1]], labels of the destinations, on the last block of a `MiniBatch`; else None.
    """

    edge_index: Any
    size: tuple[int, int]
    n_id: Any
    edge_weight: Any = None
    share: Any = None
    self_weight: Any = None
    edge_type: Any = None
    x: Any = None
    y: Any = None

    def to(self, device: Any) -> "PygBlock":
        """Returns the block with its tensors on a torch device."""
        tensors = {name: value.to(device) for name, value in vars(self).items() if hasattr(value, "to")}
        return replace(self, **tensors)


def to_pyg(block: Block) -> PygBlock:
    """Returns the block as bipartite edges, in order, without removed ones; InputError if destinations are not the first sources."""
    if block.dst_pos is not None:
        raise InputError("the block's destinations are not its first sources", "bipartite edges have no other form")
    import torch

    edges, indptr = present_edges(block)
    edge_index = np.empty((2, int(indptr[-1])), np.int64)
    edge_index[0] = block.indices[edges]
    edge_index[1] = np.repeat(np.arange(block.num_dst), np.diff(indptr))
    return PygBlock(
        edge_index=torch.from_numpy(edge_index),
        size=(block.num_src, block.num_dst),
        n_id=torch.from_numpy(block.src_ids.astype(np.int64)),
        edge_weight=None if block.weight is None else torch.from_numpy(block.weight[edges]),
        share=None if block.share is None else torch.from_numpy(block.share[edges]),
        self_weight=None if block.self_weight is None else torch.from_numpy(block.self_weight),
        edge_type=None if block.edge_type is None else torch.from_numpy(block.edge_type[edges].astype(np.int64)),
    )
