"""The encoders of a features artifact on other tables: rows that came later, or those of another graph."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.sizes import parse_size
from graphmill.assets.sources.encoders.columns import EncodedColumns
from graphmill.assets.sources.encoders.rules import fitted_before
from graphmill.assets.sources.readers.duck import scratch_duck
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError, did_you_mean
from graphmill.kernels.types import Array

ENCODERS_FILE = "encoders.json"


def encode(
    features: Artifact, *tables: str | os.PathLike[str], node_type: str = "nodes", memory_limit: int | str = "1GiB"
) -> Array:
    """Encodes the rows of tables by what the encoders of a features artifact were fitted to; nothing is fitted anew.

    Args:
        features: the artifact, built with `encode`.
        tables: files, folders or patterns of one table that has the encoded columns.
        node_type: the node type whose encoders are taken; "nodes" in a graph without types.
        memory_limit: bytes that DuckDB may take, beside the result.

    Returns:
        f32[rows of the tables, width], in the order of the rows; `encoders.json` of the artifact has the names of the columns.

    Raises:
        InputError: the artifact has no encoders for the type, a column is missing or of another type, or a value cannot be encoded.
    """
    if ENCODERS_FILE not in features.files:
        raise InputError(f"{features.path} was built without encode", "name encoders in [features], and build it")
    fitted = json.loads(features.file(ENCODERS_FILE).read_text(encoding="utf-8"))
    if node_type not in fitted:
        hint = did_you_mean(node_type, fitted, "'")
        raise InputError(f"{features.path} has no encoders of '{node_type}'{hint}", f"it has {', '.join(fitted)}")
    return _encoded(fitted[node_type], [Path(table).absolute() for table in tables], parse_size(memory_limit))


def _encoded(columns: Sequence[Mapping[str, Any]], paths: Sequence[Path], memory_bytes: int) -> Array:
    with scratch_duck(memory_bytes, "encode") as duck:
        table = TableFiles(duck, paths, "nodes")
        names = [each["column"] for each in columns]
        block = EncodedColumns(table, names, fitted_before(columns), "encoded").block(
            0, table.count(), None, None, columns
        )
        rows = np.empty((block.num_rows, block.width), np.float32)
        for first, part in block.slices():
            rows[first : first + len(part)] = part
    return rows
