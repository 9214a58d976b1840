"""The encoded feature columns of a table: their checks by the headers, their fit on the training rows, and their rows as a block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphmill.assets.sources.encoders.encoder import NUMBER, NUMBER_LIST, Encoder, Numbers, kind_of, part_of, text_sql
from graphmill.assets.sources.encoders.numbers import NumberEncoder, Plain, Vector
from graphmill.assets.sources.encoders.rules import (
    ENCODERS,
    Auto,
    Encode,
    Rules,
    encoder_of,
    options,
    require_used,
    rules_of,
)
from graphmill.assets.sources.encoders.training_rows import TrainingRows, Values
from graphmill.assets.sources.features.blocks import FeatureBlock, row_ranges
from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.duck import FIX_FILE
from graphmill.assets.sources.readers.table_features import column_widths, feature_columns
from graphmill.assets.sources.readers.table_files import TableFiles, TableRows
from graphmill.kernels.errors import Attempts, InputError, joined
from graphmill.kernels.types import Array

COPIES = 4
"""Copies of a slice of rows as float64: as read, with gaps filled, converted, and joined."""
SCORED = ("label_column", "split_column")
"""Keys whose columns are not encoded: they tell what is to be predicted."""
GIVE_MISSING = 'set missing = "mean", "zero" or "flag" for the column: {{ encoder = "{0}", missing = "zero" }}'


@dataclass(frozen=True)
class Fitted:
    """A column with its encoder and the fitted numbers."""

    column: str
    encoder: Encoder
    numbers: Numbers

    @cached_property
    def ready(self) -> Numbers:
        """What the encoder converts values by."""
        return self.encoder.ready(self.numbers)

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns that it makes."""
        flag = [f"{self.column} is missing"] if self.encoder.missing == "flag" else []
        return [*self.encoder.names(self.column, self.numbers), *flag]

    def document(self) -> dict[str, Any]:
        """Returns the column as `encoders.json` has it."""
        chosen = {"column": self.column, "encoder": self.encoder.name, **options(self.encoder)}
        return {**chosen, "fitted": dict(self.numbers), "columns": self.names}


class EncodedColumns:
    """The feature columns of a table, each with an encoder.

    Args:
        name: name of the table that is unique among those of a source.
        checked: whether columns are refused that cannot be encoded as they are; without, only `bounds` may be asked.

    Raises:
        InputError: columns that the table lacks, that no encoder reads, that are not numbers and that no rule names, or that have what is
            to be predicted; all of them.
    """

    def __init__(
        self, table: TableFiles, features: str | Sequence[str], rules: Rules, name: str, *, checked: bool = True
    ):
        self.table, self.name, self.rules = table, name, rules
        self._ruled = {pattern for pattern, _ in rules}
        self._chosen = [(column, self._encoder(rules, column)) for column in feature_columns(table, features)]
        if checked and (errors := [error for pair in self._chosen if (error := self._refusal(*pair))]):
            raise joined(errors)

    def _encoder(self, rules: Rules, column: str) -> Encoder | Auto:
        found = encoder_of(rules, column)
        if found is None and kind_of(self.table, column) == NUMBER_LIST:
            return Vector(width=column_widths(self.table, [column])[0])
        return found or Plain()

    def _refusal(self, column: str, encoder: Encoder | Auto) -> InputError | None:
        table = self.table
        if table.taken.get(column) in SCORED:
            role = table.taken[column]
            problem = f"{table.paths[0]}: column '{column}' is among the features and is the {role} of {table.section}"
            return InputError(problem, "leave it out of `features`: a model would read what it is to predict")
        why = self._unreadable(column, encoder)
        if not why:
            return self._gap(column, encoder)
        if encoder_of(self.rules, column) is not None:
            return InputError(f"{table.paths[0]}: column '{column}' {why}", "give it another encoder, or leave it out")
        problem = f"{table.paths[0]}: column '{column}' is {table.type_of(column)}, not numbers, and `encode` does not name it"
        return InputError(problem, f'give it an encoder: encode = {{ "{column}" = "auto" }}')

    def _unreadable(self, column: str, encoder: Encoder | Auto) -> str:
        """Returns why an encoder cannot read a column of this type, in words; "" if it can."""
        if not isinstance(encoder, Auto):
            return encoder.refusal(self.table, column)
        candidates = encoder.candidates(self.table, column)
        return "" if candidates else f"is {self.table.type_of(column)}, which no encoder reads"

    def _gap(self, column: str, encoder: Encoder | Auto) -> InputError | None:
        """Returns the error of a gap that the statistics of the files count, and that an encoder does not read."""
        filled = isinstance(encoder, Auto) or encoder.missing is not None
        gap = None if filled else self.table.first_gap(column)
        return None if gap is None else self._is_empty(*gap, column, encoder)

    def _is_empty(self, file: int, row: int, column: str, encoder: Encoder | Auto) -> InputError:
        name = encoder.name if encoder.name in ENCODERS else "auto"
        return InputError(f"{self.table.place(file, row)}: column '{column}' is empty", GIVE_MISSING.format(name))

    def bounds(self) -> list[tuple[float, float]]:
        """Returns the fewest and the most columns that each column makes; one that cannot be read may be left out or get any encoder."""
        found: list[tuple[float, float]] = []
        for column, encoder in self._chosen:
            if self._unreadable(column, encoder):
                found.append((0, math.inf))
                continue
            flagged, each = encoder.missing == "flag", self._candidates(column, encoder)
            may = flagged or isinstance(encoder, Auto) or self._gap(column, encoder) is not None
            found.append((min(e.least_width for e in each) + flagged, max(e.most_width for e in each) + may))
        return found

    @property
    def names(self) -> list[str]:
        """Names of the columns of the table."""
        return [column for column, _ in self._chosen]

    @property
    def most_width(self) -> int:
        """Most columns of the encoded rows, as far as the headers tell."""
        candidates = (self._candidates(*pair) for pair in self._chosen)
        return sum(max(each.most_width + (each.missing == "flag") for each in found) for found in candidates)

    @property
    def described(self) -> str:
        """The encoders in words."""
        encoders = ", ".join(f"{column} {encoder.name}" for column, encoder in self._chosen)
        return f"features: at most {self.most_width:,} float32 columns: {encoders}"

    def _candidates(self, column: str, encoder: Encoder | Auto) -> Sequence[Encoder]:
        return encoder.candidates(self.table, column) if isinstance(encoder, Auto) else [encoder]

    def surveyed(self, first: int, num_rows: int) -> FeatureBlock:
        """Returns the block before it is fitted: as wide as it may be, and without rows."""
        return FeatureBlock(
            where=str(self.table.paths[0]), first=first, num_rows=num_rows, width=self.most_width,
            dtype=np.dtype(np.float32), slices=lambda: iter(()),
        )  # fmt: skip

    def block(
        self,
        first: int,
        num_rows: int,
        node_of_row: Array | None,
        training: Array | None,
        before: Sequence[Mapping[str, Any]] = (),
    ) -> FeatureBlock:
        """Fits the encoders and returns the encoded rows f32[num_rows, width].

        Args:
            first, num_rows, node_of_row: see `FeatureBlock`.
            training: bool[num_rows] true for the rows of the table that are fitted; None for all rows.
            before: the columns of another table with what they were fitted to, as `encoders.json` has them; nothing is fitted then.

        Raises:
            InputError: there is no training row, or a column cannot be fitted. The slices raise it for gaps and for values that an encoder
                does not read.
        """
        fitted = self._taken(before) if before else self._fit(training)
        names = [name for each in fitted for name in each.names]
        of_name = [each.column for each in fitted for _ in each.names]
        return FeatureBlock(
            where=f"{self.table.paths[0]}: {len(fitted)} encoded columns",
            first=first,
            num_rows=num_rows,
            width=len(names),
            dtype=np.dtype(np.float32),
            slices=lambda: self._slices(fitted, len(names)),
            place=lambda row, column: f"{self.table.paths[0]}: row {row} of the table: column '{of_name[column]}'",
            column=lambda column: names[column],
            node_of_row=node_of_row,
            named_twice=[
                f"column '{name}' is also the {self.table.taken[name]}"
                for name in self.names
                if name in self.table.taken and name not in self._ruled  # a rule of its own says that it is meant
            ],
            encoders=[each.document() for each in fitted],
        )

    def _taken(self, before: Sequence[Mapping[str, Any]]) -> list[Fitted]:
        numbers, chosen = {each["column"]: each["fitted"] for each in before}, dict(self._chosen)
        return [Fitted(column, each, numbers[column]) for column, each in chosen.items() if not isinstance(each, Auto)]

    def _fit(self, training: Array | None) -> list[Fitted]:
        table, chosen = self.table, dict(self._chosen)
        if undecided := {column: each for column, each in chosen.items() if isinstance(each, Auto)}:
            texts = [text_sql(table, column) for column in undecided]
            with TrainingRows(table, texts, training, f"{self.name}_texts") as rows:
                self._require_rows(rows)
                for number, (column, auto) in enumerate(undecided.items()):
                    chosen[column] = auto.choose(table, column, rows.values(number), rows.count)
        encoders = {column: each for column, each in chosen.items() if not isinstance(each, Auto)}
        staged = [each.staged(table, column) for column, each in encoders.items()]
        with TrainingRows(table, staged, training, self.name) as rows:
            self._require_rows(rows)
            return [self._fit_column(*pair, rows.values(number)) for number, pair in enumerate(encoders.items())]

    def _require_rows(self, rows: TrainingRows) -> None:
        if not rows.count:
            problem = f"{self.table.paths[0]}: no row is a training row, and encoders are fitted on those alone"
            raise InputError(
                problem, "give training nodes of this type, or write its features as numbers without encode"
            )

    def _fit_column(self, column: str, encoder: Encoder, values: Values) -> Fitted:
        if not values.rows("SELECT count(*) FROM {values}")[0][0]:
            problem = f"{self.table.paths[0]}: column '{column}' is empty in every training row"
            raise InputError(problem, "leave it out of the features")
        try:
            return Fitted(column, encoder, encoder.fit(values))
        except InputError as error:
            raise InputError(f"{self.table.paths[0]}: column '{column}': {error.problem}", error.remedy) from error

    def _slices(self, fitted: Sequence[Fitted], width: int) -> Iterator[tuple[int, Array]]:
        read = [each.encoder.read(self.table, each.column) for each in fitted]
        for rows in self.table.select(read):
            for low, high in row_ranges(rows.count, width * 8 * COPIES):
                encoded = np.empty((high - low, width), np.float32)
                done = 0
                for each, column in zip(fitted, rows.columns, strict=True):
                    part = self._encoded(each, part_of(column, low, high), rows, low)
                    with np.errstate(over="ignore"):
                        encoded[:, done : done + part.shape[1]] = part
                    done += part.shape[1]
                yield rows.start + low, encoded

    def _encoded(self, fitted: Fitted, read: Column, rows: TableRows, low: int) -> Array:
        """Returns f64[n, width] of one column, whose gaps and other wrong values are refused."""
        encoder, wrong, gaps = fitted.encoder, fitted.encoder.wrong(read), fitted.encoder.absent(read)
        if wrong is not None and wrong.any():
            why = f"which encoder {encoder.name} does not read"
            row = rows.first + low + int(np.flatnonzero(wrong)[0])
            raise self.table.refusal(
                rows.file, row, fitted.column, why, f"give the column another encoder, or {FIX_FILE}"
            )
        if encoder.missing is None and gaps.any():
            row = rows.first + low + int(np.flatnonzero(gaps)[0])
            raise self._is_empty(rows.file, row, fitted.column, encoder)
        encoded = encoder.encode(read, fitted.ready, gaps)
        return np.concatenate([encoded, gaps[:, None]], axis=1) if encoder.missing == "flag" else encoded


def encoded_columns(table: TableFiles, features: str | Sequence[str], encode: Encode) -> EncodedColumns:
    """Returns the encoded columns of a source's only table of nodes; raises InputError also for a rule that fits no column."""
    rules, attempts = rules_of(encode), Attempts()
    attempts(require_used, rules, feature_columns(table, features), "[features]")
    found = attempts(EncodedColumns, table, features, rules, "encoded_nodes")
    attempts.settle()
    return found


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
