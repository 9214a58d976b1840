"""Several labels or numbers per node in the columns of a table, or in a column of lists (assets/tasks/labels.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from graphmill.assets.sources.readers.table_features import (
    column_widths,
    feature_type,
    fitting_columns,
    lists_of,
    refuse_ragged,
    slice_rows,
)
from graphmill.assets.sources.readers.table_files import TableFiles, TableRows
from graphmill.assets.sources.targets import checked_values
from graphmill.assets.tasks.labels import CLASSES, ON_EDGES, Kind, no_labels
from graphmill.kernels.types import Array


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
