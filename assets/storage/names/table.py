"""A file of fixed-size rows, as all readers of feature rows see it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphmill.kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class FeatureTable:
    """One file of fixed-size rows.

    Attributes:
        path, offset: the file and the byte at which row 0 starts (a multiple of 4,096).
        num_rows, width, dtype, row_bytes: rows, columns, NumPy dtype (uint16 for bfloat16) and bytes per row; a row may straddle pages.
        row_of: ids[N] node -> row, None for the identity, -1 for a node without features. Rows stand in the order of their nodes.
        block_digest: u64[ceil(file bytes / 1 MiB)], xxh3 of each 1 MiB of the file, counted from byte 0 of the file.
        page_digest: u64[ceil(num_bytes / 4,096)], `page_digests_of` the file from `offset` on; None if it was written without.
        type_columns: columns of each node type's own features, 0 without; the rest of a row is zeros. None without types, or if not stored.
    """

    path: Path
    offset: int
    num_rows: int
    width: int
    dtype: str
    row_bytes: int
    row_of: Array | None = None
    block_digest: Array | None = None
    page_digest: Array | None = None
    type_columns: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        """Returns a line without the arrays."""
        return f"FeatureTable({self.dtype}[{self.num_rows:,}, {self.width}] in {self.path})"

    @property
    def num_nodes(self) -> int:
        """Nodes that the table is about, those without features included."""
        return self.num_rows if self.row_of is None else len(self.row_of)

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows."""
        return self.num_rows * self.row_bytes

    def rows_of(self, node_ids: Array) -> Array:
        """Returns ids[n], the row of each node, -1 for one without features."""
        return node_ids if self.row_of is None else self.row_of[node_ids]

    def open(self) -> Array:
        """Maps the table read-only as dtype[num_rows, width]; random reads through the mapping are not verified."""
        return np.memmap(self.path, dtype=self.dtype, mode="r", offset=self.offset, shape=(self.num_rows, self.width))
