"""Computes a trained model's logits exactly: with all neighbours, layer by layer.

Exact inference computes one layer for all nodes before the next begins, in ranges of destinations. Its memory is the workspace W:

    W / 4   for each of the two neighbouring layers, which go to files if they are larger (trainers/inference/windows.py)
    W / 2   for one range: input rows of its edges, the layer's own intermediates and its output

plus the sampler's map, the sets of wanted nodes (trainers/inference/needed.py), and the mapped pages of the topology for one range. The
neighbourhood of a single node is never cut, so a node with more than W / 2 bytes of input rows exceeds it.

If mini-batches draw neighbours by weight, all neighbours count by their shares of the weighted mean. If walks choose them, a node has those
that ten times as many paths visit most, the same ones in every layer and at every call.

A layer that projects before it aggregates is two passes: the first maps every row once, in ranges of nodes, and the second gathers the
projected rows, however wide the input is. A third set of rows is then alive, and each has W / 6. A projection of the features is likewise a
pass of its own before the first layer. A head runs on each range of the last layer. One that reads the outputs of all layers carries them
in folded rows (trainers/models/ends.py), which are made anew with every layer: two more sets of rows are then alive, of W / 8 each, or W /
10. A user's module over whole blocks exposes no layers: it gets the whole neighbourhood of a batch at once, and needs memory for all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, BatchKey, Block, Stream, Topology
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.batches.send import send_blocks
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.domain import AllNodes, Domain, Piece
from graphmill.trainers.inference.needed import NeededNodes, find_needed, pays, spread
from graphmill.trainers.inference.windows import MemoryRows, Rows, SpilledRows, forget
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import Model, OwnModule, dtype_of
from graphmill.trainers.models.precision import BF16
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import FeatureSource, RowIds

EVALUATION = StepRandom(0, training=False)
"""Draws nothing: there is no dropout in an evaluation."""
_WHOLE_BATCH = 1024


@dataclass(frozen=True, kw_only=True)
class ExactRange:
    """The result for nodes low to high of a domain; for all nodes these are node ids.

    Attributes:
        low, high: places in the domain.
        logits: float[high - low, num_classes].
        inputs: the input rows of the last layer, of the domain's nodes and of others; None if the model exposes no layers.
        head_inputs: float[high - low, H], the input rows of a linear head; None if the model has none.
    """

    low: int
    high: int
    logits: Tensor
    inputs: Rows | None = None
    head_inputs: Tensor | None = None

    def embeddings(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, H], the inputs of the last map to the logits, of nodes low to high; without layers the logits."""
        if self.head_inputs is None and self.inputs is not None:
            return self.inputs.read(low, high)
        rows = self.logits if self.head_inputs is None else self.head_inputs
        return rows[low - self.low : high - self.low]


class Inference:
    """Computes logits of a model.

    Args:
        model: the model, on the device of the bounds.
        topology: the graph.
        features: the rows of its nodes, or of this process's nodes.
        bounds: memory, threads and the device.
        domain: the nodes that this process computes; None for all of them.
    """

    def __init__(
        self, model: Model, topology: Topology, features: FeatureSource, bounds: Bounds, domain: Domain | None = None
    ):
        self.model, self.topology, self.features, self.bounds = model, topology, features, bounds
        self.nodes = domain or AllNodes(topology, bounds.ends(topology))

    def exact(self, node_ids: Array | None = None, known: NeededNodes | None = None) -> Tensor:
        """Computes the logits of nodes from all their neighbours; all processes call it with the same nodes.

        Args:
            node_ids: ids[n] global; None for all nodes in order.
            known: result of `needed` for these nodes, if an earlier call computed it.

        Returns:
            float[n, num_classes], in the order of `node_ids`.

        Raises:
            InputError: `node_ids` are not ids of the graph.
        """
        wanted = np.arange(self.topology.num_nodes) if node_ids is None else np.asarray(node_ids)
        self._require_ids(wanted)
        order = np.argsort(wanted, kind="stable")
        ascending, progress = wanted[order], self.bounds.progress
        needed = known or self.needed(ascending)

        def pieces() -> Iterator[Piece]:
            for each in self.ranges(needed):
                positions, rows = self.nodes.wanted(ascending, each.low, each.high)
                yield Piece(order[positions], each.logits[torch.from_numpy(rows)])

        progress.start("evaluate", self.num_passes * self.nodes.num_nodes, "rows")
        logits = self.nodes.collected(pieces(), len(wanted))
        progress.done()
        return logits

    @property
    def num_passes(self) -> int:
        """Number of passes of exact inference over all nodes: one per layer or projection, one for a model that exposes no layers."""
        model = self.model
        if not isinstance(model, LayeredModel):
            return 1
        projected = sum(model.projects_first(index) for index in range(len(model.layers)))
        return len(model.layers) + projected + (model.projection is not None)

    def needed(self, node_ids: Array) -> NeededNodes | None:
        """Returns the nodes that each layer computes for the logits of some; for a model that exposes no layers, these nodes alone.

        Args:
            node_ids: ids[n], global.

        Returns:
            The nodes; None for none, and from half of the graph's nodes on, for the layers below then need nearly all.
        """
        if not pays(len(node_ids), self.topology.num_nodes):
            return None
        layers = len(self.model.layers) if isinstance(self.model, LayeredModel) else 0
        sampler, bounds = self.bounds.whole(self.topology), self.bounds
        return find_needed(sampler, bounds.ends(self.topology), node_ids, layers, bounds.workspace_bytes // 2)

    def ranges(self, needed: NeededNodes | None = None) -> Iterator[ExactRange]:
        """Yields the logits of the domain's nodes in its order, computed from all neighbours.

        Args:
            needed: the nodes to compute; ranges without any are left out, and rows of other nodes mean nothing. None for all nodes.

        Raises:
            OverBudget: the device has too little memory.
        """
        with self.bounds.device.evaluating():
            yield from self._ranges(needed)

    @torch.no_grad()
    def _ranges(self, needed: NeededNodes | None) -> Iterator[ExactRange]:
        # A user's layers may contain torch modules that have a mode, and layers are called one by one here. Each training pass sets its
        # own.
        self.model.eval()
        if isinstance(self.model, LayeredModel):
            yield from _Layers(self, self.model, needed).ranges()
            return
        assert isinstance(self.model, OwnModule)
        sampler = self.bounds.whole(self.topology, self.model.depth)
        for low, high in self.nodes.ranges(_WHOLE_BATCH, 0, 1, needed):
            if self.nodes.skips(needed, 0, low, high):
                self.bounds.progress.advance(high - low)
                continue
            blocks = sampler.sample(BatchKey(Stream.EVAL, 0, 0), self.nodes.node_ids(low, high), transpose="none")
            x = torch.empty((blocks[0].num_src, self.features.width), dtype=dtype_of(self.model))
            self.features.gather(RowIds(blocks[0].src_ids), x, Ledger())
            yield ExactRange(low=low, high=high, logits=self.model(blocks, x, EVALUATION))
            self.bounds.progress.advance(high - low)

    def _require_ids(self, wanted: Array) -> None:
        if wanted.size and wanted.dtype.kind not in "iu":
            raise InputError(f"node_ids are {wanted.dtype}, not whole numbers", "of a mask give np.flatnonzero(mask)")
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < self.topology.num_nodes:
            count = self.topology.num_nodes
            problem = f"node_ids go from {wanted.min()} to {wanted.max()}, and the graph has {count:,} nodes"
            raise InputError(problem, f"give ids from 0 to {count - 1}")


class _Layers:
    """Exact inference with a model as layers, one pass over the domain after the other."""

    def __init__(self, inference: Inference, model: LayeredModel, needed: NeededNodes | None):
        self.topology, self.features, self.bounds = inference.topology, inference.features, inference.bounds
        self.model, self.nodes, self.needed = model, inference.nodes, needed
        self.sampler, self.ends = self.bounds.whole(self.topology), self.bounds.ends(self.topology)
        # Sets of rows of all nodes that are alive at once; each may take an equal share of half the workspace.
        alive = 2 + 2 * model.jumps + any(model.projects_first(index) for index in range(len(model.layers)))
        self.share = self.bounds.workspace_bytes // (2 * alive)

    def ranges(self) -> Iterator[ExactRange]:
        model = self.model
        rows = self._first_rows()
        carried: Rows | None = None  # the outputs of the layers so far, folded by a head that reads them all
        for index in range(len(model.layers) - 1):
            made = folded = None
            for low, high, out in self._layer(index, rows, carried):
                made = self._written(made, low, out)
                if carried is not None:
                    folded = self._written(folded, low, self._fold(carried, low, high, out))
            assert made is not None
            rows = self.nodes.shared(made)
            if model.jumps:
                carried = folded or made
        for low, high, out in self._layer(len(model.layers) - 1, rows, carried):
            if model.readout is None:
                yield ExactRange(low=low, high=high, logits=out, inputs=rows)
            else:
                read = self._fold(carried, low, high, out)
                with self.bounds.computing():
                    logits = self.bounds.fetched(model.readout(self.bounds.sent(read)))
                yield ExactRange(low=low, high=high, logits=logits, inputs=rows, head_inputs=read)

    def _written(self, made: MemoryRows | SpilledRows | None, low: int, rows: Tensor) -> MemoryRows | SpilledRows:
        """Puts rows at low, low + 1, ... of a layer's place; None makes the place: a file if it exceeds its share and there is a folder."""
        if made is None:
            shape, dtype, folder = (self.nodes.num_nodes, rows.shape[1]), rows.dtype, self.bounds.folder
            fits = shape[0] * shape[1] * dtype.itemsize <= self.share
            made = MemoryRows(*shape, dtype) if fits or folder is None else SpilledRows(*shape, folder, dtype)
        made.write(low, rows)
        return made

    def _first_rows(self) -> Rows:
        """Returns the input rows of the first layer: the features, or their projections, computed range by range."""
        model, rows = self.model, self.nodes.inputs(self.features, self.share, dtype_of(self.model))
        if model.projection is None:
            return rows
        width = model.projection.width
        return self._mapped(0, rows, width, lambda read, ids: model.input(read, ids, EVALUATION))

    def _mapped(self, level: int, rows: Rows, width: int, function: Callable[[Tensor, Array], Tensor]) -> Rows:
        """Returns a function of each row, computed range by range in one pass over all nodes.

        Args:
            level: number of the set of nodes whose rows are read.
            rows: the rows of all nodes.
            width: columns of the results.
            function: (rows of nodes, their ids) -> float[n, width].
        """
        bounds, made = self.bounds, None
        # Input rows with a window's copy, results, and the order in which rows are read.
        cost = rows.dtype.itemsize * (3 * rows.width + 2 * width) + 48
        for low, high in self.nodes.ranges(max(1, bounds.workspace_bytes // 2 // cost), 0, 1, self.needed, level):
            node_ids = self.nodes.node_ids(low, high)
            if not self.nodes.skips(self.needed, level, low, high):
                read = bounds.sent(self._gathered(rows, node_ids, self._wanted(level, node_ids)))
                with bounds.computing():
                    out = bounds.fetched(function(read, node_ids))
                made = self._written(made, low, out)
            bounds.progress.advance(len(node_ids))
        assert made is not None
        return self.nodes.shared(made)

    def _fold(self, carried: Rows | None, low: int, high: int, out: Tensor) -> Tensor:
        """Folds a layer's output for nodes low to high into the folded outputs of the layers below."""
        assert self.model.readout is not None
        return self.model.readout.jump(None if carried is None else carried.read(low, high), out)

    def _layer(self, index: int, rows: Rows, carried: Rows | None) -> Iterator[tuple[int, int, Tensor]]:
        """Computes one layer for all nodes of the domain, range by range."""
        model, bounds, nodes = self.model, self.bounds, self.nodes
        layer: Any = model.layers[index]
        projects = model.projects_first(index)
        costs = _range_costs(model, index, rows.width, 0 if carried is None else carried.width)
        source = rows
        if projects:
            width = layer.projected_width
            source = self._mapped(index, rows, width, lambda read, _: layer.project(read))
        # Other layers may compute with all sources at once, whose number is then part of the rounding.
        partly = layer.cacheable or projects
        for low, high in nodes.ranges(bounds.workspace_bytes // 2, *costs, self.needed, index + 1):
            if nodes.skips(self.needed, index + 1, low, high):
                bounds.progress.advance(high - low)
                continue
            seeds = nodes.node_ids(low, high)
            wanted = self._wanted(index + 1, seeds, edges=True) if partly else None
            block, read = self._read_block(seeds, wanted, source)
            (sent,) = send_blocks((block,), bounds.device, bounds.device.traffic)
            own = self._gathered(rows, seeds, wanted) if projects and layer.reads_own else None
            with bounds.computing():
                out = bounds.fetched(self._forward(index, sent, read, own))
            yield low, high, out
            bounds.progress.advance(high - low)

    def _wanted(self, level: int, node_ids: Array, edges: bool = False) -> Array | None:
        """Returns bool[n], whether each node of a range is in a set; None if at least half are, for then all are computed.

        Args:
            level: number of the set.
            node_ids: ids[n], the nodes of the range.
            edges: whether they are to have less than half of the range's edges, too: rows of sources are held twice for a while.
        """
        if self.needed is None:
            return None
        wanted = self.needed.holds(level, node_ids)
        degrees = self.ends[node_ids + 1] - self.ends[node_ids] if edges else np.ones(len(node_ids), np.int64)
        few = 2 * np.count_nonzero(wanted) < len(wanted) and 2 * degrees[wanted].sum() <= degrees.sum()
        return wanted if few else None

    def _gathered(self, rows: Rows, node_ids: Array, wanted: Array | None) -> Tensor:
        """Returns float[n, width], the rows of nodes; zeros for those that are not wanted."""
        if wanted is None:
            return rows.gather(node_ids, self.bounds.threads)
        places = np.flatnonzero(wanted)
        return _spread_rows(rows.gather(node_ids[places], self.bounds.threads), places, len(node_ids))

    def _read_block(self, seeds: Array, wanted: Array | None, source: Rows) -> tuple[Block, Tensor]:
        """Returns the block of a range and its input rows; nodes that are not wanted have no edges and rows of zeros."""
        nodes = seeds if wanted is None else seeds[wanted]
        (block,) = self.sampler.sample(BatchKey(Stream.EVAL, 0, 0), nodes, transpose="none")
        forget(self.topology.indices)
        read = source.gather(block.src_ids, self.bounds.threads)
        if wanted is not None:
            block, places = spread(block, seeds, wanted)
            read = _spread_rows(read, places, block.num_src)
        attach_weights((block,), self.topology, self.model.edge_weight)
        return block, read

    def _forward(self, index: int, block: Block, read: Tensor, own: Tensor | None) -> Tensor:
        """Computes a layer on the device from input rows, or from projected rows and the destinations' own."""
        model, bounds, sent = self.model, self.bounds, self.bounds.sent(read)
        if not model.projects_first(index):
            return model.forward_layer(index, block, sent, EVALUATION)
        # If products are computed from bfloat16, their results were bfloat16; the values are the same.
        z = sent.to(torch.bfloat16) if bounds.dtype == BF16 else sent
        return model.forward_projected(index, block, z, None if own is None else bounds.sent(own), EVALUATION)


def _spread_rows(rows: Tensor, places: Array, count: int) -> Tensor:
    """Returns float[count, width] of zeros with rows at the places."""
    out = rows.new_zeros((count, rows.shape[1]))
    out[torch.from_numpy(places)] = rows
    return out


def _range_costs(model: LayeredModel, index: int, width: int, carried: int) -> tuple[int, int]:
    """Bytes that an edge and a destination of a range need at most.

    An edge: its local ids in the block and while it is made, its weight, an input row with the order it was read in. In a layer that
    projects first the row is the projected one, with its product with the attention vector, and the attention weights come with it. A
    destination: its aggregate and a few rows as wide as the layer's widest parameter (as a projected row); its own row if the layer reads
    it; its carried row with the pages it is read through, and the newly folded row; logits.
    """
    layer: Any = model.layers[index]
    value = dtype_of(model).itemsize
    if model.projects_first(index):
        projected = layer.projected_width
        widest = max(projected, getattr(layer, "inner_width", 0))
        edge = value * (2 * projected + 6 * getattr(layer, "heads", 0)) + 48
        node = value * (6 * widest + (3 * width + 2 * widest if layer.reads_own else 0)) + edge
    else:
        widest = max((max(parameter.shape) for parameter in layer.parameters() if parameter.dim()), default=1)
        edge = (
            value * (width + getattr(layer, "edge_values", 0))
            + 48
            + (0 if layer.cacheable else 6 * widest * value // 4)
        )
        node = value * width + 4 * value * widest + edge
    if carried:
        node += value * (3 * carried + widest)
    if model.readout is not None and index + 1 == len(model.layers):
        node += 2 * value * model.readout.linear.out_features
    return edge, node
