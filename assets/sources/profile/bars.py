"""How often the values of a column occur: of numbers and times in ranges of equal length, of others the most frequent ones."""

from __future__ import annotations

from graphmill.assets.sources.folder.columns import ColumnProfile
from graphmill.assets.sources.folder.tables import FoundTable

MOST_BARS = 16
"""Ranges of numbers, and most values that are counted apart."""
COUNTED = 40
"""Most different values of a column of texts that is counted: of more, the frequent ones say little."""


def column_bars(table: FoundTable, column: ColumnProfile) -> list[tuple[str, int]]:
    """Returns (value or smallest value of a range, rows) for each bar, ranges in order; none of lists and of texts that differ."""
    files, field = table.files, table.files.field(column.first)
    if column.kind in ("list", "other"):
        return []
    if column.kind in ("whole", "number", "time") and column.distinct > MOST_BARS:
        number = f"epoch(TRY_CAST({field} AS TIMESTAMP))" if column.kind == "time" else f"TRY_CAST({field} AS DOUBLE)"
        place = f"CAST(least({MOST_BARS - 1}, floor({MOST_BARS} * (v - low) / (high - low))) AS INTEGER)"
        sql = (
            f"WITH x AS (SELECT v FROM ({files.union(number, distinct=False)}) WHERE isfinite(v)), "
            "ends AS (SELECT min(v) AS low, max(v) AS high FROM x) "
            f"SELECT {place} AS place, count(*), any_value(low), any_value(high) FROM x, ends WHERE high > low GROUP BY place"
        )
        found = {
            int(place): (int(rows), low, high) for place, rows, low, high in files.duck.rows(sql, str(files.paths[0]))
        }
        if not found:
            return []
        _, low, high = next(iter(found.values()))
        width = (high - low) / MOST_BARS
        return [(f"{low + place * width:.4g}", found.get(place, (0,))[0]) for place in range(MOST_BARS)]
    if column.distinct > COUNTED:
        return []
    values = files.union(f"CAST({field} AS VARCHAR)", distinct=False)
    order = "TRY_CAST(v AS DOUBLE), v" if column.kind in ("whole", "number", "time") else "n DESC, v"
    sql = f"SELECT v, count(*) AS n FROM ({values}) WHERE v IS NOT NULL GROUP BY v ORDER BY {order} LIMIT {MOST_BARS}"
    return [(str(value), int(rows)) for value, rows in files.duck.rows(sql, str(files.paths[0]))]
