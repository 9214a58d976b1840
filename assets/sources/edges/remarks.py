"""Sentences about edge tables that are sound and may mean something else: weights that float32 rounds, and files that are there twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from graphmill.assets.sources.features.types import WHOLE, rounded_weights
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.storage.files.digests import sha256_file


def edge_remarks(table: TableFiles, weight: str | None, largest: float, *, keeps: bool) -> list[str]:
    """Returns sentences about the table of edges.

    Args:
        weight: column of the weights; None without.
        largest: largest absolute weight, as float32.
        keeps: whether an edge that the table has twice counts twice.
    """
    rounded = [] if weight is None or largest < WHOLE["float32"] else _rounded(table, weight)
    return rounded + (_twice(table.paths) if keeps else [])


def _rounded(table: TableFiles, weight: str) -> list[str]:
    value = table.number("weight_column", weight, "DOUBLE")
    everything = table.union(value, distinct=False)
    wrong = f"v = floor(v) AND abs(v) > {WHOLE['float32']} AND CAST(CAST(v AS FLOAT) AS DOUBLE) <> v"
    ((count, example),) = table.duck.rows(f"SELECT count(*), min(v) FROM ({everything}) WHERE {wrong}")
    return [rounded_weights(f"{table.paths[0]}: column '{weight}'", count, int(example))] if count else []


def _twice(paths: Sequence[Path]) -> list[str]:
    """Returns a sentence about files of equal bytes; only files of equal sizes are read."""
    of_size: defaultdict[int, list[Path]] = defaultdict(list)
    for path in paths:
        of_size[path.stat().st_size].append(path)
    of_content: defaultdict[str, list[Path]] = defaultdict(list)
    for path in (path for same in of_size.values() if len(same) > 1 for path in same):
        of_content[sha256_file(path)].append(path)
    pairs = [f"{same[0]} and {same[1].name}" for same in of_content.values() if len(same) > 1]
    if not pairs:
        return []
    more = f", and {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
    return [f'{pairs[0]} are equal{more}, and duplicates = "keep" counts their edges twice: leave one out']
