"""Appends the rows of edge tables to the spool: looks up ends, checks weights and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.sources.edges.numbering import Numbering, locate, no_id
from assets.sources.readers.arrow_stream import Column
from assets.sources.readers.duck import Duck, literal
from assets.sources.readers.table_files import WHOLE_NUMBER, TableFiles
from assets.sources.spool import EdgeSpool
from kernels.errors import InputError
from kernels.types import Array

if TYPE_CHECKING:
    from assets.building.stage import Progress
    from assets.sources.edges.config import EdgesConfig

EXAMPLES = 3

Where = Callable[[int], tuple[int, int]]
"""Row of a batch -> (file, row in it)."""

Batches = Iterator[tuple[dict[str, Any], Array, Where]]
"""Name -> column, the rows of the whole table, and their places."""


def type_names(edges: TableFiles, column: str) -> list[str]:
    """Returns the distinct edge types as text, whole numbers in ascending order, else by their UTF-8 bytes.

    Raises:
        InputError: the column is missing, or has more than 256 values.
    """
    edges.require("type_column", column)
    sql = f"{edges.union(f'CAST({edges.field(column)} AS VARCHAR)')} WHERE v IS NOT NULL ORDER BY v LIMIT 258"
    found = [str(row[0]) for row in edges.duck.rows(sql, str(edges.paths[0]))]
    if len(found) > 256:
        shown = ", ".join(f"'{name}'" for name in found[:5])
        raise InputError(
            f"{edges.paths[0]}: column '{column}' has more than 256 edge types: {shown}, ...",
            "edge types are stored in one byte: merge rare ones, or choose another type_column",
        )
    return sorted(found, key=int) if all(WHOLE_NUMBER.fullmatch(name) for name in found) else found


def attribute_expressions(edges: TableFiles, config: EdgesConfig, relations: list[str]) -> dict[str, tuple[str, str]]:
    """Returns name -> (SQL expression, SQL type) of the attributes that edges carry."""
    found = {}
    if config.weight_column is not None:
        found["weight"] = (edges.number("weight_column", config.weight_column, "FLOAT"), "FLOAT")
    if config.type_column is not None:
        names = ", ".join(literal(name) for name in relations) or "''"
        text = f"CAST({edges.field(config.type_column)} AS VARCHAR)"
        found["type"] = (f"CAST(list_position([{names}], {text}) - 1 AS UTINYINT)", "UTINYINT")
    return found


def spool_edges(
    edges: TableFiles,
    config: EdgesConfig,
    relations: list[str],
    numbering: Numbering,
    staged: list[int] | None,
    spool: EdgeSpool,
    progress: Progress,
) -> None:
    """Appends every edge to the spool.

    Args:
        edges: files of the edge tables, whose connection holds `staged` and `ids` if ids are not integers.
        config: configuration of the source, which names the columns.
        relations: names of the edge types.
        numbering: map from ids of the tables to node ids.
        staged: number of rows of each file of DuckDB's table `staged`; None: ids are integers and read from the files.
        spool: spool that receives the edges.
        progress: listener, which gets every row.

    Raises:
        InputError: an end, a weight or a type is missing or does not fit, with the first such row; or edges name nodes that
            do not exist, with their number and examples.
    """
    sink = _Sink(edges, config, numbering, staged, spool)
    total = sum(staged) if staged is not None else None if edges.is_csv else edges.count()
    progress.start("read edges", total, "edges")
    batches = _from_files(edges, config, relations) if staged is None else _joined(edges.duck, config, staged)
    for columns, tie, where in batches:
        sink.take(columns, tie, where)
        progress.advance(len(tie))
    progress.done()
    sink.refuse_dangling()


def _from_files(edges: TableFiles, config: EdgesConfig, relations: list[str]) -> Batches:
    ends = [
        edges.integer("source_column", config.source_column),
        edges.integer("target_column", config.target_column),
    ]
    extra = attribute_expressions(edges, config, relations)
    for rows in edges.select(ends + [expression for expression, _ in extra.values()]):
        tie = np.arange(rows.start, rows.start + rows.count)
        yield dict(zip(("src", "dst", *extra), rows.columns, strict=True)), tie, rows.locate


def _joined(duck: Duck, config: EdgesConfig, staged: list[int]) -> Batches:
    extra = [name for name, key in (("weight", config.weight_column), ("type", config.type_column)) if key is not None]
    chosen = ", ".join(f"e.{name}" for name in extra)
    sql = (
        f"SELECT s.node_id, t.node_id, e.rowid{', ' + chosen if chosen else ''} FROM staged e "
        "LEFT JOIN ids s ON e.src = s.id LEFT JOIN ids t ON e.dst = t.id"
    )
    for columns in duck.batches(sql):
        named = dict(zip(("src", "dst", "rowid", *extra), columns, strict=True))
        tie = named["rowid"].values
        yield named, tie, lambda index, tie=tie: locate(staged, int(tie[index]))


class _Sink:
    """Checks batches and appends them; remembers edges whose ends are not nodes."""

    def __init__(
        self, edges: TableFiles, config: EdgesConfig, numbering: Numbering, staged: list[int] | None, spool: EdgeSpool
    ):
        self.edges, self.config, self.numbering, self.staged, self.spool = edges, config, numbering, staged, spool
        self.num_rows, self.num_dangling = 0, 0
        self.examples: list[tuple[int, int]] = []

    def take(self, columns: dict[str, Any], tie: Array, where: Where) -> None:
        self.num_rows += len(tie)
        bad = np.zeros(len(tie), bool)
        ends = [self._end(columns[key], bad, where, role) for key, role in (("src", "source"), ("dst", "target"))]
        extra: dict[str, Array] = {}
        if "weight" in columns:
            extra["weight"] = self._weights(columns["weight"], where)
        if "type" in columns:
            extra["type"] = self._present(columns["type"], where, "type")
        if bad.any():
            rows = np.flatnonzero(bad)
            self.num_dangling += len(rows)
            self.examples += [where(index) for index in rows[: EXAMPLES - len(self.examples)].tolist()]
        elif not self.num_dangling:
            self.spool.append(*ends, tie=tie, **extra)

    def _end(self, column: Column, bad: Array, where: Where, role: str) -> Array:
        """Returns node ids; marks rows whose node does not exist."""
        name = getattr(self.config, f"{role}_column")
        if column.nulls is not None:
            file, row = where(int(np.flatnonzero(column.nulls)[0]))
            if self.staged is None or self.edges.value(file, row, name) is None:
                raise no_id(self.edges, file, row, name)
            bad |= column.nulls
        if self.staged is not None:
            return column.values
        node_ids, unknown = self.numbering.look_up(column.values)
        bad |= unknown
        return node_ids

    def _weights(self, column: Column, where: Where) -> Array:
        values = self._present(column, where, "weight")
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            file, row = where(int(wrong[0]))
            raise InputError(
                f"{self.edges.place(file, row)}: column '{self.config.weight_column}' is {values[wrong[0]]}",
                "give every edge a finite weight",
            )
        return values

    def _present(self, column: Column, where: Where, key: str) -> Array:
        if column.nulls is None:
            return column.values
        file, row = where(int(np.flatnonzero(column.nulls)[0]))
        name = getattr(self.config, f"{key}_column")
        raise self.edges.no_number(file, row, name) if key == "weight" else self.edges.refusal(file, row, name, "")

    def refuse_dangling(self) -> None:
        """Raises InputError when edges named nodes that do not exist."""
        if not self.num_dangling:
            return
        config, shown = self.config, []
        for file, row in sorted(self.examples):
            ends = [self.edges.value(file, row, name) for name in (config.source_column, config.target_column)]
            shown.append(f"{self.edges.place(file, row)}: {ends[0]} -> {ends[1]}")
        nodes = f"0 to {self.numbering.num_nodes - 1}" if config.num_nodes is not None else "the node tables"
        raise InputError(
            f"{self.num_dangling} of {self.num_rows} edges name a node that is not in {nodes}: {'; '.join(shown)}",
            "add the missing nodes, or remove these edges",
        )
