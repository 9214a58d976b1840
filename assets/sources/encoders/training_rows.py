"""The values of a table's training rows, staged in DuckDB's database on disk, where encoders count, sort and read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.duck import Duck, path_literal
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.splits import stratified
from graphmill.kernels.types import Array

TrainingNodes = tuple[Array, Array]
"""Ids[n] of the training nodes, and ids[m] of the nodes of all parts of the split."""


class SplitKeys(Protocol):
    """The keys of a split that is drawn."""

    @property
    def seed(self) -> int: ...  # noqa: D102
    @property
    def train_ratio(self) -> float: ...  # noqa: D102
    @property
    def valid_ratio(self) -> float: ...  # noqa: D102


def training_nodes(labels: Array, splits: tuple[Array, Array, Array] | None, keys: SplitKeys) -> TrainingNodes | None:
    """Returns the training nodes of a source's split, or of the one that is drawn as for the graph; None without a labelled node.

    Args:
        labels: i32[N], -1 for an unknown label.
        splits: train, valid and test ids; None to draw them.
    """
    parts = stratified(labels, keys.seed, keys.train_ratio, keys.valid_ratio) if splits is None else splits
    found = np.concatenate(parts)
    return (parts[0], found) if len(found) else None


def training_rows(nodes: TrainingNodes | None, first: int, num_rows: int, node_of_row: Array | None) -> Array | None:
    """Returns bool[num_rows] true for the training rows of a table; None if none of its nodes is in a part, and all rows may be fitted.

    Args:
        first: id of the first node of the table.
        node_of_row: i64[num_rows] ids of the rows' nodes, None if they are in order.
    """
    if nodes is None:
        return None
    train, parts = (each[(each >= first) & (each < first + num_rows)] for each in nodes)
    if not len(parts):
        return None
    chosen = np.zeros(num_rows, bool)
    chosen[train - first] = True
    return chosen if node_of_row is None else chosen[node_of_row - first]


@dataclass(frozen=True)
class Values:
    """The values of one column in the training rows.

    Attributes:
        sql: query of the values that are there, as a column `v`.
    """

    duck: Duck
    sql: str

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Returns the result of a query in which {values} stands for a table with the column `v`."""
        return self.duck.rows(query.replace("{values}", f"({self.sql})"))

    def batches(self, expression: str = "v", then: str = "") -> Iterator[Column]:
        """Yields an expression of the values batch by batch; `then` follows the table's name in the query."""
        for (column,) in self.duck.batches(f"SELECT {expression} FROM ({self.sql}) {then}"):
            yield column


class TrainingRows:
    """The training rows of a table; a context manager that drops them.

    Args:
        expressions: SQL expression of each column that is encoded.
        training: bool[R] true for the rows of the table that are fitted; None for all rows.
    """

    def __init__(self, table: TableFiles, expressions: Sequence[str], training: Array | None, name: str):
        self._duck, self._name = table.duck, name
        chosen = ", ".join(f"{expression} AS c{number}" for number, expression in enumerate(expressions))
        self._drop()
        first = 0
        for file, (path, count) in enumerate(zip(table.paths, table.counts(), strict=True)):
            rows = f"SELECT {chosen} FROM {table.source(file)}"
            if training is not None:
                rows = self._kept(rows, training[first : first + count], file)
            into = f"INSERT INTO {name}" if file else f"CREATE TABLE {name} AS"
            self._duck.rows(f"{into} {rows}", str(path))
            first += count
        self.count = int(self._duck.rows(f"SELECT count(*) FROM {name}")[0][0])

    def __enter__(self) -> TrainingRows:
        return self

    def __exit__(self, *exc: object) -> None:
        self._drop()

    def values(self, number: int) -> Values:
        """Returns the values of a column, by the number of its expression."""
        sql = f"SELECT c{number} AS v FROM {self._name} WHERE c{number} IS NOT NULL"
        return Values(self._duck, sql)

    def _kept(self, rows: str, training: Array, file: int) -> str:
        """Returns the query of the rows that `training` has true for; both sides keep the order of their files."""
        import polars

        path = self._duck.scratch / f"{self._name}-{file}.parquet"
        polars.DataFrame({"training": training}).write_parquet(path)
        mask = f"SELECT training FROM read_parquet({path_literal(path)})"
        return f"SELECT * EXCLUDE (training) FROM ({rows}) POSITIONAL JOIN ({mask}) WHERE training"

    def _drop(self) -> None:
        self._duck.rows(f"DROP TABLE IF EXISTS {self._name}")
