"""Computes a trained model's logits: exactly, with all neighbours layer by layer, or on samples of the evaluation stream.

Exact inference computes one layer for all nodes before the next begins, in ranges of destinations. Its memory is the workspace W:

    W / 4   for each of the two neighbouring layers, which go to files where they are larger (trainers/rows/windows.py)
    W / 2   for one range: input rows of its edges, the layer's own intermediates and its output

plus 8 bytes per node for the sampler's map and what is mapped of the topology for one range. The neighbourhood of a single node is never
cut, so a node with more than W / 2 bytes of input rows exceeds it.

A projection of the features is a pass of its own over all nodes before the first layer, which reads its rows like those of a layer. A head
runs on each range of the last layer. One that reads the outputs of all layers carries them in folded rows (trainers/models/ends.py), which
are made anew with every layer: then four sets of rows are alive, of W / 8 each. A user's module over DGL blocks shows no layers: it gets
the whole neighbourhood of a batch at once, and its memory is that neighbourhood's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assets.building.stage import Progress, Silent
from assets.sampling.config import open_sampler
from kernels.sampling.epoch_plan import EpochPlan
from kernels.sampling.sample import Sampler
from kernels.types import Array, BatchKey, Stream, Topology
from trainers.batches.batch import attach_weights
from trainers.batches.send import send_blocks
from trainers.devices.logical import LogicalDevice
from trainers.devices.protocol import Device
from trainers.models.layer import LayeredModel, StepRandom
from trainers.models.own import DglModel, Model, dtype_of
from trainers.models.precision import computing, widened
from trainers.record.ledger import Ledger, Line
from trainers.rows.source import FeatureSource, RowIds
from trainers.rows.windows import MemoryRows, Rows, SpilledRows, forget, input_rows, layer_rows

INPUT_ROWS, OUTPUT_ROWS = Line("h2d", "feature"), Line("d2h", "logit")
_EVALUATION = StepRandom(0, training=False)
_WHOLE_BATCH = 1024


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What exact inference may use.

    Attributes:
        workspace_bytes: W above.
        threads: of the kernels.
        folder: of files for layers that do not fit; None keeps all in memory.
        progress: gets every range of every layer; the callers start and end it.
        device: computes; layers between two passes stay on the host.
        dtype: the key of the train table.
    """

    workspace_bytes: int
    threads: int
    folder: Path | None = None
    progress: Progress = field(default_factory=Silent)
    device: Device = field(default_factory=LogicalDevice)
    dtype: str = "float32"

    def computing(self) -> AbstractContextManager[Any]:
        """Returns the context of a forward pass."""
        return computing(self.dtype, self.device.torch_device)

    def sent(self, rows: Tensor) -> Tensor:
        """Returns rows where the device computes."""
        return self.device.send_tensor(rows, INPUT_ROWS, self.device.traffic)

    def fetched(self, rows: Tensor) -> Tensor:
        """Returns what the device computed, on the host."""
        return self.device.fetch(widened(rows), OUTPUT_ROWS, self.device.traffic)


@dataclass(frozen=True, kw_only=True)
class ExactRange:
    """The result for nodes low to high.

    Attributes:
        low, high: node ids.
        logits: float[high - low, num_classes].
        inputs: what the last layer read, rows of all nodes; None where the model shows no layers.
        head_inputs: what a linear head read of the range, float[high - low, H]; None where the model has none.
    """

    low: int
    high: int
    logits: Tensor
    inputs: Rows | None = None
    head_inputs: Tensor | None = None

    def embeddings(self, low: int, high: int) -> Tensor:
        """Returns what the last map to the logits read of nodes low to high: float[high - low, H]; the logits of a model without layers."""
        if self.head_inputs is None and self.inputs is not None:
            return self.inputs.read(low, high)
        rows = self.logits if self.head_inputs is None else self.head_inputs
        return rows[low - self.low : high - self.low]


class _Made:
    """A place for rows that come range by range; made when the first come, for their width is known then."""

    def __init__(self, num_rows: int, memory_bytes: int, folder: Path | None):
        self.num_rows, self.memory_bytes, self.folder = num_rows, memory_bytes, folder
        self.rows: MemoryRows | SpilledRows | None = None

    def write(self, low: int, rows: Tensor) -> None:
        if self.rows is None:
            self.rows = layer_rows(self.num_rows, rows.shape[1], self.memory_bytes, self.folder, rows.dtype)
        self.rows.write(low, rows)


@torch.no_grad()
def exact_ranges(model: Model, topology: Topology, features: FeatureSource, bounds: Bounds) -> Iterator[ExactRange]:
    """Yields the logits of all nodes in ascending order, computed from all neighbours."""
    if not isinstance(model, LayeredModel):
        yield from _whole_neighbourhoods(model, topology, features, bounds)
        return
    sampler = Sampler(topology, (-1,), seed=0, threads=bounds.threads)
    share, num_nodes = bounds.workspace_bytes // (8 if model.jumps else 4), topology.num_nodes
    rows = _first_rows(model, features, num_nodes, share, bounds)
    carried: Rows | None = None  # the outputs of the layers so far as the head folds them, where it reads them all
    for index in range(len(model.layers) - 1):
        made, folded = (_Made(num_nodes, share, bounds.folder) for _ in range(2))
        for low, high, out in _layer_ranges(model, index, topology, sampler, rows, carried, bounds):
            made.write(low, out)
            if carried is not None:
                folded.write(low, _fold(model, carried, low, high, out))
        assert made.rows is not None
        rows = made.rows
        if model.jumps:
            carried = folded.rows or rows
    for low, high, out in _layer_ranges(model, len(model.layers) - 1, topology, sampler, rows, carried, bounds):
        if model.readout is None:
            yield ExactRange(low=low, high=high, logits=out, inputs=rows)
        else:
            read = _fold(model, carried, low, high, out)
            with bounds.computing():
                logits = bounds.fetched(model.readout(bounds.sent(read)))
            yield ExactRange(low=low, high=high, logits=logits, inputs=rows, head_inputs=read)


def infer_exact(
    model: Model,
    topology: Topology,
    features: FeatureSource,
    workspace_bytes: int,
    threads: int,
    *,
    node_ids: Array | None = None,
    folder: Path | None = None,
    progress: Progress = Silent(),  # noqa: B008  stateless
    device: Device | None = None,
    dtype: str = "float32",
) -> Tensor:
    """Computes the logits of nodes from all their neighbours.

    Args:
        workspace_bytes, threads, folder, progress, device, dtype: see `Bounds`.
        node_ids: ids[n] global; None for all nodes in order.

    Returns:
        f32[n, num_classes], in the order of `node_ids`.
    """
    wanted = np.arange(topology.num_nodes) if node_ids is None else np.asarray(node_ids)
    order = np.argsort(wanted, kind="stable")
    ascending, logits = wanted[order], torch.empty(0)
    bounds = Bounds(
        workspace_bytes=workspace_bytes,
        threads=threads,
        folder=folder,
        progress=progress,
        device=device or LogicalDevice(),
        dtype=dtype,
    )
    progress.start("evaluate", num_passes(model) * topology.num_nodes, "rows")
    for each in exact_ranges(model, topology, features, bounds):
        first, last = np.searchsorted(ascending, (each.low, each.high))
        if logits.dim() == 1:
            logits = torch.empty((len(wanted), each.logits.shape[1]), dtype=each.logits.dtype)
        places = torch.from_numpy(ascending[first:last]).long() - each.low
        logits[torch.from_numpy(order[first:last])] = each.logits[places]
    progress.done()
    return logits


@torch.no_grad()
def infer_sampled(
    model: Model,
    topology: Topology,
    features: FeatureSource,
    node_ids: Array,
    *,
    fanouts: tuple[int, ...],
    batch_size: int,
    seed: int,
    threads: int,
    method: str = "uniform",
    progress: Progress = Silent(),  # noqa: B008  stateless
    device: Device | None = None,
    dtype: str = "float32",
) -> Tensor:
    """Computes the logits of `node_ids` from sampled neighbours, the same ones at every call.

    Returns:
        f32[n, num_classes], in the order of `node_ids`.
    """
    sampler = open_sampler(topology, method, fanouts, seed=seed, threads=threads)
    plan = EpochPlan(np.arange(len(node_ids)), batch_size, seed=seed, stream=Stream.EVAL)
    logits: Tensor | None = None
    place = device or LogicalDevice()
    progress.start("evaluate", plan.num_batches, "batches")
    for item in plan.batches(0):
        blocks = sampler.sample(item.key, node_ids[item.seeds], transpose="none")
        attach_weights(blocks, topology, model.edge_weight)
        x = torch.empty((blocks[0].num_src, features.width), dtype=dtype_of(model), device=place.torch_device)
        features.gather(RowIds(blocks[0].src_ids), x, place.traffic)
        with computing(dtype, place.torch_device):
            out = widened(model(send_blocks(blocks, place, place.traffic), x, _EVALUATION))
        out = place.fetch(out, OUTPUT_ROWS, place.traffic)
        logits = torch.empty((len(node_ids), out.shape[1]), dtype=out.dtype) if logits is None else logits
        logits[torch.from_numpy(item.seeds)] = out
        progress.advance(1)
    progress.done()
    assert logits is not None
    return logits


def num_passes(model: Model) -> int:
    """How many times exact inference goes over all nodes: once per layer or projection, once for a model that shows no layers."""
    return len(model.layers) + (model.projection is not None) if isinstance(model, LayeredModel) else 1


def row_ranges(indptr: Array, budget: int, edge_cost: int = 1, node_cost: int = 1) -> Iterator[tuple[int, int]]:
    """Cuts nodes 0..N-1 into ranges that together cost at most `budget`, one node at least.

    Args:
        indptr: i64[N+1].
        budget: what a range may cost: edge_cost for each in-edge of its nodes and node_cost for each node.
    """

    def cost(node: int) -> int:
        return int(indptr[node]) * edge_cost + node * node_cost

    low, num_nodes = 0, len(indptr) - 1
    while low < num_nodes:
        high = bisect_right(range(num_nodes + 1), cost(low) + budget, lo=low, key=cost) - 1
        high = max(high, low + 1)
        yield low, high
        low = high


def _first_rows(model: LayeredModel, features: FeatureSource, num_nodes: int, share: int, bounds: Bounds) -> Rows:
    """Returns what the first layer reads: the features, or their projections, computed range by range."""
    rows = input_rows(features, share, dtype_of(model))
    if model.projection is None:
        return rows
    made, value = _Made(num_nodes, share, bounds.folder), dtype_of(model).itemsize
    # Input rows with a window's copy, projected rows, and the order in which rows are read.
    cost = value * (3 * rows.width + 2 * model.projection.linear.out_features) + 48
    step = max(1, bounds.workspace_bytes // 2 // cost)
    for low in range(0, num_nodes, step):
        node_ids = np.arange(low, min(low + step, num_nodes))
        read = bounds.sent(rows.gather(node_ids, bounds.threads))
        with bounds.computing():
            made.write(low, bounds.fetched(model.input(read, node_ids, _EVALUATION)))
        bounds.progress.advance(len(node_ids))
    assert made.rows is not None
    return made.rows


def _fold(model: LayeredModel, carried: Rows | None, low: int, high: int, out: Tensor) -> Tensor:
    """Folds a layer's output for nodes low to high into what is carried of the layers below."""
    assert model.readout is not None
    return model.readout.jump(None if carried is None else carried.read(low, high), out)


def _layer_ranges(
    model: LayeredModel,
    index: int,
    topology: Topology,
    sampler: Sampler,
    rows: Rows,
    carried: Rows | None,
    bounds: Bounds,
) -> Iterator[tuple[int, int, Tensor]]:
    """Computes one layer for all nodes, range by range."""
    edge_cost, node_cost = _range_costs(model, index, rows.width, 0 if carried is None else carried.width)
    for low, high in row_ranges(topology.indptr, bounds.workspace_bytes // 2, edge_cost, node_cost):
        seeds = np.arange(low, high, dtype=topology.indices.dtype)
        (block,) = sampler.sample(BatchKey(Stream.EVAL, 0, 0), seeds, transpose="none")
        attach_weights((block,), topology, model.edge_weight)
        forget(topology.indices)
        (sent,), read = (
            send_blocks((block,), bounds.device, bounds.device.traffic),
            rows.gather(block.src_ids, bounds.threads),
        )
        with bounds.computing():
            out = bounds.fetched(model.forward_layer(index, sent, bounds.sent(read), _EVALUATION))
        yield low, high, out
        bounds.progress.advance(high - low)


def _range_costs(model: LayeredModel, index: int, width: int, carried: int) -> tuple[int, int]:
    """Bytes that an edge and a destination of a range need at most.

    An edge: its local ids in the block and while it is made, its weight, an input row with the order it was read in, and in a layer
    that projects before it aggregates the projected row and the attention weights. A destination: its aggregate and a few rows as wide
    as the layer's widest parameter; its carried row with the pages it is read through, and the row that is folded of it; logits.
    """
    layer = model.layers[index]
    widest = max((max(parameter.shape) for parameter in layer.parameters() if parameter.dim()), default=1)
    value = dtype_of(model).itemsize  # the factors below count values of 4 bytes
    edge = value * width + 48 + (0 if layer.cacheable else 6 * widest * value // 4)
    node = value * width + 4 * value * widest + edge
    if carried:
        node += value * (3 * carried + widest)
    if model.readout is not None and index + 1 == len(model.layers):
        node += 2 * value * model.readout.linear.out_features
    return edge, node


def _whole_neighbourhoods(
    model: Model, topology: Topology, features: FeatureSource, bounds: Bounds
) -> Iterator[ExactRange]:
    """Runs a model without layers on whole neighbourhoods, as deep as the model, of a batch of nodes at a time."""
    assert isinstance(model, DglModel)
    sampler = Sampler(topology, (-1,) * model.depth, seed=0, threads=bounds.threads)
    for low in range(0, topology.num_nodes, _WHOLE_BATCH):
        high = min(low + _WHOLE_BATCH, topology.num_nodes)
        seeds = np.arange(low, high, dtype=topology.indices.dtype)
        blocks = sampler.sample(BatchKey(Stream.EVAL, 0, 0), seeds, transpose="none")
        x = torch.empty((blocks[0].num_src, features.width), dtype=dtype_of(model))
        features.gather(RowIds(blocks[0].src_ids), x, Ledger())
        yield ExactRange(low=low, high=high, logits=model(blocks, x, _EVALUATION))
        bounds.progress.advance(high - low)
