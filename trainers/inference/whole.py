"""Exact inference of a model of our own layers in the host's memory: sums read their sources where they are.

A layer's sources are all nodes by their ids, so no row is copied before it is added. What does not fit in memory is summed in blocks of
columns (`ColumnRows`). A sum is of one column, so neither the blocks nor the workspace change a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.files.arrays import forget_pages
from graphmill.kernels.types import WholeBlock
from graphmill.trainers.batches.batch import DATA_WEIGHTS, attach_weights
from graphmill.trainers.devices.side_by_side import TileThreads
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.domain import Domain, row_ranges
from graphmill.trainers.inference.gathered import EVALUATION, ExactRange, GatheredLayers
from graphmill.trainers.inference.needed import NeededRows
from graphmill.trainers.inference.spilled import ColumnRows, column_blocks
from graphmill.trainers.inference.windows import WINDOW_BYTES, MemoryRows, Rows, tile_of
from graphmill.trainers.models.attention import attended
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.gat import GatLayer
from graphmill.trainers.models.layers.gcn import PassingLayer
from graphmill.trainers.models.layers.map_first import NARROW, MapsFirst, NarrowGcnLayer, NarrowSageLayer
from graphmill.trainers.models.products import BF16
from graphmill.trainers.recipe.costs.exact import TILE_BYTES, TILE_EDGE_BYTES

KINDS = (GatLayer, PassingLayer, *NARROW, *NARROW.values())
"""Layers that read nothing of a block but its edges, their weights and its sources' rows."""
SHAREABLE = (NarrowGcnLayer, NarrowSageLayer)
"""Layers whose products are those of `map_evaluated` alone, if their residual is not mapped: they have the same bits on any threads."""
OCCUPYING = 4
"""Tiles for each thread up to which they may be too few to occupy all threads to the end."""
NO_MASKS = EVALUATION.layer(0, np.empty(0, np.int32))
Aggregate = Callable[[WholeBlock, Tensor, Any], Tensor]
TileFunction = Callable[[int, int], Tensor]


def sums_in_memory(model: LayeredModel, nodes: Domain, bounds: Bounds) -> bool:
    """Returns whether `WholeLayers` computes a model: in one process, on the host, from every neighbour, by layers of our own."""
    plain = bounds.drawing is None or (bounds.drawing.tables is None and bounds.drawing.most_evaluated is None)
    here = not nodes.shares_rows and bounds.device.holds(nodes.topology.indptr) and bounds.dtype != BF16
    return plain and here and all(type(layer) in KINDS for layer in model.layers)


class WholeLayers(GatheredLayers):
    """Exact inference in tiles of destinations, which threads compute side by side; arguments as of `GatheredLayers`."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.workspace = self.bounds.fitting_workspace([self._num_rows(level) for level in range(len(self.layers) + 1)])
        self.summed_share, self.share = self.workspace // 2, self.workspace // 8
        self._unit = 0  # columns of rows to be made that belong together
        self._walked = 0  # bytes of the topology that were read since its pages were released
        self._threads: TileThreads
        plain = self.model.readout is None and self.model.projection is None
        self._shareable = plain and all(
            isinstance(each, SHAREABLE) and each.finish.skip is None for each in self.layers
        )

    def ranges(self) -> Iterator[ExactRange]:
        """Yields the logits of all nodes, range by range."""
        fitting = max(1, self.workspace // 4 // TILE_BYTES)
        with TileThreads(min(self.bounds.threads, fitting)) as self._threads:
            yield from super().ranges()

    def _computed(
        self, function: Callable[..., Any], tiles: Iterable[tuple[Any, ...]], rows: Any
    ) -> Iterator[tuple[int, int, Any]]:
        """Yields (low, high, the function's result) of each tile, in their order; a tile, or its result, holds no more than its rows.

        Threads share one tile after the other if there are few, and no product that threads would round in other ways.
        """
        tile, row_bytes = tile_of(rows), rows.width * rows.dtype.itemsize
        few = self.nodes.num_nodes <= OCCUPYING * self._threads.number * tile
        if few and self._shareable:
            return super()._computed(function, tiles, rows)
        return self._threads.in_order(function, tiles, tile * row_bytes)

    def _layer(
        self, index: int, rows: Rows, carried: Rows | None, then: Callable[[int, int, Tensor], Any]
    ) -> Iterator[tuple[int, int, Any]]:
        """Computes one layer for all nodes, tile by tile; yields the function's result for its output of each."""
        layer, level = self.layers[index], index + 1
        if isinstance(layer, GatLayer):
            self._unit = layer.depth
            source, left, own = self._split(index, rows, self.summed_share)
            self._unit = 0
            block_of = partial(self._attention, level, layer.depth, source, left, own)
        elif isinstance(layer, MapsFirst):
            source, *terms = self._split(index, rows, self.summed_share)
            own = terms[0] if terms else None
            block_of = partial(self._sum, level, layer.aggregate_projected, source)
        else:
            source = self._in_blocks(index, rows)
            own = source if layer.reads_own else None
            block_of = partial(self._sum, level, layer.aggregate, source)

        def finished(low: int, high: int, agg: Tensor) -> Any:
            masks = EVALUATION.layer(level, np.arange(low, high))
            terms = None if own is None else own.read(low, high)
            if isinstance(layer, GatLayer | MapsFirst):
                out = layer.join(agg, terms, masks)  # pyright: ignore[reportArgumentType]
            else:
                out = layer.update(agg, agg[:, :0] if terms is None else terms, masks)
            return then(low, high, out)

        done = 0
        for low, high, found in self._by_columns(level, source, block_of, finished):
            yield low, high, found
            self.bounds.progress.advance(high - done)
            done = high
        self.bounds.progress.advance(self.nodes.num_nodes - done)

    def _sum(self, level: int, aggregate: Aggregate, source: Any, number: int) -> TileFunction:
        """Loads a block of columns of the source; returns the function that sums it for a tile."""
        values = source.block(number)
        return lambda low, high: _joined(
            [aggregate(block, values, NO_MASKS) for block in self._blocks(level, low, high, source)]
        )

    def _attention(self, level: int, depth: int, z: Any, left: Any, own: Rows, number: int) -> TileFunction:
        """Loads a block of columns of projected rows, with their halves of the scores; returns the function that attends to it.

        Args:
            depth: columns of a head.
            z, left, own: the results of the layer's `split`.
        """
        first, last = z.blocks[number]
        heads = slice(first // depth, -(-last // depth))
        values = z.block(number), left.columns(heads.start, heads.stop)

        def attention(low: int, high: int) -> Tensor:
            right, parts, done = own.read(low, high)[:, heads].contiguous(), [], 0
            for block in self._blocks(level, low, high, z, right.shape[1]):
                parts.append(attended(block, *values, right[done : done + block.num_dst], None, block.weight)[0])
                done += block.num_dst
            return _joined(parts)

        return attention

    def _by_columns(
        self, level: int, source: Any, block_of: Callable[[int], TileFunction], finished: Callable[..., Any]
    ) -> Iterator[tuple[int, int, Any]]:
        """Yields the results for the sums of each tile that is computed, in one pass over the edges for each block of the source's columns.

        Args:
            block_of: function that loads a block, and returns the function (low, high) -> float[high - low, its columns].
            finished: function (low, high, sums) -> result.
        """
        if len(source.blocks) == 1:
            summed = block_of(0)
        else:
            sums = self._made(level, source.width, source.dtype, self.share, source.blocks)
            for number, (first, _) in enumerate(source.blocks):
                part = block_of(number)
                for _ in self._walk(level, source, partial(_write_sums, sums, part, first)):
                    pass
                del part  # it holds its block, and the memory is for one
            summed = sums.read
        yield from self._walk(level, source, lambda low, high: finished(low, high, summed(low, high)))

    def _walk(self, level: int, source: Any, function: Callable[[int, int], Any]) -> Iterator[tuple[int, int, Any]]:
        """Yields (low, high, the function's result) of each tile that is computed; releases the topology's mapped pages now and then."""
        for low, high, found in self._computed(function, self._tiles(level, source, self._done), source):
            yield low, high, found
            self._release(int(self.topology.indptr[high] - self.topology.indptr[low]))

    def _tiles(self, level: int, rows: Rows, start: int = 0) -> Iterator[tuple[int, int]]:
        """Yields the tiles of rows that have a node of a set, from that of `start` on."""
        tile, num_nodes = tile_of(rows), self.nodes.num_nodes
        for low in range(0, num_nodes, tile):
            high = min(low + tile, num_nodes)
            if high > start and not self.nodes.skips(self.needed, level, low, high):
                yield low, high

    def _blocks(self, level: int, low: int, high: int, source: Any, heads: int = 1) -> Iterator[WholeBlock]:
        """Yields the blocks of a tile, several only if its edges exceed their memory; nodes that are not needed have no edges."""
        ends, indices = self.topology.indptr[low : high + 1], self.topology.indices
        weights = self.topology.weights if self.model.edge_weight in DATA_WEIGHTS else None
        budget = self.workspace // 4 // self._threads.number
        wanted = np.ones(high - low, bool) if self.needed is None else self.needed.flags(level, low, high)
        for start, stop in row_ranges(ends, budget, 4 * heads + TILE_EDGE_BYTES, 16):
            first, last = int(ends[start]), int(ends[stop])
            degrees, kept = np.diff(ends[start : stop + 1]).astype(np.int32), wanted[start:stop]
            found, given = np.asarray(indices[first:last]), None if weights is None else np.asarray(weights[first:last])
            if not kept.all():
                edges, degrees = np.repeat(kept, degrees), degrees * kept
                found, given = found[edges], None if given is None else given[edges]
            end = np.cumsum(degrees, dtype=np.int32)
            block = WholeBlock(
                num_dst=stop - start,
                num_src=self.nodes.num_nodes,
                start=end - degrees,
                end=end,
                indices=found.astype(np.int32, copy=False),
                dst_pos=np.arange(low + start, low + stop, dtype=np.int32),
                weight=given,
            )
            attach_weights((block,), self.topology, self.model.edge_weight)
            if isinstance(source, NeededRows):
                block.num_src = source.num_rows
                block.indices = source.places(block.indices).astype(np.int32)
                block.dst_pos = source.places(block.dst_ids).astype(np.int32)
            yield block

    def _release(self, num_edges: int) -> None:
        """Releases the mapped pages of the topology from time to time."""
        self._walked += num_edges * self.topology.indices.itemsize
        if self._walked > WINDOW_BYTES:
            self._walked = 0
            for array in (self.topology.indices, self.topology.weights):
                if array is not None:
                    forget_pages(array)

    def _in_blocks(self, index: int, rows: Rows) -> Any:
        """Returns the input rows of a layer as blocks of columns in memory or in a file."""
        if isinstance(rows, MemoryRows | ColumnRows | NeededRows):
            return rows
        made = self._made(index, rows.width, rows.dtype, self.summed_share)
        for low, high in self._tiles(index, rows):
            made.write(low, self._read(rows, low, high, self._wanted(index, np.arange(low, high))))
        return made

    def _spilled(self, num_rows: int, width: int, folder: Path, dtype: torch.dtype, blocks: Any) -> ColumnRows:
        blocks = blocks or column_blocks(num_rows, width, dtype, self.summed_share, self._unit)
        return ColumnRows(num_rows, width, folder, dtype, blocks)


def _write_sums(sums: Any, summed: TileFunction, first: int, low: int, high: int) -> None:
    """Puts sums of a tile into columns first, first + 1, ... of a set of rows."""
    sums.write(low, summed(low, high), first)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
