"""The bytes that one training step holds at once, from the widths of the layers and the rows of a batch.

A layer of d destinations and s sources, from rows of i to rows of o columns, holds these numbers of matrix elements:

    kind      kept for its backward pass      while it runs forward      its gradients while it runs backward
    sage      2 d i                           3 d i, or 2 d i + d o      2 d i + d o, or s i + d i
    gcn       d i                             d i + 2 d o                s i
    gin       d i + d o                       3 d i + 2 d o              2 s i
    gat       s o                             s o + d o                  s o + d o, or s i
    pinsage   s o + d o                       2 s o + 4 d o              2 s o, or s o + 2 s i
    rgcn      e i                             e i + e o + 2 d o + 4 e    e i + e o, or e i + s i
    rgat      e i + 3 e o + 4 e heads         e i + 4 e o + 2 d o + 8 e  e i + 3 e o, or e i + s i

The means of an rgcn are those of runs, at most one per edge e; 4 e are whole numbers of the runs. An rgat has rows of pairs of a relation
and a source besides, at most one per edge, too.

The row of sage is that of mini-batches; with `feed_forward` a layer of sage keeps d i, runs with d i + 3 d o, and has gradients of 2 s i.

A hidden layer keeps its activation as well, d o, and so does a norm. The rows that a layer reads are kept by it, but for those of gcn and
sage, and gat's where they are the activation of the layer below (ReLU). Before a layer's own gradients, that of its output is there
twice, 2 d o. Features need no gradient. The peak is the largest of these moments; what a layer kept is free again when its backward pass
is done. A test compares the sum with the bytes that a logical device counts.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from graphmill.trainers.recipe.architecture import RELATION_HEADS
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.batch import BatchSizes

TAKEN_RELATIONS = 16
"""Matrices of an rgcn without bases: what is taken here, where the number of the graph's relations is not known."""

TAKEN_TYPES = 4
"""Node types whose maps a typed projection is taken to have, each from as many columns as the widest type."""

SURPLUS = 1.25
"""Times as much as a device counts that the formulas may say; a test measures them."""


PAIR_COPIES, RELATION_COPIES, PENALTY_COPIES = 6.2, {"distmult": 1.0, "rotate": 2.7}, 2.0
"""Rows for each pair of a loss of links: of both ends, with products and gradients; head -> those of relations and turned ends; and those
of the gradients of lengths."""
ROW_COPIES = 3
"""Rows of the seeds of `model = "rows"`: as they are learnt, as the loss reads them, and their gradients."""


class _Layer(NamedTuple):
    """Elements of one layer: of its input rows if it keeps them, those that it keeps beside, and those of the moments of its two passes."""

    read: int
    kept: int
    forward: int
    backward: int


def step_bytes(train: TrainConfig, in_width: int, num_classes: int, batch: BatchSizes) -> int:
    """Returns the most bytes of activations and gradients of rows that a step holds, without the input rows of the batch."""
    if train.model == "rows":
        return (ROW_COPIES * batch.rows[-1] * train.hidden + pair_values(train, batch.pairs)) * item_bytes(train)
    layers = _layers(train, in_width, num_classes, batch)
    held, dropped = 0, batch.inputs * in_width * (train.input_dropout > 0)
    projected = batch.inputs * train.hidden * bool(train.projects)
    if train.input == "typed":
        held += batch.inputs * in_width  # the columns of each type, which its map keeps
    most = held + dropped + projected * (1 + (train.input == "typed") + (train.dropout > 0))
    held += dropped + projected
    # What the first layer is the last to read; a projection keeps the rows that it maps.
    freed = (projected or dropped) if _unread(train) and train.model != "gat" else 0
    for layer in layers:
        held += layer.read
        most = max(most, held + layer.forward)
        held += layer.kept - freed
        freed = 0
    most = max(most, held + pair_values(train, batch.pairs))
    for layer in reversed(layers):
        most = max(most, held - layer.kept + layer.backward)
        held -= layer.kept + layer.read
    return most * item_bytes(train)


def pair_values(train: TrainConfig, pairs: int) -> int:
    """Returns the elements that the losses of pairs hold besides the rows of the nodes.

    Args:
        pairs: number of links with their negatives.
    """
    copies = PAIR_COPIES + RELATION_COPIES.get(train.link_head, 0.0) + PENALTY_COPIES * (train.row_penalty > 0)
    return int(pairs * train.hidden * copies)


def item_bytes(train: TrainConfig) -> int:
    """Returns the bytes of an element of a row."""
    return 8 if train.dtype == "float64" else 4


def parameter_bytes(
    train: TrainConfig, in_width: int, num_classes: int, relations: int = TAKEN_RELATIONS, types: int = TAKEN_TYPES
) -> int:
    """Returns the bytes of a model's parameters, without those of biases and norms."""
    count = {"bilinear": 1, "mlp": 2, "label": 2}.get(train.link_head, 0) * train.hidden**2 * train.predicts_links
    count += relations * train.hidden * (train.link_head in RELATION_HEADS)
    if train.model == "rows":
        return count * item_bytes(train)
    count += in_width * train.hidden * (types if train.input == "typed" else bool(train.projects))
    widths = layer_widths(train, in_width, num_classes)
    for number, (wide, out) in enumerate(widths):
        last = number + 1 == len(widths) and train.head != "linear"
        pooled = train.model == "sage" and train.aggregator == "gcn"
        maps = {"gcn": 1, "gin": 1, "gat": train.heads if last else 1, "rgcn": 1 + (train.bases or relations)}
        maps["rgat"] = 1 + relations * (train.heads if last else 1)
        maps = 1 if pooled else maps.get(train.model, 2) * train.maps
        count += maps * wide * out + out * out * (train.model == "gin")
        count += wide * (wide if last else out) * (train.model == "pinsage")
        count += wide * out * (train.residual == "linear" or (train.residual and wide != out))
        count += round(train.feed_forward * wide * out) * (1 if train.model in ("sage", "gcn") else 2)
    count += train.hidden * num_classes * train.layers * (train.head == "linear")
    return count * item_bytes(train)


def least_step_bytes(train: TrainConfig, in_width: int, num_classes: int, seeds: int) -> int:
    """Returns bytes that a device holds for certain in some step, whose batch has `seeds` nodes without their neighbours."""
    values = parameter_bytes(train, in_width, num_classes, relations=1, types=1)
    # With their gradients and, when a step ends, with what the optimiser keeps of them.
    kept = int(train.momentum > 0) if train.optimizer == "sgd" else 2
    batch = BatchSizes(count=1, rows=(seeds,) * (train.layers + 1), edges=(0,) * train.layers)
    activations = step_bytes(train, in_width, num_classes, batch)
    running = seeds * in_width * item_bytes(train) + int((2 * values + activations) / SURPLUS)
    return max((2 + kept) * values, running)


def transposed_layers(train: TrainConfig) -> int:
    """Returns the number of layers, from the top, whose blocks have a transpose."""
    whole = train.model in ("gat", "pinsage", "rgcn", "rgat") or train.projects or ":" in train.model
    return train.layers if whole else train.layers - 1


def layer_widths(train: TrainConfig, in_width: int, num_classes: int) -> list[tuple[int, int]]:
    """Returns (columns that it reads, columns that it gives) of each layer, first to last."""
    first = train.hidden if train.projects else in_width
    widths = [first] + [train.hidden] * (train.layers - 1)
    widths.append(train.hidden if train.head == "linear" else num_classes)
    return list(pairwise(widths))


def _layers(train: TrainConfig, in_width: int, num_classes: int, batch: BatchSizes) -> Sequence[_Layer]:
    found = []
    for number, (wide, out) in enumerate(layer_widths(train, in_width, num_classes)):
        s, d, last = batch.rows[number], batch.rows[number + 1], number + 1 == train.layers and train.head != "linear"
        first = number == 0 and not train.projects
        kept, forward, backward = _convolution(train, s, d, wide, out, batch.edges[number], first, last)
        rows, ends = d * out, 0
        if train.feed_forward:
            ends = rows * (2 + (train.norm != "none")) + 2 * round(train.feed_forward * rows)
        elif not last:
            ends = rows * (1 + (train.norm != "none") + (train.model == "pinsage"))
        read = 0 if number == 0 or _unread(train) else s * wide
        moments = max(kept + ends + 2 * rows, kept + backward)
        found.append(_Layer(read, kept + ends, forward + rows * bool(train.residual), moments))
    return found


def _unread(train: TrainConfig) -> bool:
    """Returns whether no layer keeps the rows that it reads for its backward pass, beside what the layer below keeps."""
    if train.feed_forward or train.aggregator == "max":
        return False
    if train.model == "gcn" or train.aggregator == "gcn":
        return not train.residual
    return train.model == "sage" or (train.model == "gat" and train.activation == "relu")


def _convolution(
    train: TrainConfig, s: int, d: int, wide: int, out: int, edges: int, first: bool, last: bool
) -> tuple[int, int, int]:
    """Returns (kept, forward, backward) elements of a layer's convolution; the head of the file has the table."""
    if train.aggregator == "max":
        taken = edges * wide  # a row of every edge, its places, and their gradients
        return d * wide + 3 * taken, d * (wide + 3 * out) + 4 * taken, 0 if first else 2 * s * wide + taken
    if train.model == "gcn" or train.aggregator == "gcn":
        return d * wide, d * wide + 2 * d * out, 0 if first else s * wide
    if train.model == "gin":
        return d * (wide + out), 3 * d * wide + 2 * d * out, 0 if first else 2 * s * wide
    if train.model == "gat":
        columns, scores = out * (train.heads if last else 1), (edges + d + 2 * s) * train.heads
        backward = max((s + d) * columns, 0 if first else s * wide) + 4 * s * train.heads
        return s * columns + scores, (s + d) * columns + scores, backward
    if train.model == "rgcn":
        means = edges * wide
        backward = edges * out if first else means + max(edges * out, s * wide)
        return means, means + edges * out + 2 * d * out + 4 * edges, backward
    if train.model == "rgat":
        rows, columns = edges * wide, edges * out * (train.heads if last else 1)
        backward = 3 * columns if first else rows + max(3 * columns, s * wide)
        kept = rows + 3 * columns + 4 * edges * train.heads  # with scores and attention
        return kept, kept + columns + 2 * d * out + 8 * edges, backward
    if train.model == "pinsage":
        pooled = wide if last else out
        backward = max(2 * s * pooled, 0 if first else s * (pooled + 2 * wide))
        return s * pooled + d * pooled, 2 * s * pooled + d * (pooled + 3 * out), backward
    if train.feed_forward:
        return d * wide, d * wide + 3 * d * out, 0 if first else 2 * s * wide
    return (
        2 * d * wide,
        max(3 * d * wide, d * (2 * wide + out)),
        0 if first else max(d * (out + 2 * wide), (s + d) * wide),
    )
