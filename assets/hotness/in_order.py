"""Passes over all rows of a graph that lies on disk, for estimates that read each edge in order (kernels/hotness/push.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Progress
from graphmill.assets.hotness.costs import RANKING_FACTS
from graphmill.assets.sampling.edge_windows import EdgeWindows, Window
from graphmill.assets.sampling.passes import window_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels import ranges
from graphmill.kernels.sampling.sample_layer import TopologyRows


class RowPasses:
    """Passes that read each block of the rows once, past the page cache, and compare it with its digest; a context, which closes the files.

    Args:
        inputs: role -> artifact: the graph, and the alias tables of its edges if neighbours are drawn by weight.
        limit: bytes of memory, an eighth of which a window takes at most.
        progress: listener, by which a cancelled run is noticed.
    """

    def __init__(self, inputs: Mapping[str, Artifact], limit: int, progress: Progress):
        tables = inputs.get("sampling_tables")
        self._windows = EdgeWindows(inputs["graph"], (), tables=tables, window_bytes=window_bytes(limit))
        self._progress, self._count = progress, 0

    def __enter__(self) -> RowPasses:
        return self

    def __exit__(self, *_: object) -> None:
        self._windows.close()

    def __call__(self) -> Iterator[TopologyRows]:
        """Makes one pass; yields the rows of all nodes, some at a time, which are overwritten later.

        Raises:
            InputError: a block does not match its digest, or the rows do not follow each other.
        """
        self._count += 1
        for window in self._windows.windows(lambda low, high: np.ones(high - low, bool)):
            self._progress.advance(0)
            yield from _cut(window)

    def facts(self) -> dict[str, Any]:
        """Returns the number of passes and the bytes that they read, for the record of a run."""
        return dict(zip(RANKING_FACTS, (self._count, self._windows.read_bytes), strict=True))


def _cut(window: Window) -> Iterator[TopologyRows]:
    """Yields the rows of a window, of a range of nodes at a time: what is computed of them is as long as they are."""
    rows, step = window.rows, ranges.NODES_AT_ONCE
    for low in range(window.low, window.high, step):
        ends = rows.indptr[low - rows.first_node : min(low + step, window.high) - rows.first_node + 1]
        first = int(ends[0])
        edges = slice(first - rows.first_edge, int(ends[-1]) - rows.first_edge)
        table = None if rows.table is None else rows.table[edges]
        yield TopologyRows(ends, rows.indices[edges], rows.num_nodes, low, first, table=table)
