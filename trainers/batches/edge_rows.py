"""Feature rows of the edges of a batch: each edge id once, gathered as rows of nodes are.

Both directions of an edge, and an edge that several blocks have, share a row. A source of rows reads the table `[features.edges]` by edge
id, as it reads other tables by node id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.graph.id_set import unique_places
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.types import Array, Block
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.rows.open import open_source
from graphmill.trainers.rows.source import FeatureSource, RowIds

EDGE_FEATURE = "edge_feature"
"""Kind of the bytes of edge rows in a ledger, and the name of their count."""


class EdgeRows:
    """The rows of the edges of a graph, as batches take them.

    Args:
        source: the rows, by edge id.
        dtype: NumPy name of the type of gathered rows.
    """

    def __init__(self, source: FeatureSource, dtype: str):
        self.source, self.dtype, self.width = source, dtype, source.width

    def num_bytes(self, edge_ids: Array | None) -> int:
        """Returns the bytes of gathered rows."""
        return 0 if edge_ids is None else len(edge_ids) * self.width * np.dtype(self.dtype).itemsize

    def gather(
        self, blocks: Sequence[Block], edge_ids: Array, device: Device, ledger: Ledger, pool: BufferPool | None = None
    ) -> None:
        """Gives blocks of a batch the rows of its edges.

        Args:
            blocks: the blocks, whose edges have their places (`place_edges`).
            edge_ids: i64[U], the result of `place_edges`.
            ledger: gets the rows, and the bytes that moved.
            pool: lends memory for the rows on the host; None for new memory.
        """
        rows: Tensor = (
            torch.empty((len(edge_ids), self.width), dtype=getattr(torch, self.dtype))
            if pool is None
            else device.rows(pool, len(edge_ids), self.width, self.dtype)
        )
        moved = Ledger()
        self.source.gather(RowIds(edge_ids), rows, moved)
        ledger.count(f"{EDGE_FEATURE}_rows", 0, len(edge_ids))
        for row in moved.rows()["moves"]:
            sizes = {name: row[name] for name in ("requests", "asked_bytes", "moved_bytes")}
            ledger.move(Line(row["link"], EDGE_FEATURE), **sizes)
        for block in blocks:
            block.edge_rows = rows

    def give(self, blocks: Sequence[Block], device: Device) -> None:
        """Gives blocks that form no batch of a training the rows of their edges; the device books the bytes."""
        self.gather(blocks, place_edges(blocks), device, device.traffic)


def place_edges(blocks: Sequence[Block]) -> Array:
    """Writes the row of each edge among those of a batch to its blocks; returns the edge ids of these rows, i64[U], ascending."""
    found: list[Any] = [block.edge_id for block in blocks]
    edge_ids, places = unique_places(np.concatenate(found))
    done = 0
    for block, own in zip(blocks, found, strict=True):
        block.edge_place = places[done : (done := done + len(own))]
    return edge_ids


def open_edge_rows(stored: FeatureTable, dtype: str, threads: int) -> EdgeRows:
    """Opens the rows of edges: mapped, or read directly if they do not fit into memory.

    Args:
        stored: the table `[features.edges]`.
        dtype: NumPy name of the type of gathered rows.
    """
    return EdgeRows(open_source(stored, "auto", threads), dtype)
