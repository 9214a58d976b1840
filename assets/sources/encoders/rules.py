"""The key `encode`: which encoder a column gets, by its name or by a pattern.

    encode = "auto"                                                   every column by its type and its training values
    encode = { "price" = "log", "city_*" = "onehot" }                 names of encoders
    encode = { "city" = { encoder = "onehot", least = 10 } }          an encoder with options
    encode = { "review" = { encoder = "embedding", function = "reviews:embed", width = 384 } }          a function of the user's

A column's own name goes before patterns, and of patterns the first that fits counts. A column that no rule fits stays a number.

The encoder "auto" goes by the type of a column and its training values, as the TableVectorizer of skrub does. Numbers are standardised,
times get age and cyclic parts, texts of few distinct values a column each, other texts hashed words, lists a column for each member. A
column of a text file has numbers if all its training values are numbers, times if all are times. Gaps get the mean, or zeros, and a flag if
a training row has one.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

from graphmill.assets.building.keys import ConfigError, KeyProblem
from graphmill.assets.sources.encoders.categories import Hash, MultiHot, OneHot, Ordinal
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
from graphmill.assets.sources.encoders.numbers import Log, MinMax, Plain, RankNormal, Standard, Vector
from graphmill.assets.sources.encoders.texts import Embedding, Text
from graphmill.assets.sources.encoders.times import Time
from graphmill.assets.sources.encoders.training_rows import Values
from graphmill.assets.sources.readers.table_features import column_widths
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.storage.files.digests import code_digests
from graphmill.assets.storage.names.user_code import Reference
from graphmill.kernels.errors import InputError, did_you_mean

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


PLAIN = re.compile(r"[^.\s]+")
"""Columns whose rule has a path of keys of its own."""
Encode = Literal["auto"] | Mapping[str, str | Mapping[str, Reference | Any]] | None
"""The values of the key."""
ENCODERS: Mapping[str, type[Encoder] | type[Auto]] = {
    each.name: each
    for each in (Auto, Standard, MinMax, Log, RankNormal, Plain, OneHot, Ordinal, Hash, MultiHot, Time, Text, Embedding)
}
"""Name in a pipeline file -> encoder."""

FITTED = ("column", "fitted", "columns")
"""Keys of a column in `encoders.json` that are not options of its encoder."""

Rules = Sequence[tuple[str, Encoder | Auto]]
"""Patterns and their encoders, those of a column's own name and of a node type first."""


def rules_of(encode: Encode) -> Rules:
    """Returns the rules of a value of the key that has no problems."""
    given = {"*": encode} if isinstance(encode, str) else encode or {}
    return [(pattern, _encoder(rule)) for pattern, rule in given.items()]


def encode_problems(encode: Encode) -> Iterator[KeyProblem]:
    """Yields the mistakes in a value of the key: unknown encoders and options, and values that an option does not have."""
    for pattern, rule in ({"*": encode} if isinstance(encode, str) else encode or {}).items():
        where = "encode" if isinstance(encode, str) else f"encode.{pattern}"
        key = where if PLAIN.fullmatch(pattern) else "encode"
        yield from (KeyProblem(key, f"{where}: {text}") for text in _rule_problems(rule))


def encoder_of(rules: Rules, column: str) -> Encoder | Auto | None:
    """Returns the encoder of a column; None if no rule fits."""
    own = (encoder for pattern, encoder in rules if pattern == column)
    fitting = (encoder for pattern, encoder in rules if "*" in pattern and fnmatch.fnmatchcase(column, pattern))
    return next(own, None) or next(fitting, None)


def require_used(rules: Rules, columns: Sequence[str], where: str) -> None:
    """Refuses names and patterns that fit none of the feature columns; `where` is the table of the pipeline file.

    Raises:
        InputError: one of them fits none.
    """
    for pattern, _ in rules:
        if pattern not in columns and not ("*" in pattern and fnmatch.filter(columns, pattern)):
            problem = f"{where}: encode names {pattern!r}, which fits no feature column{did_you_mean(pattern, columns, chr(39))}"
            raise InputError(
                problem, f"the feature columns are {', '.join(columns)}: correct it, or name it in `features`"
            )


def spelled(rules: Rules) -> list[Any]:
    """Returns the rules as they are hashed: pattern, name of the encoder, and the options that are not at their defaults."""
    return [[pattern, encoder.name, options(encoder)] for pattern, encoder in rules]


def rule_digests(rules: Rules) -> Mapping[str, str]:
    """Returns encoder/FUNCTION -> SHA-256 of the module's file, for the functions of the user's in the rules."""
    functions = [encoder.function for _, encoder in rules if isinstance(encoder, Embedding)]
    return code_digests({f"encoder/{function}": function for function in functions})


def fitted_before(columns: Sequence[Mapping[str, Any]]) -> Rules:
    """Returns the encoders of columns as `encoders.json` has them, without what they were fitted to."""
    return [(each["column"], _encoder({key: each[key] for key in each if key not in FITTED})) for each in columns]


def options(encoder: Encoder | Auto) -> dict[str, Any]:
    """Returns the options of an encoder that are not at their defaults."""
    given = {each.name: (getattr(encoder, each.name), each.default) for each in fields(encoder)}
    return {name: value for name, (value, default) in given.items() if value != default}


def _encoder(rule: str | Mapping[str, Any]) -> Encoder | Auto:
    given = {"encoder": rule} if isinstance(rule, str) else rule
    chosen: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return {**ENCODERS, Vector.name: Vector}[chosen.pop("encoder")](**chosen)


def _rule_problems(rule: Any) -> Iterator[str]:
    given = {"encoder": rule} if isinstance(rule, str) else rule
    name = given.get("encoder")
    if name is None:
        yield 'lacks the key encoder: { encoder = "onehot", least = 10 }'
    elif not isinstance(name, str) or name not in ENCODERS:
        yield f"{name!r} is not one of {', '.join(ENCODERS)}{did_you_mean(name, ENCODERS, chr(39))}"
    else:
        known = [each.name for each in fields(ENCODERS[name])]
        unknown = [key for key in given if key not in ("encoder", *known)]
        yield from (
            f"{name} has no option {key}{did_you_mean(key, known)}; it has {', '.join(known)}" for key in unknown
        )
        if not unknown:
            try:
                _encoder(given)
            except ConfigError as error:
                yield from (each.text for each in error.problems)
