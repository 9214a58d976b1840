"""Numbers of feature columns that look like a mark for a missing value, such as -999 among ages: they are told, and stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.sources.encoders.encoder import NUMBER, kind_of
from graphmill.assets.sources.encoders.numbers import NumberEncoder
from graphmill.assets.sources.encoders.rules import Rules, encoder_of
from graphmill.assets.sources.readers.table_files import TableFiles

MARKS = frozenset(sign * (10**digits - 1) for digits in range(2, 10) for sign in (-1, 1)) | {
    -(2**15),
    -(2**31),
    2**31 - 1,
}
"""Numbers of nines, and the ends of types of integers."""
LOOKED_AT = 100_000
"""Rows of the first file that are looked at."""
FEWEST = 2
"""Fewest rows with a number that may be a mark."""
TIMES = 5
"""How many times as far from the middle of all other values as these reach."""


def sentinel_words(table: TableFiles, names: Sequence[str], rules: Rules = ()) -> list[str]:
    """Returns a sentence for each column of numbers whose smallest or largest value stands apart, is repeated, and is a mark.

    Args:
        rules: their encoders; marks that `no_value` names are not told.
    """
    numbers = [name for name in names if table.is_csv or kind_of(table, name) == NUMBER]
    if not numbers:
        return []
    values = [f"TRY_CAST({table.field(name)} AS DOUBLE)" for name in numbers]
    columns = ", ".join(f"{value} AS v{place}" for place, value in enumerate(values))
    rows = f"(SELECT {columns} FROM {table.source(0)} LIMIT {LOOKED_AT})"
    ends = ", ".join(f"min(v{place}), max(v{place})" for place in range(len(numbers)))
    found = table.duck.rows(f"SELECT {ends} FROM {rows}", str(table.paths[0]))[0]
    return [
        sentence
        for place, name in enumerate(numbers)
        for end in found[2 * place : 2 * place + 2]
        if end in MARKS and end not in _known(rules, name) and (sentence := _told(table, rows, place, name, int(end)))
    ]


def _known(rules: Rules, name: str) -> Sequence[float]:
    encoder = encoder_of(rules, name)
    return encoder.no_value if isinstance(encoder, NumberEncoder) else ()


def _told(table: TableFiles, rows: str, place: int, name: str, mark: int) -> str:
    """Returns the sentence about a column whose end is a mark; "" if it is like the other values, or stands once."""
    others = f"FILTER (v{place} <> {mark} AND NOT isnan(v{place}))"
    query = f"SELECT count(*) FILTER (v{place} = {mark}), count(v{place}), min(v{place}) {others}, max(v{place}) {others} FROM {rows}"
    ((count, total, low, high),) = table.duck.rows(query, str(table.paths[0]))
    if count < FEWEST or low is None or abs(mark - (low + high) / 2) < TIMES * max((high - low) / 2, 1):
        return ""
    way = f'{name} = {{ encoder = "standard", missing = "flag", no_value = [{mark}] }} in `encode`'
    return (
        f"column '{name}' of {table.paths[0].name}: {count:,} of {total:,} rows are {mark}, and all others lie from {low:g} to {high:g}: "
        f"if it means that there is no value, set {way}"
    )
