"""Exact inference by ranges of destinations that gather their sources (trainers/inference/exact.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.files.arrays import forget_pages
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Array, BatchKey, Block, Stream
from graphmill.trainers.batches.batch import attach_weights, send_blocks
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.domain import Domain
from graphmill.trainers.inference.needed import NeededNodes, NeededRows, spread, spread_rows
from graphmill.trainers.inference.spilled import SpilledRows
from graphmill.trainers.inference.windows import MemoryRows, Rows, empty_rows, tile_of
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.map_first import MapsFirst, mapped_first
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import dtype_of
from graphmill.trainers.models.products import BF16
from graphmill.trainers.rows.source import FeatureSource

EVALUATION = StepRandom(0, training=False)
"""Draws nothing: there is no dropout in an evaluation."""


@dataclass(frozen=True, kw_only=True)
class ExactRange:
    """The result for nodes low to high of a domain; for all nodes these are node ids."""

    # Places in the domain.
    low: int
    high: int
    # float[high - low, num_classes].
    logits: Tensor
    # The input rows of the last layer, of the domain's nodes and of others; None if the model exposes no layers.
    inputs: Rows | None = None
    # The input rows of a linear head, float[high - low, H]; None if the model has none.
    head_inputs: Tensor | None = None

    def embeddings(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, H], the inputs of the last map to the logits, of nodes low to high; without layers the logits."""
        if self.head_inputs is None and self.inputs is not None:
            return self.inputs.read(low, high)
        rows = self.logits if self.head_inputs is None else self.head_inputs
        return rows[low - self.low : high - self.low]


class GatheredLayers:
    """Exact inference with a model as layers, one pass over the domain after the other, in ranges that gather their sources.

    Args:
        needed: the nodes to compute, None for all.
    """

    def __init__(
        self, model: LayeredModel, nodes: Domain, features: FeatureSource, bounds: Bounds, needed: NeededNodes | None
    ):
        self.topology, self.features, self.bounds = nodes.topology, features, bounds
        self.model, self.nodes, self.needed = model, nodes, needed
        self.workspace = self.bounds.workspace_bytes
        self.layers: list[Any] = [mapped_first(layer) for layer in model.layers]
        # Sets of rows of all nodes that are alive at once; each may take an equal share of half the workspace.
        alive = 2 + 2 * model.jumps + 2 * any(hasattr(layer, "project") for layer in self.layers)
        self.share = self.workspace // (2 * alive)
        self._done = 0  # the node up to which the outputs of the layer at hand are known

    def ranges(self) -> Iterator[ExactRange]:
        """Yields the logits of the domain's nodes, range by range."""
        model, last = self.model, len(self.model.layers) - 1
        first = next((level for level in range(last, 0, -1) if self._is_kept(level)), 0)
        rows: Any = None if first else self._first_rows()
        carried: Rows | None = None  # the outputs of the layers so far, folded by a head that reads them all
        for level in range(max(1, first), last + 1):
            # A head that reads all outputs gets the first one unfolded.
            names, levels = _outputs(level)[: 1 + (model.jumps and level > 1)], (level, level)
            made, self._done = self._restored(names, levels)
            if level > first:
                for low, high, left in self._layer(level - 1, rows, carried, partial(self._store, made, carried)):
                    self._make(made, levels, low, left)
                    self._keep(names, levels, made, high)
            self._keep(names, levels, made, self.nodes.num_nodes, alone=True)
            assert made[0] is not None
            rows = self.nodes.shared(made[0])
            if model.jumps:
                carried = made[-1]
        self._done = 0
        for low, high, (logits, read) in self._layer(last, rows, carried, partial(self._logits, carried)):
            yield ExactRange(low=low, high=high, logits=logits, inputs=rows, head_inputs=read)

    def _store(self, made: list[Any], carried: Rows | None, low: int, high: int, out: Tensor) -> Sequence[Tensor]:
        """Puts a layer's output for nodes low to high, also folded into those of the layers below, into sets of rows, as `_put` does."""
        return _put(made, low, [out] if carried is None else [out, self._fold(carried, low, high, out)])

    def _logits(self, carried: Rows | None, low: int, high: int, out: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns the logits of nodes low to high from the last layer's output, and the input of the head if there is one."""
        if self.model.readout is None:
            return out, None
        read = self._fold(carried, low, high, out)
        with self.bounds.computing():
            return self.bounds.fetched(self.model.readout(self.bounds.sent(read))), read

    def _is_kept(self, level: int) -> bool:
        """Returns whether all outputs of a layer are kept, that of number `level - 1`, by all processes."""
        kept, names = self.bounds.kept, _outputs(level)[: 1 + (self.model.jumps and level > 1)]
        return kept is not None and bool(
            self.nodes.least(all(kept.rows_of(name) == self._num_rows(level) for name in names))
        )

    def _restored(
        self, names: Sequence[str], levels: Sequence[int], first_share: int | None = None
    ) -> tuple[list[Any], int]:
        """Returns the sets of rows that are kept, None for others, and the node up to which all of them are; 0 without any."""
        kept, found, done = self.bounds.kept, list[Any](), self.nodes.num_nodes
        for name, level in zip(names, levels, strict=False):
            made = None
            for first, node, rows in () if kept is None else kept.windows(name):
                if made is None:
                    share = first_share if first_share and not found else self.share
                    made = self._made(level, rows.shape[1], rows.dtype, share)
                _held(made).write(first, rows)
                last = node
            found.append(made)
            done = done if made is None else min(done, last)
        return found, done if any(found) else 0

    def _keep(
        self, names: Sequence[str], levels: Sequence[int], made: Sequence[Any], node: int, alone: bool = False
    ) -> None:
        """Tells how far sets of rows are computed; they are kept if it is time. If they stand alone, no other set is read any more."""
        kept = self.bounds.kept
        if kept is None:
            return
        if alone:
            kept.live.clear()
        for name, level, rows in zip(names, levels, made, strict=False):
            if rows is not None:
                computed = self._num_rows(level)
                if node < self.nodes.num_nodes:
                    every = self.needed is None or self.nodes.shares_rows
                    computed = node if every else int(self.needed.places(level, np.array([node]))[0])  # pyright: ignore
                kept.live[name] = _held(rows), computed, node
        kept.save_if_due()

    def _num_rows(self, level: int) -> int:
        """Returns the number of rows of a set: those of its needed nodes, or of all nodes of the domain."""
        return self.nodes.num_nodes if self.needed is None or self.nodes.shares_rows else self.needed.num_nodes[level]

    def _make(
        self, made: list[Any], levels: Sequence[int], low: int, left: Sequence[Tensor], first_share: int | None = None
    ) -> None:
        """Puts the rows that `_put` left into sets of rows, which are made first: each of at most its share of bytes in memory.

        A set may be large, and glibc maps a large block anew each time unless the main thread asks for it.
        """
        for number, rows in enumerate(left):
            if made[number] is None:
                share = self.share if number or first_share is None else first_share
                made[number] = self._made(levels[number], rows.shape[1], rows.dtype, share)
            made[number].write(low, rows)

    def _made(self, level: int, width: int, dtype: torch.dtype, share: int, blocks: Any = None) -> Any:
        """Returns a set of rows to be written, of the nodes of a set: in a file if it exceeds its share and there is a folder."""
        needed = None if self.nodes.shares_rows else self.needed
        num_rows, folder = self._num_rows(level), self.bounds.folder
        if folder is None or num_rows * width * dtype.itemsize <= share:
            made = MemoryRows(empty_rows(num_rows, width, dtype))
        else:
            made = self._spilled(num_rows, width, folder, dtype, blocks)
        return made if needed is None else NeededRows(made, needed, level)

    def _spilled(self, num_rows: int, width: int, folder: Path, dtype: torch.dtype, blocks: Any) -> Any:
        return SpilledRows(num_rows, width, folder, dtype)

    def _first_rows(self) -> Rows:
        """Returns the input rows of the first layer: the features, or their projections, computed range by range."""
        model, rows = self.model, self.nodes.inputs(self.features, self.share, dtype_of(self.model))
        if model.projection is None:
            return rows
        (made,) = self._mapped(0, rows, lambda read, ids: (model.input(read, ids, EVALUATION),), (0,), ("rows 0",))
        return self.nodes.shared(made)

    def _mapped(
        self,
        level: int,
        rows: Rows,
        function: Callable[[Tensor, Array], Sequence[Tensor]],
        levels: Sequence[int],
        names: Sequence[str],
        first_share: int | None = None,
    ) -> list[Any]:
        """Returns functions of each row, computed tile by tile in one pass over all nodes.

        Args:
            level: number of the set of nodes whose rows are read.
            function: (rows of nodes, their ids) -> float[n, columns] of each result.
            levels, names: number of the set of nodes for which each result is computed, and its name where it is kept.
            first_share: bytes of memory that the first result may take, by default the equal share.
        """
        bounds, passed = self.bounds, 0
        made, done = self._restored(names, levels, first_share)

        def tiles() -> Iterator[tuple[int, int, Array, Tensor]]:
            for low, high in self.nodes.ranges(tile_of(rows), 0, 1, self.needed, level):
                if (high > done or not any(made)) and not self.nodes.skips(self.needed, level, low, high):
                    node_ids = self.nodes.node_ids(low, high)
                    yield low, high, node_ids, self._read(rows, low, high, self._wanted(level, node_ids))

        def mapped(low: int, high: int, node_ids: Array, read: Tensor) -> Sequence[Tensor]:
            sent = bounds.sent(read)
            with bounds.computing():
                return _put(made, low, [bounds.fetched(out) for out in function(sent, node_ids)])

        for low, high, left in self._computed(mapped, tiles(), rows):
            self._make(made, levels, low, left, first_share)
            self._keep(names, levels, made, high)
            bounds.progress.advance(high - passed)
            passed = high
        bounds.progress.advance(self.nodes.num_nodes - passed)
        self._keep(names, levels, made, self.nodes.num_nodes)
        return [each for each in made if each is not None]

    def _computed(
        self, function: Callable[..., Any], tiles: Iterable[tuple[Any, ...]], rows: Any
    ) -> Iterator[tuple[int, int, Any]]:
        """Yields (low, high, the function's result) of each tile of rows."""
        for tile in tiles:
            yield tile[0], tile[1], function(*tile)

    def _split(self, index: int, rows: Rows, first_share: int | None = None) -> list[Any]:
        """Returns the rows of a layer's `split` that maps first: projected rows, and the own terms of its nodes if it has any."""
        layer, of_sources = self.layers[index], 1 if isinstance(self.layers[index], MapsFirst) else 2

        def function(read: Tensor, _: Array) -> list[Tensor]:
            return [rows for rows in layer.split(read) if rows is not None]

        names = [f"split {index} {number}" for number in range(3)]
        return self._mapped(index, rows, function, (*[index] * of_sources, index + 1), names, first_share)

    def _fold(self, carried: Rows | None, low: int, high: int, out: Tensor) -> Tensor:
        """Folds a layer's output for nodes low to high into the folded outputs of the layers below."""
        assert self.model.readout is not None
        return self.model.readout.jump(None if carried is None else carried.read(low, high), out)

    def _layer(
        self, index: int, rows: Rows, carried: Rows | None, then: Callable[[int, int, Tensor], Any]
    ) -> Iterator[tuple[int, int, Any]]:
        """Computes one layer for all nodes of the domain, range by range; yields what a function makes of its output for each."""
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
            names = (f"split {index} 0",)
            (mapped,) = self._mapped(index, rows, lambda read, _: (layer.project(read),), (index,), names)
            source, own = nodes.shared(mapped), rows if layer.reads_own else None
        # Other layers may compute with all sources at once, whose number is then part of the rounding.
        partly = layer.cacheable or projects
        ranges = list(nodes.ranges(self.workspace // 2, *costs, self.needed, index + 1))
        kept_ranges = self._kept_ranges(ranges)
        for number, (low, high) in enumerate(ranges):
            if number < kept_ranges or nodes.skips(self.needed, index + 1, low, high):
                bounds.progress.advance(high - low)
                continue
            seeds = nodes.node_ids(low, high)
            wanted = self._wanted(index + 1, seeds, ends) if partly else None
            block, read = self._read_block(sampler, seeds, wanted, source)
            (sent,) = send_blocks((block,), bounds.device, bounds.device.traffic)
            terms = None if own is None else own.read(low, high)
            with bounds.computing():
                out = bounds.fetched(self._forward(index, sent, read, terms))
            yield low, high, then(low, high, out)
            bounds.progress.advance(high - low)

    def _kept_ranges(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Returns how many ranges all processes have kept: those that exchange rows in each range go on with the same one."""
        if self.bounds.kept is None:
            return 0
        own = next((number for number, (_, high) in enumerate(ranges) if high > self._done), len(ranges))
        return self.nodes.least(min(own, len(ranges) - 1))  # one range at least makes the rows

    def _wanted(self, level: int, node_ids: Array, ends: Array | None = None) -> Array | None:
        """Returns bool[n], whether each node of a range is in a set; None if at least half are, for then all are computed.

        Args:
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
        # Processes gather together, and each reads its own rows.
        if wanted is None or self.nodes.shares_rows or isinstance(rows, NeededRows):
            return rows.read(low, high)
        places = np.flatnonzero(wanted)
        found = rows.gather(self.nodes.node_ids(low, high)[places], self.bounds.threads)
        return spread_rows(found, places, high - low)

    def _read_block(self, sampler: Sampler, seeds: Array, wanted: Array | None, source: Rows) -> tuple[Block, Tensor]:
        """Returns the block of a range and its input rows; nodes that are not wanted have no edges and rows of zeros."""
        nodes = seeds if wanted is None else seeds[wanted]
        (block,) = self.bounds.sampled(sampler, BatchKey(Stream.EVAL, 0, 0), nodes)
        forget_pages(self.topology.indices)
        read = source.gather(block.src_ids, self.bounds.threads)
        if wanted is not None:
            block, places = spread(block, seeds, wanted)
            read = spread_rows(read, places, block.num_src)
        attach_weights((block,), self.topology, self.model.edge_weight)
        self.bounds.give_edges((block,))
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


def _outputs(level: int) -> tuple[str, str]:
    """Returns the names of a layer's outputs where they are kept: the rows, and those folded into the outputs of the layers below."""
    return f"rows {level}", f"folded {level}"


def _put(made: Sequence[Any], low: int, rows: Sequence[Tensor]) -> Sequence[Tensor]:
    """Puts rows at low, low + 1, ... of a set each; returns them if one of the sets is not made yet, else none."""
    if any(each is None for each in made[: len(rows)]):
        return rows
    for each, out in zip(made, rows, strict=False):
        each.write(low, out)
    return ()


def _held(rows: Any) -> Any:
    """Returns the rows that are in memory or in a file."""
    return rows.held if isinstance(rows, NeededRows) else rows


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
        edge = value * (2 * projected + 6 * getattr(layer, "heads", 0) + getattr(layer, "edge_values", 0)) + 48
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
