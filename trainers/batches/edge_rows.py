"""Feature rows of the edges of a batch: each edge id once, gathered as rows of nodes are.

Both directions of an edge, and an edge that several blocks have, share a row. A source of rows reads the table `[features.edges]` by edge
id, as it reads other tables by node id. Rows of stored batches may be packed, as rows of nodes are: they are staged by batch then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.kernels.graph.id_set import unique_places
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.types import Array, BatchKey, Block
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.record.ledger import EDGE_FEATURE, Ledger
from graphmill.trainers.rows.open import open_source
from graphmill.trainers.rows.source import FeatureSource, RowIds, TableSource


class EdgeRows:
    """The rows of the edges of a graph, as batches take them.

    Args:
        source: its rows, by edge id.
        dtype: NumPy name of the type of gathered rows.

    Attributes:
        packed: the rows of stored batches, from packed chunks; None if batches read the table.
    """

    def __init__(self, table: FeatureTable, source: TableSource, dtype: str):
        self.table, self.source, self.dtype, self.width = table, source, dtype, source.width
        self.packed: FeatureSource | None = None

    @property
    def at_hand(self) -> bool:
        """Whether rows come without a wait, since the table fits into memory."""
        return self.source.in_place and fits_memory(self.table.num_bytes)

    def unpacked(self) -> EdgeRows:
        """Returns the rows as batches take them that are not stored: from the table."""
        return EdgeRows(self.table, self.source, self.dtype)

    def num_bytes(self, count: int) -> int:
        """Returns the bytes of a number of gathered rows."""
        return count * self.width * np.dtype(self.dtype).itemsize

    def staged_bytes(self, key: BatchKey) -> int:
        """Returns the bytes that the result of `stage` takes for a batch."""
        return 0 if self.packed is None else self.packed.staged_bytes(key)

    def stage(self, key: BatchKey) -> Any:
        """Loads the packed rows of a batch, on any thread; None if batches read the table."""
        return None if self.packed is None else self.packed.stage(key)

    def close(self) -> None:
        """Closes the files of packed rows; no thread may stage meanwhile."""
        if self.packed is not None:
            self.packed.close()

    def gather(
        self, wanted: RowIds, count: int, device: Device, ledger: Ledger, pool: BufferPool | None = None
    ) -> Tensor:
        """Returns the rows of a batch, float[U, F].

        Args:
            wanted: i64[U], the result of `place_edges`, and what was staged for it, which is released.
            count: U.
            ledger: gets the rows, and the bytes that moved.
            pool: lends memory for the rows on the host; None for new memory.
        """
        rows: Tensor = (
            torch.empty((count, self.width), dtype=getattr(torch, self.dtype))
            if pool is None
            else device.rows(pool, count, self.width, self.dtype)
        )
        moved, source = Ledger(), self.source if wanted.staged is None else self.packed
        assert source is not None
        source.gather(wanted, rows, moved)
        if wanted.staged is not None:
            wanted.staged.release()
        ledger.count(f"{EDGE_FEATURE}_rows", 0, count)
        ledger.merge(moved.of_edges())
        return rows

    def give(self, blocks: Sequence[Block], device: Device) -> None:
        """Gives blocks that form no batch of a training the rows of their edges; the device books the bytes."""
        edge_ids = place_edges(blocks)
        give_rows(blocks, self.gather(RowIds(edge_ids), len(edge_ids), device, device.traffic))


def give_rows(blocks: Sequence[Block], rows: Tensor) -> None:
    """Gives blocks that share rows of edges these, float[U, F]; their edges have places among them."""
    for block in blocks:
        block.edge_rows = rows


def place_edges(blocks: Sequence[Block]) -> Array:
    """Writes the row of each edge among those of a batch to its blocks; returns the edge ids of these rows, i64[U], ascending."""
    found: list[Any] = [block.edge_id for block in blocks]
    edge_ids, places = unique_places(np.concatenate(found))
    done = 0
    for block, own in zip(blocks, found, strict=True):
        block.edge_place = places[done : (done := done + len(own))]
    return edge_ids


def open_edge_rows(stored: FeatureTable, dtype: str, threads: int, reserved_bytes: int = 0) -> EdgeRows:
    """Opens the rows of edges: mapped, or read directly if they do not fit into memory.

    Args:
        dtype: NumPy name of the type of gathered rows.
        reserved_bytes: bytes that the run is still to take.
    """
    return EdgeRows(stored, open_source(stored, "auto", threads, reserved_bytes), dtype)
