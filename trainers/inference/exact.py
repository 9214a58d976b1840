"""Computes a trained model's logits exactly: with all neighbours, layer by layer.

Exact inference computes one layer for all nodes before the next begins, and each layer reads every row once. A layer that narrows its rows
maps them before it sums them (trainers/models/map_first.py): the first pass over the features reads their file in order, and what is summed
is narrow. Its memory is the workspace W:

    W / 2   for what a layer sums: rows of all nodes, or as many of their columns as fit (`ColumnRows`, trainers/inference/windows.py)
    W / 8   for each other set of rows of all nodes that is alive (a layer's inputs and outputs, own terms, folded rows), in files if larger
    W / 4   for rows in work: a tile of nodes is computed at a time (`tile_of`), one tile at least

and the sets of wanted nodes (trainers/inference/needed.py), and the mapped pages of the topology. Products are of whole tiles, whatever the
workspace, the threads and the wanted nodes are: the rounding of a product may depend on its number of rows. So the workspace is also held
to half of the memory that is free when an inference begins.

That is how models of our own layers are computed in the host's memory (trainers/inference/whole.py). Elsewhere, ranges of destinations
gather their sources (`GatheredLayers`): on a device with memory of its own, on several ranks, where neighbours are drawn by weight or by
walks, where edges have relations, and for users' layers. There W / 2 is for one range: input rows of its edges, the layer's intermediates
and its output; the neighbourhood of a single node is never cut, so a node with more than W / 2 bytes of input rows exceeds it.

If mini-batches draw neighbours by weight, all neighbours count by their shares of the weighted mean. If walks choose them, a node has those
that ten times as many paths visit most, the same ones in every layer and at every call.

A projection of the features is a pass of its own before the first layer. A head runs on each range of the last layer. One that reads the
outputs of all layers carries them in folded rows (trainers/models/ends.py), which are made anew with every layer. A user's module over
whole blocks exposes no layers: it gets the whole neighbourhood of a batch at once, and needs memory for all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Array, BatchKey, Block, Stream, Topology
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.batches.send import send_blocks
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.domain import AllNodes, Domain, Piece
from graphmill.trainers.inference.needed import NeededNodes, find_needed, pays, spread
from graphmill.trainers.inference.windows import MemoryRows, Rows, SpilledRows, forget
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.map_first import MapsFirst, mapped_first
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import Model, OwnModule, dtype_of
from graphmill.trainers.models.precision import BF16
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import FeatureSource, RowIds

EVALUATION = StepRandom(0, training=False)
"""Draws nothing: there is no dropout in an evaluation."""
TILE_ROWS, TILE_BYTES = (64, 4096), 8 << 20
"""Least and most rows of a tile, and the bytes of its rows between the two."""
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
        projected = sum(hasattr(layer, "project") for layer in map(mapped_first, model.layers))
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
        return find_needed(sampler, bounds.ends(self.topology), node_ids, layers, bounds.fitting_bytes // 2)

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
            yield from self._layers(self.model, needed).ranges()
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

    def _layers(self, model: LayeredModel, needed: NeededNodes | None) -> GatheredLayers:
        from graphmill.trainers.inference.whole import WholeLayers, sums_in_memory

        kind = WholeLayers if sums_in_memory(self, model) else GatheredLayers
        return kind(self, model, needed)

    def _require_ids(self, wanted: Array) -> None:
        if wanted.size and wanted.dtype.kind not in "iu":
            raise InputError(f"node_ids are {wanted.dtype}, not whole numbers", "of a mask give np.flatnonzero(mask)")
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < self.topology.num_nodes:
            count = self.topology.num_nodes
            problem = f"node_ids go from {wanted.min()} to {wanted.max()}, and the graph has {count:,} nodes"
            raise InputError(problem, f"give ids from 0 to {count - 1}")


class GatheredLayers:
    """Exact inference with a model as layers, one pass over the domain after the other, in ranges that gather their sources.

    Args:
        inference: topology, features, bounds and domain.
        model: the model.
        needed: the nodes to compute, None for all.
    """

    def __init__(self, inference: Inference, model: LayeredModel, needed: NeededNodes | None):
        self.topology, self.features, self.bounds = inference.topology, inference.features, inference.bounds
        self.model, self.nodes, self.needed = model, inference.nodes, needed
        self.workspace = self.bounds.workspace_bytes
        self.layers: list[Any] = [mapped_first(layer) for layer in model.layers]
        # Sets of rows of all nodes that are alive at once; each may take an equal share of half the workspace.
        alive = 2 + 2 * model.jumps + 2 * any(hasattr(layer, "project") for layer in self.layers)
        self.share = self.workspace // (2 * alive)

    def ranges(self) -> Iterator[ExactRange]:
        """Yields the logits of the domain's nodes, range by range."""
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

    def _written(self, made: Any, low: int, rows: Tensor, share: int | None = None) -> Any:
        """Puts rows at low, low + 1, ... of a set of rows; None makes it, of at most `share` bytes of memory (by default the equal one)."""
        made = self._made(rows.shape[1], rows.dtype, share or self.share) if made is None else made
        made.write(low, rows)
        return made

    def _made(self, width: int, dtype: torch.dtype, share: int) -> Any:
        """Returns a set of rows to be written: in a file if it exceeds its share and there is a folder."""
        num_nodes, folder = self.nodes.num_nodes, self.bounds.folder
        if folder is None or num_nodes * width * dtype.itemsize <= share:
            return MemoryRows(torch.empty((num_nodes, width), dtype=dtype))
        return self._spilled(num_nodes, width, folder, dtype)

    def _spilled(self, num_nodes: int, width: int, folder: Path, dtype: torch.dtype) -> Any:
        return SpilledRows(num_nodes, width, folder, dtype)

    def _first_rows(self) -> Rows:
        """Returns the input rows of the first layer: the features, or their projections, computed range by range."""
        model, rows = self.model, self.nodes.inputs(self.features, self.share, dtype_of(self.model))
        if model.projection is None:
            return rows
        width = model.projection.width
        (made,) = self._mapped(0, rows, width, lambda read, ids: (model.input(read, ids, EVALUATION),))
        return self.nodes.shared(made)

    def _mapped(
        self,
        level: int,
        rows: Rows,
        width: int,
        function: Callable[[Tensor, Array], Sequence[Tensor]],
        first_share: int | None = None,
    ) -> list[Any]:
        """Returns functions of each row, computed tile by tile in one pass over all nodes.

        Args:
            level: number of the set of nodes whose rows are read.
            rows: the rows of all nodes.
            width: columns of all results.
            function: (rows of nodes, their ids) -> float[n, columns] of each result.
            first_share: bytes of memory that the first result may take, by default the equal share.
        """
        bounds = self.bounds
        made: list[Any] = []
        # Input rows with a window's copy, results, and the order in which rows are read.
        cost = rows.dtype.itemsize * (3 * rows.width + 2 * width) + 48
        tile = tile_of(rows)
        count = max(1, self.workspace // 4 // cost // tile) * tile
        for low, high in self.nodes.ranges(count, 0, 1, self.needed, level):
            node_ids = self.nodes.node_ids(low, high)
            if not self.nodes.skips(self.needed, level, low, high):
                read = self._read(rows, low, high, self._wanted(level, node_ids))
                for place, part in zip(range(0, max(1, high - low), tile), read.split(tile), strict=True):
                    sent = bounds.sent(part)
                    with bounds.computing():
                        found = function(sent, node_ids[place : place + len(part)])
                    made = made or [None] * len(found)
                    for number, out in enumerate(found):
                        share = None if number else first_share
                        made[number] = self._written(made[number], low + place, bounds.fetched(out), share)
            bounds.progress.advance(len(node_ids))
        assert made
        return made

    def _split(self, index: int, rows: Rows, first_share: int | None = None) -> list[Any]:
        """Returns the rows of a layer's `split` that maps first: projected rows, and the own terms of its nodes if it has any."""
        layer = self.layers[index]
        width = layer.projected_width * (3 if layer.reads_own else 1)
        return self._mapped(
            index, rows, width, lambda read, _: [z for z in layer.split(read) if z is not None], first_share
        )

    def _fold(self, carried: Rows | None, low: int, high: int, out: Tensor) -> Tensor:
        """Folds a layer's output for nodes low to high into the folded outputs of the layers below."""
        assert self.model.readout is not None
        return self.model.readout.jump(None if carried is None else carried.read(low, high), out)

    def _layer(self, index: int, rows: Rows, carried: Rows | None) -> Iterator[tuple[int, int, Tensor]]:
        """Computes one layer for all nodes of the domain, range by range."""
        bounds, nodes, layer = self.bounds, self.nodes, self.layers[index]
        sampler, ends = bounds.whole(self.topology), bounds.ends(self.topology)
        projects = hasattr(layer, "project")
        costs = _range_costs(self.model, layer, index, rows.width, 0 if carried is None else carried.width)
        own: Rows | None = None
        source = rows
        if isinstance(layer, MapsFirst):
            mapped, *kept = self._split(index, rows)
            source, own = nodes.shared(mapped), kept[0] if kept else None
        elif projects:
            (mapped,) = self._mapped(index, rows, layer.projected_width, lambda read, _: (layer.project(read),))
            source, own = nodes.shared(mapped), rows if layer.reads_own else None
        # Other layers may compute with all sources at once, whose number is then part of the rounding.
        partly = layer.cacheable or projects
        for low, high in nodes.ranges(self.workspace // 2, *costs, self.needed, index + 1):
            if nodes.skips(self.needed, index + 1, low, high):
                bounds.progress.advance(high - low)
                continue
            seeds = nodes.node_ids(low, high)
            wanted = self._wanted(index + 1, seeds, ends) if partly else None
            block, read = self._read_block(sampler, seeds, wanted, source)
            (sent,) = send_blocks((block,), bounds.device, bounds.device.traffic)
            terms = None if own is None else own.read(low, high)
            with bounds.computing():
                out = bounds.fetched(self._forward(index, sent, read, terms))
            yield low, high, out
            bounds.progress.advance(high - low)

    def _wanted(self, level: int, node_ids: Array, ends: Array | None = None) -> Array | None:
        """Returns bool[n], whether each node of a range is in a set; None if at least half are, for then all are computed.

        Args:
            level: number of the set.
            node_ids: ids[n], the nodes of the range.
            ends: i64[N+1] if they are to have less than half of the range's edges, too: rows of sources are held twice for a while.
        """
        if self.needed is None:
            return None
        wanted = self.needed.holds(level, node_ids)
        degrees = np.ones(len(node_ids), np.int64) if ends is None else ends[node_ids + 1] - ends[node_ids]
        few = 2 * np.count_nonzero(wanted) < len(wanted) and 2 * degrees[wanted].sum() <= degrees.sum()
        return wanted if few else None

    def _read(self, rows: Rows, low: int, high: int, wanted: Array | None) -> Tensor:
        """Returns float[high - low, width], rows of the domain's nodes; zeros for those that are not wanted, if that reads fewer rows."""
        if wanted is None or not isinstance(
            self.nodes, AllNodes
        ):  # several processes gather together, and each reads its own rows
            return rows.read(low, high)
        places = np.flatnonzero(wanted)
        found = rows.gather(self.nodes.node_ids(low, high)[places], self.bounds.threads)
        return _spread_rows(found, places, high - low)

    def _read_block(self, sampler: Sampler, seeds: Array, wanted: Array | None, source: Rows) -> tuple[Block, Tensor]:
        """Returns the block of a range and its input rows; nodes that are not wanted have no edges and rows of zeros."""
        nodes = seeds if wanted is None else seeds[wanted]
        (block,) = sampler.sample(BatchKey(Stream.EVAL, 0, 0), nodes, transpose="none")
        forget(self.topology.indices)
        read = source.gather(block.src_ids, self.bounds.threads)
        if wanted is not None:
            block, places = spread(block, seeds, wanted)
            read = _spread_rows(read, places, block.num_src)
        attach_weights((block,), self.topology, self.model.edge_weight)
        return block, read

    def _forward(self, index: int, block: Block, read: Tensor, own: Tensor | None) -> Tensor:
        """Computes a layer on the device from input rows, or from projected rows and what the destinations' own rows give."""
        bounds, layer, sent = self.bounds, self.layers[index], self.bounds.sent(read)
        if not hasattr(layer, "project"):
            return self.model.forward_layer(index, block, sent, EVALUATION)
        # If products are computed from bfloat16, their results were bfloat16; the values are the same.
        z = sent.to(torch.bfloat16) if bounds.dtype == BF16 else sent
        masks = EVALUATION.layer(index + 1, block.dst_ids)
        agg, terms = layer.aggregate_projected(block, z, masks), None if own is None else bounds.sent(own)
        if isinstance(layer, MapsFirst):
            return layer.join(agg, terms, masks)
        return layer.update(agg, agg[:, :0] if terms is None else terms, masks)


def tile_of(rows: Rows) -> int:
    """Returns the number of nodes that are computed at a time from their rows, a power of two: it depends on the rows' width alone."""
    least, most = TILE_ROWS
    fitting = max(1, TILE_BYTES // max(1, rows.width * rows.dtype.itemsize))
    return min(most, max(least, 1 << (fitting.bit_length() - 1)))


def _spread_rows(rows: Tensor, places: Array, count: int) -> Tensor:
    """Returns float[count, width] of zeros with rows at the places."""
    out = rows.new_zeros((count, rows.shape[1]))
    out[torch.from_numpy(places)] = rows
    return out


def _range_costs(model: LayeredModel, layer: Any, index: int, width: int, carried: int) -> tuple[int, int]:
    """Bytes that an edge and a destination of a range need at most.

    An edge: its local ids in the block and while it is made, its weight, an input row with the order it was read in. In a layer that
    projects first the row is the projected one, with its product with the attention vector, and the attention weights come with it. A
    destination: its aggregate and a few rows as wide as the layer's widest parameter (as a projected row); its own row if the layer reads
    it; its carried row with the pages it is read through, and the newly folded row; logits.
    """
    value = dtype_of(model).itemsize
    if hasattr(layer, "project"):
        projected = layer.projected_width
        widest = max(projected, getattr(layer, "inner_width", 0))
        edge = value * (2 * projected + 6 * getattr(layer, "heads", 0)) + 48
        own = 0 if not layer.reads_own else 2 * projected if isinstance(layer, MapsFirst) else width
        node = value * (6 * widest + 3 * own + (2 * widest if own else 0)) + edge
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
