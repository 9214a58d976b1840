"""The rows of node tables without features: labels, one or several of a node (assets/tasks/labels.py), splits, names, times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from graphmill.assets.sources.edges.numbering import Numbering
from graphmill.assets.sources.interface import RawGraph
from graphmill.assets.sources.readers.duck import literal, quoted
from graphmill.assets.sources.readers.table_features import (
    column_widths,
    feature_type,
    fitting_columns,
    lists_of,
    refuse_ragged,
    slice_rows,
)
from graphmill.assets.sources.readers.table_files import NUMBERS, TableFiles, TableRows
from graphmill.assets.sources.targets import CLASSIFIES, checked_values
from graphmill.assets.tasks.labels import CLASSES, ON_EDGES, Kind, no_labels
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array


def time_number(table: TableFiles, column: str, role: str = "time_column") -> str:
    """Returns the SQL expression of a number that ascends with time: numbers as they are, dates and times in microseconds since 1970.

    Args:
        role: the key that names the column.

    Raises:
        InputError: the column is missing, or holds neither numbers nor times.
    """
    kind = table.require(role, column)
    given = table.field(column)
    if table.is_csv or kind == "VARCHAR":
        return f"coalesce(TRY_CAST({given} AS DOUBLE), CAST(epoch_us(TRY_CAST({given} AS TIMESTAMP)) AS DOUBLE))"
    if kind.startswith(("TIMESTAMP", "DATE")):
        return f"CASE WHEN isfinite({given}) THEN CAST(epoch_us(CAST({given} AS TIMESTAMP)) AS DOUBLE) END"
    return table.number(role, column, "DOUBLE")


def read_times(nodes: TableFiles, column: str, role: str, count: int) -> Array:
    """Returns f64[N], the times of the rows of a node table in their order; NaN for an empty field, null and NaN.

    Raises:
        InputError: a value is neither a number nor a time, with its row.
    """
    written = f"CAST(coalesce(lower(CAST({nodes.field(column)} AS VARCHAR)), 'nan') NOT IN ('nan', '') AS UTINYINT)"
    times = np.full(count, np.nan)
    for rows in nodes.select([time_number(nodes, column, role), written]):
        values, nulls = rows.columns[0].values, rows.columns[0].nulls
        known = np.isfinite(values) if nulls is None else ~nulls & np.isfinite(values)
        wrong = np.flatnonzero((rows.columns[1].values != 0) & ~known)
        if len(wrong):
            remedy = "give a node its time, or leave the field empty"
            raise nodes.refusal(*rows.locate(int(wrong[0])), column, "neither a number nor a time", remedy)
        times[rows.start : rows.start + rows.count][known] = values[known]
    return times


class LabelKeys(Protocol):
    """The keys that name columns of labels: one of classes, or several columns."""

    @property
    def label_column(self) -> str | None: ...  # noqa: D102
    @property
    def label_columns(self) -> str | tuple[str, ...] | None: ...  # noqa: D102


def label_columns(table: TableFiles | None, keys: LabelKeys, kind: Kind) -> list[str]:
    """Returns the columns of several labels or of numbers that keys name; none of classes.

    Raises:
        InputError: a column is missing, or a pattern fits none.
    """
    asked = keys.label_column if keys.label_columns is None else keys.label_columns
    if kind in (CLASSES, *ON_EDGES) or table is None or asked is None:
        return []
    return fitting_columns(table, asked, "label_columns")


def label_roles(names: Sequence[str]) -> dict[str, str]:
    """Returns NUMBER/label_column -> column, the names of the digests of columns of labels."""
    return {f"{number}/label_column": name for number, name in enumerate(names)}


def read_label_columns(table: TableFiles, names: Sequence[str], kind: Kind, count: int) -> tuple[Array, list[str]]:
    """Returns labels in the order of the rows, and the names of their columns; those of a list are numbered: scores.0, scores.1.

    Args:
        names: columns of numbers or of lists of equal lengths, side by side; an empty field, null, a missing list and NaN are unknown.
        kind: "multilabel" or "regression".

    Raises:
        InputError: a column does not hold numbers, lists have several lengths, or a value is not a label, with its row.
    """
    feature_type(table, names)
    widths = column_widths(table, names)
    pairs = list(zip(names, widths, strict=True))
    columns = [f"{name}.{place}" if lists_of(table, name) else name for name, width in pairs for place in range(width)]
    of_column = [name for name, width in pairs for _ in range(width)]
    labels = no_labels(kind, count, sum(widths))
    cast = "TRY_CAST" if table.is_csv else "CAST"
    written = [f"CAST(coalesce(lower({table.field(name)}), 'nan') <> 'nan' AS UTINYINT)" for name in names]
    asked = [f"{cast}({table.field(name)} AS DOUBLE{lists_of(table, name)})" for name in names]
    asked = [
        f"coalesce({values}, CAST([{', '.join(['NULL'] * width)}] AS DOUBLE{lists_of(table, name)}))"
        if lists_of(table, name)
        else values
        for values, (name, width) in zip(asked, pairs, strict=True)
    ]
    for rows in table.select([*asked, *(written if table.is_csv else [])]):
        given = TableRows(rows.file, rows.first, rows.start, rows.count, rows.columns[: len(names)])
        refuse_ragged(table, given, names, widths)
        values = slice_rows(given, 0, rows.count, widths)
        for number, column in enumerate(rows.columns[len(names) :]):
            wrong = np.flatnonzero((column.values != 0) & np.isnan(values[:, number]))
            if len(wrong):
                raise table.no_number(*rows.locate(int(wrong[0])), names[number])

        def place(row: int, column: int, rows: TableRows = rows) -> str:
            return f"{table.place(*rows.locate(row))}: column '{of_column[column]}'"

        labels[rows.start : rows.start + rows.count] = checked_values(kind, values, place)
    return labels, columns


SPLITS = {"train": 0, "valid": 1, "val": 1, "validation": 1, "test": 2}
NO_SPLIT, UNKNOWN_SPLIT = -1, 99
TEXTS = ("VARCHAR",)
NAMING = (*TEXTS, "UUID")
"""Types whose texts name classes, beside numbers."""
ONE_CLASS = f"{CLASSIFIES}: give one class number or name for each node"


class NodeKeys(LabelKeys, Protocol):
    """The keys that name columns of node tables, and the form of their labels, "numbers" or "names".

    `time_key` is the name of the key of times, and the column that it names.
    """

    @property
    def labels(self) -> str: ...  # noqa: D102
    @property
    def no_label(self) -> Sequence[str | int]: ...  # noqa: D102
    @property
    def split_column(self) -> str | None: ...  # noqa: D102
    @property
    def name_column(self) -> str | None: ...  # noqa: D102
    @property
    def time_key(self) -> tuple[str, str | None]: ...  # noqa: D102


def read_nodes(nodes: TableFiles | None, config: NodeKeys, numbering: Numbering, kind: Kind = CLASSES) -> RawGraph:
    """Returns a graph without edges: labels of a kind, splits and names of the nodes; the names are a Polars series.

    Raises:
        InputError: a column is missing, or a value is not a label or not a part of a split, with the row.
    """
    count = numbering.num_nodes
    labels, names, splits = no_labels(kind, count), (), None
    if nodes is None:
        return RawGraph(num_nodes=count, labels=labels, class_names=())
    if columns := label_columns(nodes, config, kind):
        labels, names = read_label_columns(nodes, columns, kind, count)
    elif kind == CLASSES and config.label_column is not None:
        labels, names = _labels(nodes, config.label_column, config, count)
    if config.split_column is not None:
        part = in_node_order(_split_codes(nodes, config.split_column, count), numbering)
        splits = (np.flatnonzero(part == 0), np.flatnonzero(part == 1), np.flatnonzero(part == 2))
    role, column = config.time_key
    times = None if column is None else in_node_order(read_times(nodes, column, role, count), numbering)
    return RawGraph(
        num_nodes=count,
        node_times=times,
        labels=in_node_order(labels, numbering),
        class_names=names,
        splits=splits,
        node_names=None if config.name_column is None else _names(nodes, config.name_column, numbering),
    )


def in_node_order(values: Array, numbering: Numbering) -> Array:
    """Returns values of the rows of a table in the order of the nodes."""
    if numbering.node_of_row is None:
        return values
    out = np.empty_like(values)
    out[numbering.node_of_row] = values
    return out


def _labels(nodes: TableFiles, column: str, keys: NodeKeys, count: int) -> tuple[Array, list[str]]:
    """Returns (labels i32[N] in the order of the rows, class names)."""
    kind, unknown = nodes.require("label_column", column), _unknown(nodes, column, keys.no_label)
    if keys.labels == "names":
        text = _class_text(nodes, column, kind, unknown)
        sql = f"{nodes.union(text)} WHERE v IS NOT NULL ORDER BY v"
        classes = [str(row[0]) for row in nodes.duck.rows(sql, str(nodes.paths[0]))]
        texts = ", ".join(map(literal, classes)) or "''"
        nodes.duck.rows(f"CREATE OR REPLACE TYPE class_name AS ENUM (SELECT unnest([{texts}]))")
        expression = f"CAST(enum_code(CAST({text} AS class_name)) AS DOUBLE)" if classes else "CAST(NULL AS DOUBLE)"
    else:
        require_class_numbers(nodes, column, keys.no_label)
        texts = not nodes.is_csv and kind in TEXTS
        number = f"TRY_CAST({quoted(column)} AS DOUBLE)" if texts else nodes.number("label_column", column, "DOUBLE")
        classes, expression = [], f"CASE WHEN {unknown} THEN NULL ELSE {number} END" if keys.no_label else number
    labels = np.full(count, -1, np.int32)
    written = f"coalesce(lower(CAST({nodes.field(column)} AS VARCHAR)), 'nan') <> 'nan' AND NOT {unknown}"
    texts_too = nodes.is_csv or keys.no_label
    given = [f"CAST({written} AS UTINYINT)"] if texts_too and keys.labels == "numbers" else []
    for rows in nodes.select([expression, *given]):
        values, nulls = rows.columns[0].values, rows.columns[0].nulls
        known = ~np.isnan(values) if nulls is None else ~nulls & ~np.isnan(values)
        wrong = known & ((values != np.floor(values)) | (values < -1) | (values >= count))
        if given:
            wrong |= (rows.columns[1].values != 0) & ~known
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            if known[first] and np.isfinite(values[first]) and values[first] != np.floor(values[first]):
                raise nodes.refusal(*rows.locate(first), column, "a number that is not whole", ONE_CLASS)
            _class_text(nodes, column, kind, unknown)
            raise nodes.refusal(*rows.locate(first), column, f"not a class number in [-1, {count})", _names_too(nodes))
        labels[rows.start : rows.start + rows.count][known] = values[known].astype(np.int32)
    return labels, classes or [str(label) for label in range(int(labels.max(initial=-1)) + 1)]


def require_class_numbers(nodes: TableFiles, column: str, no_label: Sequence[str | int]) -> None:
    """Checks the type of a column of class numbers; of a CSV file, and of text if some words mean no label, only its values tell.

    Raises:
        InputError: the column has another type, or is missing.
    """
    kind = nodes.require("label_column", column)
    texts = nodes.is_csv or (no_label and kind in TEXTS)
    if not texts and kind not in NUMBERS and not kind.startswith("DECIMAL"):
        _class_text(nodes, column, kind, "false")  # what names no classes either gets no remedy that says so
        raise InputError(f"{nodes.paths[0]}: column '{column}' is {kind}, not class numbers", _names_too(nodes))


def _names_too(nodes: TableFiles) -> str:
    return (
        f'number the classes from 0, leave unknown ones empty or -1; or set labels = "names" in {nodes.section}, '
        'and no_label = ["unknown"] if a word means that there is none'
    )


def _unknown(nodes: TableFiles, column: str, no_label: Sequence[str | int]) -> str:
    """Returns the SQL condition of the values that mean no label, in any case; of numbers as numbers, so that 255 is 255.0."""
    if not no_label:
        return "false"
    text, words = f"CAST({nodes.field(column)} AS VARCHAR)", [str(word).strip().lower() for word in no_label]
    found = f"lower(trim({text})) IN ({', '.join(map(literal, words))})"
    numbers = [word for word in words if re.fullmatch(r"[+-]?\d+(\.\d+)?", word)]
    found += f" OR TRY_CAST({text} AS DOUBLE) IN ({', '.join(numbers)})" if numbers else ""
    return f"coalesce({found}, false)"


def _class_text(nodes: TableFiles, column: str, kind: str, unknown: str) -> str:
    """Returns the SQL expression of the class names in a column; NULL, NaN, blanks and the values of a condition are unknown labels.

    Raises:
        InputError: the column's values name no classes, by their type or as text: lists, dates, or numbers that are not whole.
    """
    where = f"{nodes.paths[0]}: column '{column}'"
    if not nodes.is_csv and kind not in (*NUMBERS, *NAMING) and not kind.startswith(("DECIMAL", "ENUM")):
        raise InputError(f"{where} is {kind}, and its values name no classes", ONE_CLASS)
    text = f"CAST({nodes.field(column)} AS VARCHAR)"
    text = f"CASE WHEN lower(trim({text})) NOT IN ('', 'nan') AND NOT {unknown} THEN {text} END"
    number = "TRY_CAST(v AS DOUBLE)"
    broken = f"min({number}) FILTER ({number} <> floor({number}) OR isinf({number}))"
    wholes = "bool_or(v NOT SIMILAR TO '-?[0-9]+')"
    lists = "count(*) FILTER (v SIMILAR TO '\\[.*\\]|\\{.*\\}|\\(.*\\)')"
    counts = f"count(v), count({number}), {broken}, {wholes}, count(TRY_CAST(v AS TIMESTAMP)), {lists}"
    given, numbers, first, written, dates, listed = nodes.duck.rows(
        f"SELECT {counts} FROM ({nodes.union(text)})", str(nodes.paths[0])
    )[0]
    if given and given == numbers and first is not None:
        raise InputError(f"{where} holds {first}, a number that is not whole", ONE_CLASS)
    if given and given in (dates, listed):
        what = "dates" if given == dates else "lists"
        raise InputError(f"{where} holds {what}, which name no classes", ONE_CLASS)
    # Whole numbers that are written as 2.0 are named 2.
    return f"CAST(TRY_CAST({text} AS HUGEINT) AS VARCHAR)" if given and given == numbers and written else text


def _split_codes(nodes: TableFiles, column: str, count: int) -> Array:
    """Returns i8[N]: 0 train, 1 valid, 2 test, -1 none, in the order of the rows."""
    expression = split_code(nodes, column)
    codes = np.full(count, NO_SPLIT, np.int8)
    for rows in nodes.select([expression]):
        values = rows.columns[0].values
        wrong = np.flatnonzero(values == UNKNOWN_SPLIT)
        if len(wrong):
            row = rows.first + int(wrong[0])
            problem = f"{nodes.place(rows.file, row)}: column '{column}' holds '{nodes.value(rows.file, row, column)}'"
            raise InputError(problem, "write train, valid or test, and nothing for nodes of no part")
        codes[rows.start : rows.start + rows.count] = values
    return codes


def split_code(table: TableFiles, column: str) -> str:
    """Returns the SQL expression of the part of each row: 0 train, 1 valid, 2 test, -1 none, `UNKNOWN_SPLIT` for another word."""
    table.require("split_column", column)
    text = f"lower(trim(CAST({quoted(column)} AS VARCHAR)))"
    cases = " ".join(f"WHEN '{name}' THEN {code}" for name, code in SPLITS.items())
    expression = f"CAST(coalesce(CASE {text} {cases} WHEN '' THEN -1 WHEN 'none' THEN -1 ELSE "
    return f"{expression}CASE WHEN {quoted(column)} IS NULL THEN -1 ELSE {UNKNOWN_SPLIT} END END, -1) AS TINYINT)"


def _names(nodes: TableFiles, column: str, numbering: Numbering) -> Any:
    nodes.require("name_column", column)
    names = nodes.duck.series(nodes.union(f"CAST({quoted(column)} AS VARCHAR)", distinct=False))
    return names if numbering.node_of_row is None else names.gather(np.argsort(numbering.node_of_row))
