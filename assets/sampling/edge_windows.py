"""An ascending pass over the rows of a graph that lies on disk: the blocks that hold an asked row, read directly and compared.

A block is 1 MiB of a file, which has a digest of its own. Nodes are taken in ranges; of a range the blocks of `indptr` with an asked node
are read, and by these the blocks of the edge arrays (sources, relations, weights, ids, alias tables) with an edge of an asked row, window
after window. A block without one is left out; a block on the border of two windows is kept, so that a pass reads each touched block once.
While one window is used, the next is on its way. Neither a mapping nor the page cache has a part in it.

Memory: two windows of `window_bytes`, or of the longest asked row if that is longer, 2 MiB more per array, and two ranges of `indptr`.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from graphmill.assets.storage.files.digests import BLOCK_BYTES
from graphmill.assets.storage.files.read_ranges import table_reader
from graphmill.assets.storage.files.verified import require_block, require_size
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.direct_io import DirectFile, PageReader
from graphmill.kernels.sampling.sample_layer import TopologyRows
from graphmill.kernels.types import Array

RANGE_NODES = 1 << 19
"""Nodes whose ends of rows are read at a time: 4 MiB."""
RUN_BLOCKS = 16
"""Blocks that one reader reads at a time."""
READERS = 4
"""Readers that work side by side."""


class Window(NamedTuple):
    """Consecutive nodes of which the asked ones have their rows in memory.

    Attributes:
        low, high: the nodes low to high - 1; rows.first_node may be smaller.
        edges: name of a further edge array -> its values from edge rows.first_edge on.
    """

    low: int
    high: int
    rows: TopologyRows
    edges: Mapping[str, Array]


class EdgeWindows:
    """Passes over the rows of a graph; a context, which closes the files.

    Args:
        graph: the graph's artifact; no array of it is mapped.
        names: arrays of the edges that are read besides `indices`.
        tables: artifact with the alias tables of its edges; None if they are not drawn by weight.
        support: i32[N] of these tables, or None.
        window_bytes: bytes of the edge arrays of one window.

    """

    def __init__(
        self,
        graph: Artifact,
        names: Sequence[str],
        *,
        tables: Artifact | None = None,
        support: Array | None = None,
        window_bytes: int,
    ):
        described = {name: graph.table(name) for name in ("indices", *names)}
        if tables is not None:
            described["table"] = tables.table("table")
        self.num_nodes = graph.files["indptr.npy"]["shape"][0] - 1
        self.support, self._label = support, graph.label
        self.num_edges = described["indices"].num_rows
        self._most_edges = max(1, window_bytes // sum(each.row_bytes for each in described.values()))
        self._blocks = _Blocks(READERS)
        self._ends = _ArrayFile(graph.table("indptr"), self._blocks)
        self._files = {name: _ArrayFile(table, self._blocks) for name, table in described.items()}

    def __enter__(self) -> EdgeWindows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files, and waits for reads in flight."""
        for each in (self._ends, *self._files.values()):
            each.close()
        self._blocks.close()

    @property
    def read_bytes(self) -> int:
        """Bytes of the blocks that were read."""
        return sum(each.read_bytes for each in (self._ends, *self._files.values()))

    @property
    def edge_bytes(self) -> int:
        """Bytes that are read of an edge."""
        return sum(each.table.row_bytes for each in self._files.values())

    def type_of(self, name: str) -> np.dtype:
        """Returns the type of an edge array."""
        return np.dtype(self._files[name].table.dtype)

    def windows(self, asked_in: Callable[[int, int], Array]) -> Iterator[Window]:
        """Makes one pass; a window is overwritten when the one after the next is asked for.

        Args:
            asked_in: function from (low, high) to bool[high - low], whether each of these nodes is asked for.

        Raises:
            InputError: a block does not match its digest, or the rows do not follow each other.
        """
        for each in (self._ends, *self._files.values()):
            each.begin_pass()
        found = self._read(asked_in)
        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(next, found, None)
            while (window := coming.result()) is not None:
                coming = ahead.submit(next, found, None)
                yield window

    def _read(self, asked_in: Callable[[int, int], Array]) -> Iterator[Window]:
        for low in range(0, self.num_nodes, RANGE_NODES):
            high = min(low + RANGE_NODES, self.num_nodes)
            nodes = np.flatnonzero(asked_in(low, high)) + low
            if len(nodes):
                yield from self._read_range(nodes)

    def _read_range(self, nodes: Array) -> Iterator[Window]:
        """Yields the windows of asked nodes i64[n], ascending, of one range."""
        first = int(nodes[0])
        indptr = self._ends.read(first, int(nodes[-1]) + 2, nodes, nodes + 2)
        begins, ends = indptr[nodes - first], indptr[nodes - first + 1]
        sound = (begins <= ends).all() and (ends[:-1] <= begins[1:]).all()
        if not sound or begins[0] < 0 or ends[-1] > self.num_edges:
            problem = f"the rows of {self._label} do not follow each other"
            raise InputError(problem, "run graphmill verify on the graph, then build it again")
        support = None if self.support is None else self.support[first : int(nodes[-1]) + 1]
        low = 0
        while low < len(nodes):
            high = int(np.searchsorted(ends, begins[low] + self._most_edges, "right"))
            high = max(high, low + 1)
            edges = int(begins[low]), int(ends[high - 1])
            read = {name: file.read(*edges, begins[low:high], ends[low:high]) for name, file in self._files.items()}
            rows = TopologyRows(
                indptr,
                read.pop("indices"),
                self.num_nodes,
                first_node=first,
                first_edge=edges[0],
                edge_types=read.get("edge_types"),
                table=read.pop("table", None),
                support=support,
            )
            yield Window(int(nodes[low]), int(nodes[high - 1]) + 1, rows, read)
            low = high


class _Blocks:
    """Reads blocks of files on several threads, each with a reader of its own."""

    def __init__(self, count: int):
        self._pool, self._idle = ThreadPoolExecutor(count), queue.SimpleQueue[PageReader]()
        for _ in range(count):
            self._idle.put(table_reader())

    def open(self, table: FeatureTable) -> DirectFile:
        """Opens the file of a table for all readers."""
        reader = self._idle.get()
        try:
            return reader.open(table.path)
        finally:
            self._idle.put(reader)

    def read(self, file: DirectFile, table: FeatureTable, blocks: Array, base: int, out: Array) -> None:
        """Reads blocks, ascending numbers, to their places in a buffer that begins with block `base`, and compares them."""
        cuts = np.flatnonzero(np.diff(blocks) != 1) + 1
        runs = [
            (int(run[low]), int(run[min(low + RUN_BLOCKS, len(run)) - 1]) + 1)
            for run in np.split(blocks, cuts)
            for low in range(0, len(run), RUN_BLOCKS)
        ]
        list(self._pool.map(lambda run: self._read_run(file, table, run[0], run[1], base, out), runs))

    def _read_run(self, file: DirectFile, table: FeatureTable, first: int, last: int, base: int, out: Array) -> None:
        reader = self._idle.get()
        try:
            start, end = first * BLOCK_BYTES, min(last * BLOCK_BYTES, table.offset + table.num_bytes)
            content, _ = reader.read_chunk(file, start, end - start, out[(first - base) * BLOCK_BYTES :])
        finally:
            self._idle.put(reader)
        assert table.block_digest is not None
        for number in range(first, last):
            place = (number - first) * BLOCK_BYTES
            require_block(table.path, number, content[place : place + BLOCK_BYTES], table.block_digest)

    def close(self) -> None:
        """Waits for reads in flight, and ends the threads."""
        self._pool.shutdown(cancel_futures=True)


class _ArrayFile:
    """One array of an artifact, whose elements are read in ascending ranges; a range stays until the one after the next is read."""

    def __init__(self, table: FeatureTable, blocks: _Blocks):
        self.table, self._blocks = table, blocks
        require_size(table.path, table.offset + table.num_bytes)
        self._file = blocks.open(table)
        self._buffers, self._turn = [aligned_empty(0), aligned_empty(0)], 0
        self._kept_block, self._kept = -1, np.empty(BLOCK_BYTES, np.uint8)
        self.read_bytes = 0

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def begin_pass(self) -> None:
        """Forgets the block that was kept, as the next pass starts from the front."""
        self._kept_block = -1

    def read(self, first: int, last: int, lows: Array, highs: Array) -> Array:
        """Returns elements first to last - 1, dtype[last - first] or with a width; only those of the ranges are read.

        Args:
            lows, highs: i64[n], ascending ranges of elements, low to high - 1 each; some may be empty.
        """
        table, size = self.table, self.table.row_bytes
        base = (table.offset + first * size) // BLOCK_BYTES
        count = -(-(table.offset + last * size) // BLOCK_BYTES) - base
        buffer = self._next_buffer(count * BLOCK_BYTES)
        blocks = _touched(table.offset + lows * size, table.offset + highs * size, base, count)
        if len(blocks):
            self._fill(blocks, base, buffer)
        start = table.offset + first * size - base * BLOCK_BYTES
        values = buffer[start : start + (last - first) * size].view(table.dtype)
        return values if table.width == 1 else values.reshape(last - first, table.width)

    def _fill(self, blocks: Array, base: int, buffer: Array) -> None:
        """Brings blocks into the buffer: the first from the range before, if that ended in it, and the others from the file."""
        last = int(blocks[-1])
        if int(blocks[0]) == self._kept_block:
            place = (self._kept_block - base) * BLOCK_BYTES
            buffer[place : place + BLOCK_BYTES] = self._kept
            blocks = blocks[1:]
        self._blocks.read(self._file, self.table, blocks, base, buffer)
        end = self.table.offset + self.table.num_bytes
        self.read_bytes += int(np.minimum(BLOCK_BYTES, end - blocks * BLOCK_BYTES).sum())
        self._kept_block = last
        self._kept[:] = buffer[(last - base) * BLOCK_BYTES : (last - base + 1) * BLOCK_BYTES]

    def _next_buffer(self, num_bytes: int) -> Array:
        self._turn = 1 - self._turn
        if len(self._buffers[self._turn]) < num_bytes:
            self._buffers[self._turn] = aligned_empty(0)  # the old one is given back first
            self._buffers[self._turn] = aligned_empty(num_bytes)
        return self._buffers[self._turn]


def _touched(begins: Array, ends: Array, base: int, count: int) -> Array:
    """Returns i64[n], ascending, the numbers of the blocks base to base + count - 1 that hold a byte of ranges begins[i] to ends[i] - 1."""
    full = ends > begins
    first = begins[full] // BLOCK_BYTES - base
    last = (ends[full] - 1) // BLOCK_BYTES - base
    steps = np.bincount(first, minlength=count + 1) - np.bincount(last + 1, minlength=count + 1)
    return np.flatnonzero(np.cumsum(steps[:count]) > 0) + base
