"""Computes a trained model's logits: exactly, with all neighbours layer by layer, or on samples of the evaluation stream.

Exact inference computes one layer for all nodes before the next begins, in ranges of destinations. Its memory is the workspace W:

    W / 4   for each of the two neighbouring layers, which go to files where they are larger (trainers/inference/windows.py)
    W / 2   for one range: input rows of its edges, the layer's own intermediates and its output

plus 8 bytes per node for the sampler's map and what is mapped of the topology for one range. The neighbourhood of a single node is never
cut, so a node with more than W / 2 bytes of input rows exceeds it.

Where mini-batches draw neighbours by weight, all neighbours stand in their shares of the weighted mean. Where walks choose them, a node
has those that ten times the paths visit most, the same ones in every layer and at every call.

A layer that projects before it aggregates is two passes: the first maps every row once, in ranges of nodes, and the second gathers the
projected rows, however wide the input is. A third set of rows is alive then, and each has W / 6. A projection of the features is a pass of
its own in the same way before the first layer. A head runs on each range of the last layer. One that reads the outputs of all layers
carries them in folded rows (trainers/models/ends.py), which are made anew with every layer: then two more sets of rows are alive, of W / 8
each, or W / 10. A user's module over DGL blocks shows no layers: it gets the whole neighbourhood of a batch at once, and its memory is that
neighbourhood's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from assets.building.stage import Progress, Silent
from assets.sampling.config import Neighbours
from assets.sampling.drawing import Drawing
from kernels.errors import InputError
from kernels.sampling.epoch_plan import EpochPlan
from kernels.sampling.sample import Sampler
from kernels.types import Array, BatchKey, Block, Stream, Topology
from trainers.batches.batch import attach_weights
from trainers.batches.send import send_blocks
from trainers.devices.logical import LogicalDevice
from trainers.devices.protocol import Device
from trainers.inference.windows import MemoryRows, Rows, SpilledRows, forget, input_rows, layer_rows
from trainers.models.layer import LayeredModel
from trainers.models.masks import StepRandom
from trainers.models.own import DglModel, Model, dtype_of
from trainers.models.precision import BF16, computing, widened
from trainers.record.ledger import Ledger, Line
from trainers.rows.source import FeatureSource, RowIds

INPUT_ROWS, OUTPUT_ROWS = Line("h2d", "feature"), Line("d2h", "logit")
ALL = Drawing(neighbours=Neighbours(fanouts=(-1,)))
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
        drawing: how mini-batches draw neighbours, which decides what all of them are; None = every neighbour, equally.
    """

    workspace_bytes: int
    threads: int
    folder: Path | None = None
    progress: Progress = field(default_factory=Silent)
    device: Device = field(default_factory=LogicalDevice)
    dtype: str = "float32"
    drawing: Drawing | None = None

    def whole(self, topology: Topology, layers: int = 1) -> Sampler:
        """Returns what gives nodes their whole neighbourhoods."""
        return (self.drawing or ALL).whole(topology, layers, threads=self.threads)

    def ends(self, topology: Topology) -> Array:
        """Returns i64[N+1], where the edges of each node end at most: as `indptr`, or so many per node where walks choose its sources."""
        most = None if self.drawing is None else self.drawing.most_evaluated
        return topology.indptr if most is None else np.arange(topology.num_nodes + 1, dtype=np.int64) * most

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
    """The result for nodes low to high of a domain; for all nodes these are node ids.

    Attributes:
        low, high: places in the domain.
        logits: float[high - low, num_classes].
        inputs: what the last layer read, rows of the domain's nodes and of others; None where the model shows no layers.
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


class Domain(Protocol):
    """The nodes that a process computes, counted from 0; all nodes, or those of its parts (trainers/techniques/distributed/inference.py).

    Attributes:
        num_nodes: how many.
    """

    num_nodes: int

    def node_ids(self, low: int, high: int) -> Array:
        """Returns ids[high - low], the nodes of a range."""
        ...

    def ranges(self, budget: int, edge_cost: int, node_cost: int) -> Iterator[tuple[int, int]]:
        """Yields ranges that cost at most `budget` (`row_ranges`); an empty one takes part in the exchange of the others' rows."""
        ...

    def inputs(self, features: FeatureSource, memory_bytes: int, dtype: torch.dtype) -> Rows:
        """Returns the input rows of all nodes; `read` takes ranges of these nodes."""
        ...

    def shared(self, rows: Rows) -> Rows:
        """Returns rows of these nodes as rows of all nodes: `gather` takes any node, `read` ranges of these."""
        ...


class AllNodes:
    """All nodes of a graph.

    Args:
        topology: the graph.
        ends: i64[N+1], where the edges of each node end at most.
    """

    def __init__(self, topology: Topology, ends: Array):
        self.topology, self.num_nodes, self.ends = topology, topology.num_nodes, ends

    def node_ids(self, low: int, high: int) -> Array:
        """Returns low, low + 1, ..."""
        return np.arange(low, high, dtype=self.topology.indices.dtype)

    def ranges(self, budget: int, edge_cost: int, node_cost: int) -> Iterator[tuple[int, int]]:
        """Yields ranges that cost at most `budget`."""
        return row_ranges(self.ends, budget, edge_cost, node_cost)

    def inputs(self, features: FeatureSource, memory_bytes: int, dtype: torch.dtype) -> Rows:
        """Returns the rows of the features."""
        return input_rows(features, memory_bytes, dtype)

    def shared(self, rows: Rows) -> Rows:
        """Returns the rows."""
        return rows


class _Made:
    """A place for rows that come range by range; made when the first come, for their width is known then."""

    def __init__(self, num_rows: int, memory_bytes: int, folder: Path | None):
        self.num_rows, self.memory_bytes, self.folder = num_rows, memory_bytes, folder
        self.rows: MemoryRows | SpilledRows | None = None

    def write(self, low: int, rows: Tensor) -> None:
        if self.rows is None:
            self.rows = layer_rows(self.num_rows, rows.shape[1], self.memory_bytes, self.folder, rows.dtype)
        self.rows.write(low, rows)


def exact_ranges(
    model: Model, topology: Topology, features: FeatureSource, bounds: Bounds, domain: Domain | None = None
) -> Iterator[ExactRange]:
    """Yields the logits of all nodes in ascending order, or of those of a domain in its order, computed from all neighbours.

    Raises:
        OverBudget: the device has too little memory.
    """
    with bounds.device.evaluating():
        yield from _exact_ranges(model, topology, features, bounds, domain)


@torch.no_grad()
def _exact_ranges(
    model: Model, topology: Topology, features: FeatureSource, bounds: Bounds, domain: Domain | None
) -> Iterator[ExactRange]:
    # A user's layers may hold modules of torch that have a mode, and layers are called apart here. Each training pass sets its own.
    model.eval()
    nodes = domain or AllNodes(topology, bounds.ends(topology))
    if not isinstance(model, LayeredModel):
        yield from _whole_neighbourhoods(model, topology, features, bounds, nodes)
        return
    sampler = bounds.whole(topology)
    share, num_nodes = bounds.workspace_bytes // (2 * _rows_alive(model)), nodes.num_nodes
    rows = _first_rows(model, features, nodes, share, bounds)
    carried: Rows | None = None  # the outputs of the layers so far as the head folds them, where it reads them all
    for index in range(len(model.layers) - 1):
        made, folded = (_Made(num_nodes, share, bounds.folder) for _ in range(2))
        for low, high, out in _layer_ranges(model, index, topology, sampler, rows, carried, bounds, nodes):
            made.write(low, out)
            if carried is not None:
                folded.write(low, _fold(model, carried, low, high, out))
        assert made.rows is not None
        rows = nodes.shared(made.rows)
        if model.jumps:
            carried = folded.rows or made.rows
    for low, high, out in _layer_ranges(model, len(model.layers) - 1, topology, sampler, rows, carried, bounds, nodes):
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
    drawing: Drawing | None = None,
) -> Tensor:
    """Computes the logits of nodes from all their neighbours.

    Args:
        workspace_bytes, threads, folder, progress, device, dtype, drawing: see `Bounds`.
        node_ids: ids[n] global; None for all nodes in order.

    Returns:
        f32[n, num_classes], in the order of `node_ids`.

    Raises:
        InputError: what is given are no ids of the graph.
    """
    wanted = np.arange(topology.num_nodes) if node_ids is None else np.asarray(node_ids)
    if wanted.size and wanted.dtype.kind not in "iu":
        raise InputError(f"node_ids are {wanted.dtype}, not whole numbers", "of a mask give np.flatnonzero(mask)")
    if wanted.size and not 0 <= wanted.min() <= wanted.max() < topology.num_nodes:
        problem = f"node_ids go from {wanted.min()} to {wanted.max()}, and the graph has {topology.num_nodes:,} nodes"
        raise InputError(problem, f"give ids from 0 to {topology.num_nodes - 1}")
    order = np.argsort(wanted, kind="stable")
    ascending, logits = wanted[order], torch.empty(0)
    bounds = Bounds(
        workspace_bytes=workspace_bytes,
        threads=threads,
        folder=folder,
        progress=progress,
        device=device or LogicalDevice(),
        dtype=dtype,
        drawing=drawing,
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
    drawing: Drawing,
    batch_size: int,
    seed: int,
    threads: int,
    progress: Progress = Silent(),  # noqa: B008  stateless
    device: Device | None = None,
    dtype: str = "float32",
) -> Tensor:
    """Computes the logits of `node_ids` from sampled neighbours, the same ones at every call.

    Returns:
        f32[n, num_classes], in the order of `node_ids`.
    """
    sampler = drawing.sampler(topology, seed=seed, threads=threads)
    plan = EpochPlan(np.arange(len(node_ids)), batch_size, seed=seed, stream=Stream.EVAL)
    logits: Tensor | None = None
    place = device or LogicalDevice()
    progress.start("evaluate", plan.num_batches, "batches")
    for item in plan.batches(0):
        blocks = sampler.sample(item.key, node_ids[item.seeds], transpose="none")
        attach_weights(blocks, topology, model.edge_weight)
        with place.evaluating(), computing(dtype, place.torch_device):
            x = torch.empty((blocks[0].num_src, features.width), dtype=dtype_of(model), device=place.torch_device)
            features.gather(RowIds(blocks[0].src_ids), x, place.traffic)
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
    if not isinstance(model, LayeredModel):
        return 1
    projected = sum(model.projects_first(index) for index in range(len(model.layers)))
    return len(model.layers) + projected + (model.projection is not None)


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


def _rows_alive(model: LayeredModel) -> int:
    """How many sets of rows of all nodes exact inference holds at once; each may take an equal share of half the workspace."""
    return 2 + 2 * model.jumps + any(model.projects_first(index) for index in range(len(model.layers)))


def _first_rows(model: LayeredModel, features: FeatureSource, nodes: Domain, share: int, bounds: Bounds) -> Rows:
    """Returns what the first layer reads: the features, or their projections, computed range by range."""
    rows = nodes.inputs(features, share, dtype_of(model))
    if model.projection is None:
        return rows
    width = model.projection.linear.out_features
    return _mapped_rows(rows, width, lambda read, ids: model.input(read, ids, _EVALUATION), nodes, share, bounds)


def _mapped_rows(
    rows: Rows, width: int, function: Callable[[Tensor, Array], Tensor], nodes: Domain, share: int, bounds: Bounds
) -> Rows:
    """Returns a function of each row, computed range by range in one pass over all nodes.

    Args:
        rows: of all nodes.
        width: columns of the results.
        function: (rows of nodes, their ids) -> float[n, width].
        nodes, share, bounds: which nodes, bytes for the results in memory, and the bounds.
    """
    made = _Made(nodes.num_nodes, share, bounds.folder)
    # Input rows with a window's copy, results, and the order in which rows are read.
    cost = rows.dtype.itemsize * (3 * rows.width + 2 * width) + 48
    step = max(1, bounds.workspace_bytes // 2 // cost)
    for low, high in nodes.ranges(step, 0, 1):
        node_ids = nodes.node_ids(low, high)
        read = bounds.sent(rows.gather(node_ids, bounds.threads))
        with bounds.computing():
            made.write(low, bounds.fetched(function(read, node_ids)))
        bounds.progress.advance(len(node_ids))
    assert made.rows is not None
    return nodes.shared(made.rows)


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
    nodes: Domain,
) -> Iterator[tuple[int, int, Tensor]]:
    """Computes one layer for all nodes of a domain, range by range."""
    edge_cost, node_cost = _range_costs(model, index, rows.width, 0 if carried is None else carried.width)
    projected = _projected(model, index, nodes, rows, bounds)
    for low, high in nodes.ranges(bounds.workspace_bytes // 2, edge_cost, node_cost):
        seeds = nodes.node_ids(low, high)
        (block,) = sampler.sample(BatchKey(Stream.EVAL, 0, 0), seeds, transpose="none")
        attach_weights((block,), topology, model.edge_weight)
        forget(topology.indices)
        (sent,), read = (
            send_blocks((block,), bounds.device, bounds.device.traffic),
            (rows if projected is None else projected).gather(block.src_ids, bounds.threads),
        )
        own = rows.gather(seeds, bounds.threads) if projected is not None and model.layers[index].reads_own else None
        with bounds.computing():
            out = bounds.fetched(_layer(model, index, sent, bounds, read, own, projected is not None))
        yield low, high, out
        bounds.progress.advance(high - low)


def _projected(model: LayeredModel, index: int, nodes: Domain, rows: Rows, bounds: Bounds) -> Rows | None:
    """Returns the projected rows of a layer that projects first, None for others."""
    if not model.projects_first(index):
        return None
    layer: Any = model.layers[index]
    share = bounds.workspace_bytes // (2 * _rows_alive(model))
    return _mapped_rows(rows, layer.projection.out_features, lambda read, _: layer.project(read), nodes, share, bounds)


def _layer(
    model: LayeredModel, index: int, block: Block, bounds: Bounds, read: Tensor, own: Tensor | None, projected: bool
) -> Tensor:
    """Computes a layer on a device from input rows, or from projected rows and the destinations' own."""
    if not projected:
        return model.forward_layer(index, block, bounds.sent(read), _EVALUATION)
    z = bounds.sent(read)
    # Where products are computed from bfloat16, their results were; the values are the same.
    z = z.to(torch.bfloat16) if bounds.dtype == BF16 else z
    return model.forward_projected(index, block, z, None if own is None else bounds.sent(own), _EVALUATION)


def _range_costs(model: LayeredModel, index: int, width: int, carried: int) -> tuple[int, int]:
    """Bytes that an edge and a destination of a range need at most.

    An edge: its local ids in the block and while it is made, its weight, an input row with the order it was read in. In a layer that
    projects first the row is the projected one, with its product with the attention vector, and the attention weights come with it. A
    destination: its aggregate and a few rows as wide as the layer's widest parameter (as a projected row); its own row where the layer
    reads it; its carried row with the pages it is read through, and the row that is folded of it; logits.
    """
    layer: Any = model.layers[index]
    value = dtype_of(model).itemsize
    if model.projects_first(index):
        widest = layer.projection.out_features
        edge = value * (2 * widest + 6 * layer.heads) + 48
        node = value * (6 * widest + (3 * width + 2 * widest if layer.reads_own else 0)) + edge
    else:
        widest = max((max(parameter.shape) for parameter in layer.parameters() if parameter.dim()), default=1)
        edge = value * width + 48 + (0 if layer.cacheable else 6 * widest * value // 4)
        node = value * width + 4 * value * widest + edge
    if carried:
        node += value * (3 * carried + widest)
    if model.readout is not None and index + 1 == len(model.layers):
        node += 2 * value * model.readout.linear.out_features
    return edge, node


def _whole_neighbourhoods(
    model: Model, topology: Topology, features: FeatureSource, bounds: Bounds, nodes: Domain
) -> Iterator[ExactRange]:
    """Runs a model without layers on whole neighbourhoods, as deep as the model, of a batch of nodes at a time."""
    assert isinstance(model, DglModel)
    sampler = bounds.whole(topology, model.depth)
    for low, high in nodes.ranges(_WHOLE_BATCH, 0, 1):
        blocks = sampler.sample(BatchKey(Stream.EVAL, 0, 0), nodes.node_ids(low, high), transpose="none")
        x = torch.empty((blocks[0].num_src, features.width), dtype=dtype_of(model))
        features.gather(RowIds(blocks[0].src_ids), x, Ledger())
        yield ExactRange(low=low, high=high, logits=model(blocks, x, _EVALUATION))
        bounds.progress.advance(high - low)
