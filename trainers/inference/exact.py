"""Computes a trained model's logits exactly: with all neighbours, layer by layer.

Exact inference computes one layer for all nodes before the next begins, and each layer reads every row once. A layer that narrows its rows
maps them before it sums them (trainers/models/map_first.py): the first pass over the features reads their file in order, and what is summed
is narrow. Its memory is the workspace W:

    W / 2   for what a layer sums: rows of all sources, or as many of their columns as fit (`ColumnRows`, trainers/inference/spilled.py)
    W / 8   for each other set of rows that is alive (a layer's inputs and outputs, own terms, folded rows), in files if larger
    W / 4   for rows in work: each thread computes a tile of nodes at a time (`tile_of`), one of them at least

and the sets of needed nodes, which alone have rows (trainers/inference/needed.py), and the mapped pages of the topology. Products are of
whole tiles (trainers/devices/side_by_side.py), whatever the workspace, the threads and the wanted nodes are: the rounding of a product may
depend on its number of rows. So an evaluation takes the largest workspace with which it fits the memory that is free when it begins
(trainers/recipe/costs/exact.py), and a prediction at most half of that memory.

That is how models of our own layers are computed in the host's memory (trainers/inference/whole.py). Elsewhere, ranges of destinations
gather their sources (`GatheredLayers`): on a device with memory of its own, on several ranks, where neighbours are drawn by weight or by
walks, where edges have relations, and for users' layers. There W / 2 is for one range: input rows of its edges, the layer's intermediates
and its output; the neighbourhood of a single node is never cut, so a node with more than W / 2 bytes of input rows exceeds it.

If mini-batches draw neighbours by weight, all neighbours count by their shares of the weighted mean. If walks choose them, a node has those
that ten times as many paths visit most, the same ones in every layer and at every call.

A projection of the features is a pass of its own before the first layer. A head runs on each range of the last layer. One that reads the
outputs of all layers carries them in folded rows (trainers/models/ends.py), which are made anew with every layer. A user's module over
whole blocks exposes no layers: it gets the whole neighbourhood of a batch at once, and needs memory for all of it. One that takes a graph
gets the whole graph if its messages fit in W.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, BatchKey, Stream, Topology
from graphmill.trainers.batches.batch import send_blocks
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.domain import Domain, Piece
from graphmill.trainers.inference.gathered import EVALUATION, ExactRange, GatheredLayers
from graphmill.trainers.inference.kept import KeptBatches
from graphmill.trainers.inference.needed import NeededNodes, find_needed, pays
from graphmill.trainers.inference.spilled import file_rows
from graphmill.trainers.inference.whole import WholeLayers, sums_in_memory
from graphmill.trainers.inference.windows import empty_rows
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.map_first import mapped_first
from graphmill.trainers.models.links.rows import RowsAlone
from graphmill.trainers.models.own import Model, OwnModule, dtype_of
from graphmill.trainers.recipe.costs.exact import RESULT_SHARE
from graphmill.trainers.rows.source import FeatureSource, RowIds

_WHOLE_BATCH = 1024
EDGE_ID_BYTES = 8
"""Bytes of an end of an edge, as modules read it."""


class Inference:
    """Computes logits of a model.

    Args:
        model: the model, on the device of the bounds.
        features: the rows of its nodes, or of this process's nodes.
        domain: the nodes that this process computes; None for all of them.
    """

    def __init__(
        self, model: Model, topology: Topology, features: FeatureSource, bounds: Bounds, domain: Domain | None = None
    ):
        self.model, self.topology, self.features, self.bounds = model, topology, features, bounds
        self.nodes = domain or Domain(topology, bounds.ends(topology))

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
        # Of one type with the places that are searched in it: else each search would convert all of them.
        ascending, progress = wanted[order].astype(np.int64, copy=False), self.bounds.progress
        needed = known or self.needed(ascending)

        def pieces() -> Iterator[Piece]:
            for each in self.ranges(needed):
                positions, rows = self.nodes.wanted(ascending, each.low, each.high)
                # By NumPy, on this thread alone: those of torch's operations would wait for more on the cores that compute tiles.
                yield Piece(order[positions], torch.from_numpy(each.logits.numpy()[rows]))

        progress.start("evaluate", self.num_passes * self.nodes.num_nodes, "rows")
        of_links = getattr(self.model, "link_head", None) is not None
        logits = self.nodes.collected(pieces(), len(wanted), self._made if of_links else empty_rows)
        progress.done()
        return logits

    def _made(self, num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """Returns rows of a result for links, which are those of all nodes: in a file if memory is short."""
        num_bytes, folder, free = num_rows * width * dtype.itemsize, self.bounds.folder, free_bytes()
        fits = num_bytes <= self.bounds.workspace_bytes // RESULT_SHARE or free is None or 2 * num_bytes <= free
        return (
            empty_rows(num_rows, width, dtype) if folder is None or fits else file_rows(num_rows, width, dtype, folder)
        )

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
        if isinstance(self.model, RowsAlone):
            for low, high in self.nodes.ranges(_WHOLE_BATCH, 0, 1, needed):
                yield ExactRange(low=low, high=high, logits=self.model.rows(self.nodes.node_ids(low, high)))
            return
        assert isinstance(self.model, OwnModule)
        at_once = self.topology.num_nodes if self._fits_whole(self.model) else _WHOLE_BATCH
        ranges = self.nodes.ranges(at_once, 0, 1, needed)
        ranges = [each for each in ranges if not self.nodes.skips(needed, 0, *each)]
        sizes = [high - low for low, high in ranges]
        self.bounds.progress.advance(self.nodes.num_nodes - sum(sizes))
        kept = KeptBatches(self.bounds.kept, "logits", sizes)
        done = self.nodes.least(kept.done)
        computed = chain(kept.restored(done), self._whole_batches(self.model, ranges[done:], kept))
        for (low, high), logits in zip(ranges, computed, strict=True):
            yield ExactRange(low=low, high=high, logits=logits)
            self.bounds.progress.advance(high - low)

    def _whole_batches(
        self, model: OwnModule, ranges: Sequence[tuple[int, int]], kept: KeptBatches
    ) -> Iterator[Tensor]:
        """Yields float[high - low, num_classes], the logits of each range by a module that gets the whole neighbourhood at once."""
        # Of all nodes one block has all edges.
        at_once = model.takes_graph and [*ranges] == [(0, self.topology.num_nodes)]
        sampler, device = self.bounds.whole(self.topology, 1 if at_once else model.hops), self.bounds.device
        for low, high in ranges:
            drawn = self.bounds.sampled(sampler, BatchKey(Stream.EVAL, 0, 0), self.nodes.node_ids(low, high))
            self.bounds.give_edges(drawn)
            x = torch.empty((drawn[0].num_src, self.features.width), dtype=dtype_of(model), device=device.torch_device)
            self.features.gather(RowIds(drawn[0].src_ids), x, device.traffic)
            logits = self.bounds.fetched(model(send_blocks(drawn, device, device.traffic), x, EVALUATION))
            kept.add(logits)
            yield logits

    def _fits_whole(self, model: OwnModule) -> bool:
        """Tells whether a module that takes a graph gets all of it at once: each layer's messages fit in the workspace, a row per edge."""
        rows = self.topology.num_nodes + self.topology.num_edges
        width = self.features.width + (0 if self.bounds.edge_rows is None else self.bounds.edge_rows.width)
        num_bytes = rows * (width * dtype_of(model).itemsize + 2 * EDGE_ID_BYTES)
        return model.takes_graph and num_bytes <= self.bounds.fitting_bytes

    def _layers(self, model: LayeredModel, needed: NeededNodes | None) -> GatheredLayers:
        kind = WholeLayers if sums_in_memory(model, self.nodes, self.bounds) else GatheredLayers
        return kind(model, self.nodes, self.features, self.bounds, needed)

    def _require_ids(self, wanted: Array) -> None:
        if wanted.size and wanted.dtype.kind not in "iu":
            raise InputError(f"node_ids are {wanted.dtype}, not whole numbers", "of a mask give np.flatnonzero(mask)")
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < self.topology.num_nodes:
            count = self.topology.num_nodes
            problem = f"node_ids go from {wanted.min()} to {wanted.max()}, and the graph has {count:,} nodes"
            raise InputError(problem, f"give ids from 0 to {count - 1}")
