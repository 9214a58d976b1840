"""The device memory of a full-graph pass in bytes, from counts of chunks and a train table (HongTu, section 4.3, Figure 10).

Trainer and planner share this formula. For a chunk of v nodes and e edges whose buffer has r rows, and a layer that reads F columns,
aggregates into A and gives H, the backward pass holds, in values of the model's type,

    r F            the buffer of neighbour rows, if the layer is computed again
    2 r F          the buffer of their gradients, and the gradients that the chunk adds
    v (H + 2 A + 2 F)     gradients of its output; aggregate and own rows, each with its gradient
    v H (c + 3)    c results that the update keeps for its gradients, and three that come and go
    attention      3 r A for projected rows, their products with the attention vectors and their gradients;
                   2 heads (e + v) for weights and their gradients
    max            2 e F for a row of every edge, and its gradient, at most three times
    feed-forward   3 r F for normalised rows, and v H (2 k + 4) for a part that is k times as wide
    pinsage        3 r A for projected rows, their positive part, and their gradients
    edges          2 (e + v) K for their rows of K columns and a copy, and 40 bytes of an edge while their places are found

If the layer's map is a pass of its own (row_passes.py), F in the terms of the buffer is the width of mapped rows, whose gradients are
always needed, and the map holds 2 v F values and 3 v A.

(a first layer without the gradients, unless the features are projected). Added to it are 4 times the parameters (values, gradients, Adam's
two moments) and the chunk's block: 24 bytes per edge with its transpose and weights, 24 per node and per buffer row. A forward pass holds
the buffer, for features a second copy of the rows that enter, and at most three results of the update.

A device that shares the host's memory reads a chunk's own rows where they are (host_rows.py). They are booked as if they were copied, and
where a layer's output tells the gradient of its update, it stands in place of the results that the update would keep.

If transfers overlap computing, a device also holds the supplies of two steps: c rows of F columns for the buffer, or a backward pass's rows
of v nodes, and two blocks. It also holds the results of the step before until they have arrived on the host: v rows of H and A columns
forwards, c rows of F backwards. All of it counts for each part of the device.

Of d accelerators in one process each holds rows on their way between them, at most d r F, before and after it computes, and the gradients
of the parameters for each of its chunks of a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphmill.kernels.chunks.counts import StepCounts
from graphmill.trainers.recipe.costs.edge_rows import SORTED_BYTES
from graphmill.trainers.recipe.costs.step import item_bytes, layer_widths

if TYPE_CHECKING:
    from graphmill.trainers.recipe.config import TrainConfig
    from graphmill.trainers.techniques.fullgraph.rows.lists import Mode

CONVOLUTION = {"gcn": 0, "sage": 0, "gin": 2, "gat": 1, "pinsage": 2, "rgcn": 1, "rgat": 1}
"""Results of v rows that a layer's own operations keep for their gradients."""
OWN = 2
"""What a user's own layer is taken to keep."""
FEED_FORWARD = 4
"""Results of v rows that a feed-forward part keeps besides those between its maps."""
PASSING = 3
"""Rows of the output's width that come and go while a gradient passes one operation."""
KEPT_BLOCKS_SHARE = 4
"""Prepared blocks stay in memory up to the free memory divided by this number."""
ROWS, BLOCKS = "rows of all nodes between layers", "blocks of chunks"
"""Terms of the host's memory that are as large as the free memory allows (`held_on_host`)."""
EDGE_BYTES, NODE_BYTES, ROW_BYTES = 24, 24, 24
FILL_BYTES = 8 << 20
"""Feature rows on their way to a buffer in the host's memory, if they do not lie there as they are read; as much again behind a cache."""
PARAMETER_COPIES = 4


PAIR_VALUES, PAIR_COPIES = 1 << 18, 12
"""Values of one end of the pairs that a loss of links computes at once; and copies of them: both ends' rows, products, gradients."""


def pairs_at_once(pairs: int, width: int) -> int:
    """Returns the number of links whose losses are computed at once, one at least.

    Args:
        pairs: number of pairs of a link, with its negatives.
    """
    return max(1, PAIR_VALUES // (pairs * width))


@dataclass(frozen=True, kw_only=True)
class ChunkCounts:
    """Counts of the largest chunk."""

    # v and e.
    nodes: int
    edges: int
    # r, rows of the buffer.
    rows: int
    # c, rows that a step loads into it from the host.
    loaded: int


class HostRoom(NamedTuple):
    """Bytes of rows of all nodes, and of prepared blocks, that stay in memory; other rows are in files, and other blocks made anew."""

    rows: int
    blocks: int


def held_on_host(rows: int, blocks: int, others: int, free: int | None) -> HostRoom:
    """Returns the bytes that stay in memory: rows of all nodes only if they fit beside the kept blocks and everything else.

    Args:
        rows, blocks: bytes of the rows of all nodes, and of all blocks.
        others: bytes of everything else that the training takes at most.
        free: bytes that are free before the training begins, None if the system does not say.
    """
    if free is None:
        return HostRoom(rows, blocks)
    # With less than `least` a training does not begin; what it must have does not depend on how much less.
    least = others * KEPT_BLOCKS_SHARE // (KEPT_BLOCKS_SHARE - 1) + KEPT_BLOCKS_SHARE
    kept = min(blocks, max(free, least) // KEPT_BLOCKS_SHARE)
    return HostRoom(rows if rows + kept + others <= free else 0, kept)


def keeps_aggregate(train: TrainConfig) -> bool:
    """Returns whether layers of a built-in model have an aggregate without parameters, which may be kept between the two passes."""
    maps_edges = train.model == "gin" and train.edge_features
    known = train.model in ("gcn", "sage", "gin") and not maps_edges
    return known and train.aggregator != "max" and not train.feed_forward


def reads_own(train: TrainConfig) -> bool:
    """Returns whether layers of a built-in model read the rows of the nodes that they compute."""
    own = train.model in ("sage", "gin", "pinsage", "rgcn", "rgat") and train.aggregator != "gcn"
    return own or bool(train.residual) or bool(train.feed_forward)


def largest(counts: StepCounts, mode: Mode) -> ChunkCounts:
    """Returns the largest of each count over all chunks of an artifact, for a mode."""
    loaded = {"vanilla": counts.neighbours, "p2p": counts.transition}.get(mode)
    if loaded is None:
        # On the way down a step loads the transition rows that the step above, which came before it, did not have.
        above, brought = counts.transition[1:], counts.loaded[1:]
        down = counts.transition.copy()
        down[:-1] -= above - brought
        loaded = np.maximum(counts.loaded, down)
    found = {"nodes": counts.destinations, "edges": counts.edges, "rows": counts.buffer_rows, "loaded": loaded}
    return ChunkCounts(**{name: int(array.max(initial=0)) for name, array in found.items()})


@dataclass(frozen=True, kw_only=True)
class Way:
    """The way in which passes are carried out."""

    # Whether aggregates are cached if layers allow it.
    hybrid: bool
    # Number of parts that share the device; each has its own buffers.
    parts: int = 1
    # Number of devices with memory of their own in the process, which fetch rows of each other.
    devices: int = 1
    # Whether transfers overlap computing.
    overlap: bool = False


def device_bytes(
    config: TrainConfig,
    in_width: int,
    num_classes: int,
    num_parameters: int,
    chunk: ChunkCounts,
    way: Way,
    kept_first: bool = False,
    edge_width: int = 0,
) -> int:
    """Returns the most bytes that a device holds at once.

    Args:
        in_width, num_classes: columns of the features and of the logits.
        kept_first: whether the aggregates of the first layer are kept, so that it fills no buffer.
        edge_width: columns of the rows of edges, 0 without.
    """
    value = item_bytes(config)
    linear_head, peak = config.head == "linear", 0
    for shape in layer_shapes(config, in_width, num_classes, edge_width):
        mapped = chunk.nodes * (2 * shape.width + 3 * shape.read) * shape.apart
        held = replace(chunk, rows=0, loaded=0) if kept_first and shape.first else chunk
        peak = max(peak, _forward_values(shape, held, way), _backward_values(shape, held, way), mapped)
    if config.projects:
        peak = max(peak, chunk.nodes * (2 * in_width + 6 * config.hidden))
    # The head and the loss: rows of all layers that the head reads, side by side, with their gradients.
    read = config.hidden * (config.layers if config.jk != "none" else 1) if linear_head else 0
    peak = max(peak, chunk.nodes * (4 * read + 6 * num_classes), PAIR_COPIES * PAIR_VALUES * config.predicts_links)
    block = EDGE_BYTES * chunk.edges + NODE_BYTES * chunk.nodes + ROW_BYTES * chunk.rows
    block += chunk.edges * (SORTED_BYTES + value * edge_width) * bool(edge_width)
    blocks = 2 * way.parts if way.overlap else 1
    # The first of several devices holds the gradients of its parts' chunks, and that of a chunk of another device.
    copies = PARAMETER_COPIES + (way.parts + 1 if way.devices > 1 else 0)
    return value * peak + blocks * block + copies * value * num_parameters


def fixed_first(train: TrainConfig) -> bool:
    """Returns whether the first layer of a built-in model has the same aggregates of the features in every pass."""
    return keeps_aggregate(train) and not train.projects and not train.input_dropout


def layer_shapes(config: TrainConfig, in_width: int, num_classes: int, edge_width: int = 0) -> list[LayerShape]:
    """Returns the widths of all layers, from the columns of the features, the number of classes, and the columns of the rows of edges."""
    widths = layer_widths(config, in_width, num_classes)
    ends = config.head != "linear"
    return [
        LayerShape(config, wide, out, ends and index + 1 == config.layers, index, edge_width)
        for index, (wide, out) in enumerate(widths)
    ]


class LayerShape:
    """Widths of a layer: columns of its input, aggregate and output, and of the rows of edges that it reads."""

    def __init__(self, config: TrainConfig, width: int, out: int, last: bool, index: int, edge_width: int = 0):
        self.config, self.width, self.out, self.first = config, width, out, index == 0
        self.edge_width = edge_width
        self.attends, self.pools = config.model == "gat", config.model == "pinsage"
        self.relates = config.model in ("rgcn", "rgat")
        # Whether the layer ends with a batch normalisation over all chunks.
        self.batch_norm = config.norm == "batch" and not last
        self.depth = out * config.heads if config.model in ("gat", "rgat") and last else out
        # PinSAGE pools in the width of its input if it gives logits, else in that of its output.
        pooled = width if last else out
        self.aggregate = pooled if self.pools else self.depth if self.attends or self.relates else width
        self.needed = index > 0 or config.projects
        changing = self.needed or config.input_dropout > 0
        self.narrow = keeps_aggregate(config) and not config.edge_features and changing and out < width
        self.apart = self.narrow or (self.attends and not config.feed_forward and self.depth <= width)
        if self.narrow:
            self.aggregate = out
        if config.model in ("gcn", "sage"):  # rows of edges stand beside those of nodes
            self.aggregate += edge_width
        # Columns of the rows in the buffer.
        self.read = self.aggregate if self.apart else width
        self.chain = CONVOLUTION.get(config.model, OWN) + (0 if last else 2 + (config.norm != "none"))
        if config.feed_forward:
            self.chain += FEED_FORWARD + ceil(2 * config.feed_forward)

    def again(self, way: Way) -> bool:
        """Returns whether the layer is computed again in the backward pass."""
        return not (way.hybrid and keeps_aggregate(self.config))

    def kept(self, way: Way) -> int:
        """Returns the columns that stay on the host between the two passes besides the output: aggregates, or mapped rows."""
        if not self.again(way):
            return self.aggregate
        return self.read if self.apart else 0

    def projected(self, chunk: ChunkCounts) -> int:
        """Returns the values of one intermediate result of a layer that maps rows, or takes them by edge, before it aggregates them."""
        found = chunk.rows * self.width if self.config.feed_forward else 0  # normalised rows
        if self.edge_width:  # a copy of their rows, or a bit for each value of a message
            found += chunk.edges * (self.edge_width + self.width // 32 + 1) + chunk.nodes * self.edge_width
        if self.config.aggregator == "max":
            found += 2 * chunk.edges * self.width
        if self.relates:  # means of runs or rows of pairs, at most one per edge, and whole numbers of them
            found += chunk.edges * (self.width + self.depth + 4)
        if self.config.model == "rgat":  # rows of pairs with those of runs, products with attention vectors, and scores
            found += chunk.edges * (3 * self.depth + 3 * self.config.heads + 4)
        if self.attends:
            return found + chunk.rows * self.depth + self.config.heads * (chunk.edges + chunk.nodes)
        return found + (chunk.rows * self.aggregate if self.pools else 0)


def _forward_values(shape: LayerShape, chunk: ChunkCounts, way: Way) -> int:
    buffer = chunk.rows * shape.read
    # Features pass through a tensor of their own before they are placed.
    computed = 2 * shape.projected(chunk) + chunk.nodes * (shape.width + shape.aggregate + PASSING * shape.out)
    held = buffer * (way.parts + shape.first) + max(computed, _crossing(buffer, way))
    if way.overlap:
        leaving = chunk.nodes * (shape.out + (0 if shape.again(way) else shape.aggregate))
        held += way.parts * (2 * (chunk.loaded * shape.read + shape.apart * chunk.nodes * shape.width) + leaving)
    return held


def _crossing(buffer: int, way: Way) -> int:
    """Returns the values of rows on their way between devices: at most a buffer's that come, and a buffer's for each that they go to."""
    return buffer * way.devices if way.devices > 1 else 0


def _backward_values(shape: LayerShape, chunk: ChunkCounts, way: Way) -> int:
    config, again, needed = shape.config, shape.again(way), shape.needed
    own = shape.width if config.model in ("sage", "gin", "pinsage", "rgcn", "rgat") or config.residual or again else 0
    buffer, sends = chunk.rows * shape.read, needed or shape.apart
    computed = buffer * sends + 3 * shape.projected(chunk)
    computed += chunk.nodes * (shape.out * (1 + shape.chain + PASSING) + (shape.aggregate + own) * (1 + needed))
    held = buffer * way.parts * (again + sends) + max(computed, _crossing(buffer, way))
    if way.overlap:
        coming = chunk.loaded * shape.read if again else chunk.nodes * shape.aggregate
        coming += chunk.nodes * own if shape.apart or not again else 0
        leaving = sends * chunk.loaded * shape.read + needed * shape.apart * chunk.nodes * own
        held += way.parts * (2 * (coming + chunk.nodes * shape.out) + leaving)
    return held
