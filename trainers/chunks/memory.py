"""How much device memory a full-graph pass takes: counts of chunks and a train table in, bytes out (HongTu, section 4.3, Figure 10).

Trainer and planner share this formula. For a chunk of v nodes and e edges whose buffer has r rows, and a layer that reads F columns,
aggregates into A and gives H, the backward pass holds, in values of the model's type,

    r F            the buffer of neighbour rows, where the layer is computed again
    2 r F          the buffer of their gradients, and what the chunk adds to it
    v (H + 2 A + 2 F)     gradients of its output; aggregate and own rows, each with its gradient
    v H (c + 3)    what the update keeps for its gradients, c results, and three that come and go
    attention      3 r A for projected rows, their products with the attention vectors and their gradients;
                   2 heads (e + v) for weights and their gradients

(a first layer without the gradients, unless the features are projected). Besides come 4 times the parameters (values, gradients, Adam's
two moments) and the chunk's block: 24 bytes per edge with its transpose and weights, 24 per node and per buffer row. A forward pass holds
the buffer, for features once more the rows that come, and at most three results of the update.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trainers.models.precision import kept_dtype

if TYPE_CHECKING:
    from trainers.config import TrainConfig

CONVOLUTION = {"gcn": 0, "sage": 0, "gin": 2, "gat": 1}
"""Results of v rows that a layer's own operations keep for their gradients."""
PASSING = 3
"""Rows of the output's width that come and go while a gradient passes one operation."""
EDGE_BYTES, NODE_BYTES, ROW_BYTES = 24, 24, 24
PARAMETER_COPIES = 4


@dataclass(frozen=True, kw_only=True)
class ChunkCounts:
    """What the largest chunk has.

    Attributes:
        nodes, edges: v and e.
        rows: r, rows of the buffer.
    """

    nodes: int
    edges: int
    rows: int


def largest(counts: Iterable[ChunkCounts]) -> ChunkCounts:
    """Returns the largest of each count over chunks."""
    all_counts = list(counts)
    return ChunkCounts(
        nodes=max(each.nodes for each in all_counts),
        edges=max(each.edges for each in all_counts),
        rows=max(each.rows for each in all_counts),
    )


def device_bytes(
    config: TrainConfig,
    in_width: int,
    num_classes: int,
    num_parameters: int,
    chunk: ChunkCounts,
    *,
    hybrid: bool,
    parts: int = 1,
) -> int:
    """Returns the most bytes that a device holds at once.

    Args:
        config: the train table.
        in_width, num_classes: columns of the features and of the logits.
        num_parameters: of the model.
        chunk: the largest chunk.
        hybrid: aggregates are cached where layers allow it.
        parts: that share the device; each has buffers of its own.
    """
    value = np.dtype(kept_dtype(config.dtype)).itemsize
    linear_head, widths = config.head == "linear", [in_width]
    if config.input == "linear":
        widths = [config.hidden]
    widths += [config.hidden] * (config.layers - 1) + [config.hidden if linear_head else num_classes]
    peak = 0
    for index in range(config.layers):
        last = index + 1 == config.layers and not linear_head
        peak = max(peak, _layer_values(config, widths[index], widths[index + 1], last, chunk, hybrid, parts, index))
    if config.input == "linear":
        peak = max(peak, chunk.nodes * (2 * in_width + 6 * config.hidden))
    # The head and the loss: rows of all layers that it reads, side by side, with their gradients.
    read = config.hidden * (config.layers if config.jk != "none" else 1) if linear_head else 0
    peak = max(peak, chunk.nodes * (4 * read + 6 * num_classes))
    block = EDGE_BYTES * chunk.edges + NODE_BYTES * chunk.nodes + ROW_BYTES * chunk.rows
    return value * peak + block + PARAMETER_COPIES * value * num_parameters


def _layer_values(
    config: TrainConfig, width: int, out: int, last: bool, chunk: ChunkCounts, hybrid: bool, parts: int, index: int
) -> int:
    attends = config.model == "gat"
    depth = out * config.heads if attends and last else out
    aggregate = depth if attends else width
    again, needed = attends or not hybrid, index > 0 or config.input == "linear"
    chain = CONVOLUTION[config.model] + (0 if last else 2 + (config.norm != "none"))
    attention = chunk.rows * depth + config.heads * (chunk.edges + chunk.nodes) if attends else 0
    buffer, own = chunk.rows * width, width if config.model in ("sage", "gin") or config.residual or again else 0
    # Features pass through a tensor of their own before they are placed.
    forward = buffer * (parts + (index == 0)) + chunk.nodes * (width + aggregate + PASSING * out) + 2 * attention
    backward = buffer * (parts * (again + needed) + needed)
    backward += chunk.nodes * (out * (1 + chain + PASSING) + (aggregate + own) * (1 + needed)) + 3 * attention
    return max(forward, backward)
