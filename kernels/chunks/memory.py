"""Bytes of device memory that the steps of a full-graph pass take: the one place that turns counts into bytes.

An artifact of chunks holds counts of rows and edges, since bytes depend on the model: on the width of each layer, its dtype, and on what is
kept for the backward pass. Trainers size their buffers by these functions, and whoever plans asks the same ones, so that a plan says what a
run takes. For one layer whose inputs have `inputs` columns, aggregates `aggregates` and outputs `outputs`, a step of v destinations
over a buffer of b rows takes

    forward             buffer b x inputs; aggregates and outputs, v x (aggregates + outputs); the block
    backward, cached    gradient buffer b x inputs; aggregates and outputs with their gradients, 2 v x (aggregates + outputs);
                        inputs of the destinations v x inputs; the block with its transpose
    backward, recomputed    the buffer besides the gradient buffer, 2 b x inputs; otherwise the same without inputs of destinations

A buffer is allocated once for the largest step of a device; what belongs to a step lives as long as the step. Not counted: parameters,
temporary memory of matrix products, and intermediate values of layers that keep one per edge (attention: give `edges`).

Source: HongTu, sections 4.2 (recomputation-caching-hybrid) and 6 (one merged buffer).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kernels.chunks.counts import StepCounts
from kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class LayerWidths:
    """Columns of what one layer holds.

    Attributes:
        inputs: of a source row.
        aggregates: of what aggregation gives per destination.
        outputs: of what the layer gives per destination.
        edges: values that the layer keeps per edge between forward and backward, such as attention of each head.
        cached: whether the aggregate is kept on the host, so that the backward pass does not load and aggregate again.
    """

    inputs: int
    aggregates: int
    outputs: int
    edges: int = 0
    cached: bool = False


def buffer_bytes(counts: StepCounts, width: int, itemsize: int) -> Array:
    """Returns i64[m]: bytes of each device's merged buffer for rows of `width` columns of `itemsize` bytes."""
    return counts.most("buffer_rows") * (width * itemsize)


def block_bytes(counts: StepCounts, *, self_term: bool, transposed: bool, weighted: bool = False) -> Array:
    """Returns i64[n, m]: bytes of each step's block and of its lists of rows, on the device.

    Args:
        counts: of the steps.
        self_term: whether destinations have rows (`dst_pos`).
        transposed: whether the block has its transpose.
        weighted: whether edges and destinations have weights.
    """
    v, edges, rows = counts.destinations, counts.edges, counts.buffer_rows
    found = 8 * v + 4 * edges + 4 * counts.loaded + 8 * counts.fetched
    found = found + 4 * v * self_term + (4 * edges + 4 * v) * weighted
    return found + (4 * (rows + 1) + 8 * edges) * transposed


def layer_bytes(
    counts: StepCounts, layer: LayerWidths, itemsize: int, *, self_term: bool, weighted: bool, backward: bool
) -> Array:
    """Returns i64[m]: the most bytes that a layer takes on each device, forward or backward.

    Args:
        counts, layer: of the steps and the layer.
        itemsize: bytes per value.
        self_term, weighted: as in `block_bytes`.
        backward: which pass.
    """
    v, edges = counts.destinations, counts.edges
    values = v * (layer.aggregates + layer.outputs) + edges * layer.edges
    buffers = buffer_bytes(counts, layer.inputs, itemsize)
    if backward:
        values = 2 * values + v * layer.inputs * layer.cached
        buffers = buffers * (1 if layer.cached else 2)
    steps = values * itemsize + block_bytes(counts, self_term=self_term, transposed=backward, weighted=weighted)
    return buffers + steps.max(axis=0, initial=0)


def pass_bytes(
    counts: StepCounts, layers: Iterable[LayerWidths], itemsize: int, *, self_term: bool = True, weighted: bool = True
) -> Array:
    """Returns i64[m]: the most bytes that an epoch takes on each device, over all layers and both passes; args of `layer_bytes`."""
    found = [
        layer_bytes(counts, layer, itemsize, self_term=self_term, weighted=weighted, backward=backward)
        for layer in layers
        for backward in (False, True)
    ]
    return np.max(found, axis=0)
