"""A small graph, on which a module that was cut is compared with the whole one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.blocks.coefficients import source_degrees
from graphmill.kernels.types import Block

NUM_NODES = 23
EDGES = np.array(
    [(node, (node * node + 3 * step + 1) % NUM_NODES) for node in range(NUM_NODES) for step in range(node % 6)]
)
"""int64[E, 2], (destination, source) of edges: destinations have 0 to 5 neighbours, some themselves, and E is not NUM_NODES."""


def small_rows(width: int, dtype: torch.dtype) -> Tensor:
    """Returns float[NUM_NODES, width], rows of which no two are equal."""
    places = torch.arange(NUM_NODES * width, dtype=torch.float64)
    return torch.sin(places * 1.7 + 0.3).reshape(NUM_NODES, width).to(dtype)


def give_rows(blocks: Sequence[Block], width: int, dtype: torch.dtype) -> None:
    """Gives blocks rows of their edges, of ones: each edge one of its own."""
    most = max(len(block.indices) for block in blocks)
    for block in blocks:
        block.edge_rows, block.edge_place = (
            torch.ones((most, width), dtype=dtype),
            np.arange(len(block.indices), dtype=np.int32),
        )


def small_block(low: int = 0, high: int = NUM_NODES, attributes: bool = False, kind: str | None = None) -> Block:
    """Returns all neighbours of the nodes from low to high; the sources are all nodes.

    Args:
        attributes: whether edges have weights, shares and relations.
        kind: the kind of weights that a model asks for (`graphmill.trainers.batches.batch.attach_weights`).
    """
    counts = np.bincount(EDGES[:, 0], minlength=NUM_NODES)
    ends = np.cumsum(counts)
    edges = slice(ends[low] - counts[low], ends[high - 1])
    whole = (low, high) == (0, NUM_NODES)
    num_edges = len(EDGES[edges])
    weights = (0.5 + np.arange(len(EDGES)) / len(EDGES))[edges].astype(np.float32)
    block = Block(
        num_dst=high - low,
        num_src=NUM_NODES,
        start=(ends - counts - edges.start)[low:high].astype(np.int32),
        end=(ends - edges.start)[low:high].astype(np.int32),
        indices=EDGES[edges, 1].astype(np.int32),
        src_ids=np.arange(NUM_NODES, dtype=np.int32),
        dst_pos=None if whole else np.arange(low, high, dtype=np.int32),
    )
    if attributes:
        block.weight, block.edge_type = weights, np.zeros(num_edges, np.uint8)
        block.share = np.ones(num_edges, np.float32) / np.repeat(counts[low:high], counts[low:high]).astype(np.float32)
    if kind is not None:
        block.weight, block.self_weight = source_degrees(
            block, counts, np.isin(np.arange(NUM_NODES), EDGES[EDGES[:, 0] == EDGES[:, 1], 0])
        )
    return block
