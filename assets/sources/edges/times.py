"""Columns of times: of edges, and of the nodes of a table."""

import numpy as np

from graphmill.assets.sources.readers.table_files import TableFiles
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
