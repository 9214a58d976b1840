"""Encoded rows of a small table, with what the encoders were fitted to."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from graphmill.assets.sources.encoders.columns import encoded_columns
from graphmill.assets.sources.encoders.rules import Encode, encode_problems
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.kernels.types import Array


class Encoded(NamedTuple):
    rows: Array
    columns: Sequence[Any]

    @property
    def fitted(self) -> dict[str, Any]:
        return {each["column"]: each["fitted"] for each in self.columns}

    @property
    def names(self) -> list[str]:
        return [name for each in self.columns for name in each["columns"]]


def encode(
    frame: pl.DataFrame,
    rules: Encode,
    training: Array | None = None,
    *,
    form: str = "parquet",
    threads: int = 2,
    files: int = 1,
    features: Sequence[str] = ("*",),
    taken: dict[str, str] | None = None,
) -> Encoded:
    """Returns all rows of a frame, encoded by what the training rows tell."""
    assert not [*encode_problems(rules)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, part in enumerate(np.array_split(np.arange(len(frame)), files)):
            path = folder / f"part-{number}.{form}"
            part = frame[part.tolist()]
            if form == "parquet":
                part.write_parquet(path, row_group_size=max(1, len(part) // 3))
            else:
                part.write_csv(path)
        with Duck(folder, 1 << 29, threads) as duck:
            table = TableFiles(duck, [folder / f"part-*.{form}"], "nodes", taken=taken)
            block = encoded_columns(table, list(features), rules).block(0, len(frame), None, training)
            rows = np.concatenate([part.copy() for _, part in block.slices()])
    assert rows.shape == (len(frame), block.width) and rows.dtype == np.float32
    return Encoded(rows, block.encoders)
