"""Exact inference of a model of our own layers in the host's memory: sums read their sources where they are.

A layer's sources are all nodes by their ids, so no row is copied before it is added. What does not fit in memory is summed in blocks of
columns (`ColumnRows`). A sum is of one column, so neither the blocks nor the workspace change a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.files.arrays import forget_pages
from graphmill.kernels.types import WholeBlock
from graphmill.trainers.batches.batch import DATA_WEIGHTS, attach_weights
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.domain import Domain, row_ranges
from graphmill.trainers.inference.gathered import EVALUATION, GatheredLayers, tile_of
from graphmill.trainers.inference.needed import NeededRows
from graphmill.trainers.inference.spilled import ColumnRows, column_blocks
from graphmill.trainers.inference.windows import WINDOW_BYTES, MemoryRows, Rows
from graphmill.trainers.models.attention import attended
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.gat import GatLayer
from graphmill.trainers.models.layers.map_first import NARROW, MapsFirst
from graphmill.trainers.models.precision import BF16

KINDS = (GatLayer, *NARROW, *NARROW.values())
"""Layers that read nothing of a block but its edges, their weights and its sources' rows."""
NO_MASKS = EVALUATION.layer(0, np.empty(0, np.int32))
Aggregate = Callable[[WholeBlock, Tensor], Tensor]
TileFunction = Callable[[int, int, int], Tensor]
_EDGE_BYTES = 48
"""Bytes of an edge of a block while its source is found among the needed ones, or its weight in a mean."""


def sums_in_memory(model: LayeredModel, nodes: Domain, bounds: Bounds) -> bool:
    """Returns whether `WholeLayers` computes a model: in one process, on the host, from every neighbour, by layers of our own."""
    plain = bounds.drawing is None or (bounds.drawing.tables is None and bounds.drawing.most_evaluated is None)
    here = not nodes.shares_rows and bounds.device.holds(nodes.topology.indptr) and bounds.dtype != BF16
    return plain and here and all(type(layer) in KINDS for layer in model.layers)


class WholeLayers(GatheredLayers):
    """Exact inference in tiles of destinations; arguments as of `GatheredLayers`."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.workspace = self.bounds.fitting_bytes
        self.summed_share, self.share = self.workspace // 2, self.workspace // 8
        self._unit = 0  # columns of rows to be made that belong together
        self._walked = 0  # bytes of the topology that were read since its pages were released

    def _layer(self, index: int, rows: Rows, carried: Rows | None) -> Iterator[tuple[int, int, Tensor]]:
        """Computes one layer for all nodes, tile by tile."""
        layer = self.layers[index]
        if isinstance(layer, GatLayer):
            self._unit = layer.depth
            z, left, own = self._split(index, rows, self.summed_share)
            self._unit = 0
            tiles = self._attended(index, z, left, own)
        elif isinstance(layer, MapsFirst):
            z, *terms = self._split(index, rows, self.summed_share)
            own = terms[0] if terms else None
            tiles = self._summed(index, z, lambda block, values: layer.aggregate_projected(block, values, NO_MASKS))
        else:
            source = self._in_blocks(index, rows)
            own = source if layer.reads_own else None
            tiles = self._summed(index, source, lambda block, values: layer.aggregate(block, values, NO_MASKS))
        done = 0
        for low, high, agg in tiles:
            masks = EVALUATION.layer(index + 1, np.arange(low, high))
            terms = None if own is None else own.read(low, high)
            if isinstance(layer, GatLayer | MapsFirst):
                out = layer.join(agg, terms, masks)  # pyright: ignore[reportArgumentType]
            else:
                out = layer.update(agg, agg[:, :0] if terms is None else terms, masks)
            yield low, high, out
            self.bounds.progress.advance(high - done)
            done = high
        self.bounds.progress.advance(self.nodes.num_nodes - done)

    def _summed(self, index: int, source: Any, aggregate: Aggregate) -> Iterator[tuple[int, int, Tensor]]:
        """Yields the aggregate of each tile, from a source in blocks of columns."""
        return self._by_columns(
            index, source, lambda number: partial(self._tile_sum, aggregate, source, source.block(number))
        )

    def _tile_sum(self, aggregate: Aggregate, source: Any, values: Tensor, level: int, low: int, high: int) -> Tensor:
        return _joined([aggregate(block, values) for block in self._blocks(level, low, high, source)])

    def _attended(self, index: int, z: Any, left: Any, own: Rows) -> Iterator[tuple[int, int, Tensor]]:
        """Yields the attended rows of each tile, from projected rows, their halves of the scores and the own terms of a `split`."""
        layer = self.layers[index]

        def block_of(number: int) -> TileFunction:
            first, last = z.blocks[number]
            heads = slice(first // layer.depth, -(-last // layer.depth))
            values = z.block(number), left.columns(heads.start, heads.stop)
            return partial(self._tile_attention, z, values, own, heads)

        return self._by_columns(index, z, block_of)

    def _tile_attention(
        self, z: Any, values: tuple[Tensor, Tensor], own: Rows, heads: slice, level: int, low: int, high: int
    ) -> Tensor:
        right, parts, done = own.read(low, high)[:, heads].contiguous(), [], 0
        for block in self._blocks(level, low, high, z, right.shape[1]):
            parts.append(attended(block, *values, right[done : done + block.num_dst], None, block.weight)[0])
            done += block.num_dst
        return _joined(parts)

    def _by_columns(
        self, index: int, source: Any, block_of: Callable[[int], TileFunction]
    ) -> Iterator[tuple[int, int, Tensor]]:
        """Yields the sums of each tile that is computed, in one pass over the edges for each block of the source's columns.

        Args:
            index: number of the layer.
            source: the summed rows.
            block_of: function that loads a block, and returns the function (level, low, high) -> float[high - low, its columns].
        """
        level = index + 1
        if len(source.blocks) == 1:
            compute = block_of(0)
            for low, high in self._tiles(level, source, self._done):
                yield low, high, compute(level, low, high)
            return
        sums = self._made(level, source.width, source.dtype, self.share, source.blocks)
        for number, (first, _) in enumerate(source.blocks):
            compute = block_of(number)
            for low, high in self._tiles(level, source, self._done):
                sums.write(low, compute(level, low, high), first)
        for low, high in self._tiles(level, source, self._done):
            yield low, high, sums.read(low, high)

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
        wanted = np.ones(high - low, bool) if self.needed is None else self.needed.flags(level, low, high)
        for start, stop in row_ranges(ends, self.workspace // 4, 4 * heads + _EDGE_BYTES, 16):
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
            self._release(last - first)

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


def _joined(parts: list[Tensor]) -> Tensor:
    """Returns the rows of all parts."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
