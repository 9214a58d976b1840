"""How stored shards are opened; it needs only NumPy and xxhash."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphmill.assets.shards.config import part_name
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.read_verified import read_vector
from graphmill.assets.storage.local.require import require
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class Shards:
    """The index of the rows of all parts; their files are not open yet.

    Attributes:
        row_of: i32[N], row of each node in the shard of its part, -1 for a node without features; mapped.
        num_rows: i64[P], number of rows of each shard.
        width, dtype, row_bytes: columns, stored NumPy type and bytes of a row.
        type_columns: number of columns of each node type's own features, as those of a feature table.
    """

    artifact: Artifact
    row_of: Array
    num_rows: Array
    width: int
    dtype: str
    row_bytes: int
    type_columns: tuple[int, ...] | None = None

    def tables(self, parts: Sequence[int]) -> list[FeatureTable]:
        """Returns the tables of some parts; only their artifacts have to be in the store.

        Raises:
            InputError: a shard is missing or damaged.
        """
        return [_table(self.artifact.open_part(part_name(part))) for part in parts]


def open_shards(artifact: Artifact) -> Shards:
    """Opens the index of shards and verifies it."""
    arrays = {"row_of": {"dtype": "int32", "ndim": 1}, "num_rows": {"dtype": "int64", "ndim": 1}}
    require(artifact, {"stage": "shards", "arrays": arrays})
    numbers = artifact.summary["numbers"]
    width, dtype = int(numbers["num_features"]), str(numbers["feature_dtype"])
    return Shards(
        artifact=artifact,
        row_of=artifact.array("row_of"),
        num_rows=read_vector(artifact, "num_rows"),
        width=width,
        dtype=dtype,
        row_bytes=width * np.dtype(dtype).itemsize,
        type_columns=tuple(numbers["type_columns"]) if "type_columns" in numbers else None,
    )


def _table(shard: Artifact) -> FeatureTable:
    """Returns the rows of a shard, with digests of their pages unless it was written without."""
    table = shard.table("rows")
    return replace(table, page_digest=shard.array("page_digests")) if "page_digests.npy" in shard.files else table
