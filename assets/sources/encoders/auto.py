"""The choice of an encoder by the type of a column and its training values, as the TableVectorizer of skrub does.

Numbers are standardised, times get age and cyclic parts, texts of few distinct values a column each, other texts hashed words, lists a
column for each member. A column of a text file has numbers if all its training values are numbers, times if all are times. Gaps get the
mean, or zeros, and a flag if a training row has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from graphmill.assets.sources.encoders.categories import MultiHot, OneHot
from graphmill.assets.sources.encoders.encoder import (
    GAPS,
    LIST,
    NUMBER,
    NUMBER_LIST,
    TEXT,
    TIME,
    Encoder,
    Options,
    kind_of,
)
from graphmill.assets.sources.encoders.numbers import Standard, Vector
from graphmill.assets.sources.encoders.texts import Text
from graphmill.assets.sources.encoders.times import Time
from graphmill.assets.sources.encoders.training_rows import Values
from graphmill.assets.sources.readers.table_features import column_widths
from graphmill.assets.sources.readers.table_files import TableFiles

FEW = 40
"""Most distinct training values of a text that get a column each: cardinality_threshold of skrub."""


@dataclass(frozen=True, kw_only=True)
class Auto(Options):
    """An encoder that the column's type and values choose."""

    name: ClassVar[str] = "auto"
    gaps = GAPS

    def candidates(self, table: TableFiles, column: str) -> Sequence[Encoder]:
        """Returns the encoders of a column of this type, as wide as they may be; none for a type that no encoder reads."""
        kind, texts = kind_of(table, column), [OneHot(most=FEW), Text()]
        if table.is_csv:
            found: list[Encoder] = [Standard(), Time(), *texts]
        elif kind == NUMBER_LIST:
            found = [Vector(width=column_widths(table, [column])[0])]
        else:
            found = {NUMBER: [Standard()], TIME: [Time()], LIST: [MultiHot()], TEXT: texts}.get(kind, [])
        return [replace(each, missing="flag") for each in found]

    def choose(self, table: TableFiles, column: str, values: Values, num_rows: int) -> Encoder:
        """Returns the encoder."""
        count, no_numbers, no_times, nan, distinct = values.rows(
            "SELECT count(*), count(*) FILTER (TRY_CAST(v AS DOUBLE) IS NULL), count(*) FILTER (TRY_CAST(v AS TIMESTAMP) IS NULL), "
            "count(*) FILTER (isnan(TRY_CAST(v AS DOUBLE))), "
            f"(SELECT count(*) FROM (SELECT v FROM {{values}} GROUP BY v LIMIT {FEW + 1})) FROM {{values}}"
        )[0]
        found = self.candidates(table, column)
        if len(found) > 1:
            fits = {Standard: not no_numbers, Time: not no_times, OneHot: distinct <= FEW, Text: True}
            found = [each for each in found if fits[type(each)]]
        gaps = num_rows - count + (nan if isinstance(found[0], Standard) else 0)
        without = "mean" if "mean" in found[0].gaps else "zero"
        given = "zero" if self.missing == "mean" and without == "zero" else self.missing
        return replace(found[0], missing=given or ("flag" if gaps else without))
