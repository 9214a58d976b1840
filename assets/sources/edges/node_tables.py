"""The rows of node tables without features: labels, splits, names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.sources.edges.numbering import Numbering
from assets.sources.readers.duck import quoted
from assets.sources.readers.table_files import NUMBERS, TableFiles, TableRows
from kernels.errors import InputError
from kernels.types import Array

if TYPE_CHECKING:
    from assets.sources.edges.config import EdgesConfig

SPLITS = {"train": 0, "valid": 1, "val": 1, "validation": 1, "test": 2}
NO_SPLIT, UNKNOWN_SPLIT = -1, 99


@dataclass(frozen=True, kw_only=True)
class NodeTable:
    """The columns of node tables except ids and features, in node order.

    Attributes:
        labels: i32[N], -1 unknown; class_names: label order.
        splits: train, valid, test ids, or None.
        names: N texts (a Polars series), or None.
    """

    labels: Array
    class_names: Sequence[str]
    splits: tuple[Array, Array, Array] | None
    names: Any


def read_nodes(nodes: TableFiles | None, config: EdgesConfig, numbering: Numbering) -> NodeTable:
    """Reads labels, splits and names.

    Raises:
        InputError: a column is missing, or a value is not a label or not a part of a split, with the row.
    """
    count = numbering.num_nodes
    labels, names, splits = np.full(count, -1, np.int32), (), None
    if nodes is None:
        return NodeTable(labels=labels, class_names=(), splits=None, names=None)
    if config.label_column is not None:
        labels, names = _labels(nodes, config.label_column, config.labels, count)
    if config.split_column is not None:
        part = _split_codes(nodes, config.split_column, count)
        part = _in_node_order(part, numbering)
        splits = (np.flatnonzero(part == 0), np.flatnonzero(part == 1), np.flatnonzero(part == 2))
    return NodeTable(
        labels=_in_node_order(labels, numbering),
        class_names=names,
        splits=splits,
        names=None if config.name_column is None else _names(nodes, config.name_column, numbering),
    )


def _in_node_order(values: Array, numbering: Numbering) -> Array:
    if numbering.node_of_row is None:
        return values
    out = np.empty_like(values)
    out[numbering.node_of_row] = values
    return out


def _labels(nodes: TableFiles, column: str, form: str, count: int) -> tuple[Array, list[str]]:
    """Returns (labels i32[N] in the order of the rows, class names)."""
    kind = nodes.require("label_column", column)
    if form == "names":
        text = f"nullif(CAST({nodes.field(column)} AS VARCHAR), '')"
        parts = [f"SELECT DISTINCT {text} AS t FROM {nodes.source(n)}" for n in range(len(nodes.paths))]
        sql = f"SELECT DISTINCT t FROM ({' UNION '.join(parts)}) WHERE t IS NOT NULL ORDER BY t"
        classes = [str(row[0]) for row in nodes.duck.rows(sql, str(nodes.paths[0]))]
        nodes.duck.rows("CREATE OR REPLACE TYPE class_name AS ENUM (SELECT unnest([" + _texts(classes) + "]))")
        expression = f"CAST(enum_code(CAST({text} AS class_name)) AS DOUBLE)" if classes else "CAST(NULL AS DOUBLE)"
    elif not nodes.is_csv and kind not in NUMBERS:
        remedy = 'number the classes from 0, or set labels = "names" in [graph]'
        raise InputError(f"{nodes.paths[0]}: column '{column}' is {kind}, not class numbers", remedy)
    else:
        classes, expression = [], nodes.number("label_column", column, "DOUBLE")
    labels, done = np.full(count, -1, np.int32), 0
    given = [f"CAST({quoted(column)} IS NOT NULL AS UTINYINT)"] if nodes.is_csv else []
    for rows in nodes.select([expression, *given]):
        values, nulls = rows.columns[0].values, rows.columns[0].nulls
        known = ~np.isnan(values) if nulls is None else ~nulls & ~np.isnan(values)
        wrong = known & ((values != np.floor(values)) | (values < -1) | (values >= count))
        if nodes.is_csv:
            wrong |= (rows.columns[1].values != 0) & ~known
        if wrong.any():
            raise _bad_label(nodes, rows, int(np.flatnonzero(wrong)[0]), column, count)
        labels[done : done + rows.count][known] = values[known].astype(np.int32)
        done += rows.count
    return labels, classes or [str(label) for label in range(int(labels.max(initial=-1)) + 1)]


def _texts(names: Sequence[str]) -> str:
    return ", ".join("'" + name.replace("'", "''") + "'" for name in names) or "''"


def _bad_label(nodes: TableFiles, rows: TableRows, index: int, column: str, count: int) -> InputError:
    row = rows.first + index
    value = nodes.value(rows.file, row, column)
    return InputError(
        f"{nodes.place(rows.file, row)}: column '{column}' holds '{value}', not a class number in [-1, {count})",
        'number the classes from 0, leave unknown ones empty or -1; or set labels = "names" in [graph]',
    )


def _split_codes(nodes: TableFiles, column: str, count: int) -> Array:
    """Returns i8[N]: 0 train, 1 valid, 2 test, -1 none, in the order of the rows."""
    nodes.require("split_column", column)
    text = f"lower(trim(CAST({quoted(column)} AS VARCHAR)))"
    cases = " ".join(f"WHEN '{name}' THEN {code}" for name, code in SPLITS.items())
    expression = f"CAST(coalesce(CASE {text} {cases} WHEN '' THEN -1 WHEN 'none' THEN -1 ELSE "
    expression += f"CASE WHEN {quoted(column)} IS NULL THEN -1 ELSE {UNKNOWN_SPLIT} END END, -1) AS TINYINT)"
    codes, done = np.full(count, NO_SPLIT, np.int8), 0
    for rows in nodes.select([expression]):
        values = rows.columns[0].values
        wrong = np.flatnonzero(values == UNKNOWN_SPLIT)
        if len(wrong):
            row = rows.first + int(wrong[0])
            raise InputError(
                f"{nodes.place(rows.file, row)}: column '{column}' holds '{nodes.value(rows.file, row, column)}'",
                "write train, valid or test, and nothing for nodes of no part",
            )
        codes[done : done + rows.count] = values
        done += rows.count
    return codes


def _names(nodes: TableFiles, column: str, numbering: Numbering) -> Any:
    nodes.require("name_column", column)
    parts = [
        f"SELECT CAST({quoted(column)} AS VARCHAR) AS name FROM {nodes.source(n)}" for n in range(len(nodes.paths))
    ]
    names = nodes.duck.series(" UNION ALL ".join(parts))
    return names if numbering.node_of_row is None else names.gather(np.argsort(numbering.node_of_row))
