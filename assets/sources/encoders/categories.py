"""Encoders of categories: a column for each, a number for each, a hash, and a column for each member of a list.

Categories are texts: 7 and "7" are one. If their order matters, numbers come first in ascending order, then other texts by their UTF-8
bytes. A category that no training row has, or that is rarer there than `least`, counts as `other`. Sources: scikit-learn's OneHotEncoder
(min_frequency, handle_unknown="infrequent_if_exist"), OrdinalEncoder (unknown_value=-1) and MultiLabelBinarizer.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from graphmill.assets.building.keys import within
from graphmill.assets.sources.encoders.encoder import (
    LIST,
    NUMBER,
    NUMBER_LIST,
    TEXT,
    TIME,
    Encoder,
    Numbers,
    text_sql,
    zeros_at,
)
from graphmill.assets.sources.encoders.training_rows import Values
from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.duck import literal
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

OTHER = "other"
ORDER = "TRY_CAST(v AS DOUBLE) NULLS LAST, v"
MOST_ORDINALS = 1 << 16
MOST_BUCKETS = 1 << 12


class TextEncoder(Encoder):
    """An encoder of a column's text."""

    kinds = (TEXT, NUMBER, TIME)

    def staged(self, table: TableFiles, column: str) -> str:
        """Returns the text."""
        return text_sql(table, column)


class CategoryEncoder(TextEncoder):
    """An encoder that is fitted to `categories`."""

    def read(self, table: TableFiles, column: str) -> str:
        """Returns the code of the text."""
        return code_sql(text_sql(table, column))

    def ready(self, numbers: Numbers) -> Numbers:
        """Returns the numbers with the codes u64[C] of the categories in ascending order, and the place of each in the categories."""
        digests = (hashlib.md5(text.encode(), usedforsecurity=False).digest() for text in numbers["categories"])
        codes = np.array([int.from_bytes(digest[8:], "little") for digest in digests], np.uint64)
        order = np.argsort(codes)
        return {**numbers, "codes": codes[order], "places": order}


def code_sql(text: str) -> str:
    """Returns the expression of the code of a text: the last 8 bytes of its MD5 as a little-endian number.

    Two texts have one code with a probability of 2^-64. A cast to an ENUM takes 600 microseconds for a text that is not one of its 60,000
    members, since the message of the error names the nearest one.
    """
    return f"md5_number_lower({text})"


def places_of(read: Array, numbers: Numbers) -> Array:
    """Returns i64[n], the places among the categories of texts with the codes `read` u64[n]; -1 for other texts."""
    codes = numbers["codes"]
    if not len(codes):
        return np.full(len(read), -1)
    at = np.minimum(np.searchsorted(codes, read), len(codes) - 1)
    return np.where(codes[at] == read, numbers["places"][at], -1)


def frequent(values: Values, least: int, most: int) -> tuple[list[str], int]:
    """Returns the categories of at least `least` values, the most frequent ones if there are more than `most`, and the number of others."""
    counted = "(SELECT v, count(*) AS n FROM {values} GROUP BY v)"
    kept = f"(SELECT v FROM {counted} WHERE n >= {least} ORDER BY n DESC, {ORDER} LIMIT {most})"
    found = [str(text) for (text,) in values.rows(f"SELECT v FROM {kept} ORDER BY {ORDER}")]
    return found, int(values.rows(f"SELECT count(*) FROM {counted}")[0][0]) - len(found)


@dataclass(frozen=True, kw_only=True)
class OneHot(CategoryEncoder):
    """A column of zeros and ones for each category, and one for all others."""

    # Fewest training rows of a category with a column of its own.
    least: int = field(default=1, metadata=within(1))
    # Most categories with a column of their own: the most frequent ones.
    most: int = field(default=100, metadata=within(1, 10_000))

    name: ClassVar[str] = "onehot"

    @property
    def most_width(self) -> int:
        """The categories and the others."""
        return self.most + 1

    @property
    def least_width(self) -> int:
        """The others, if no category has enough rows."""
        return 1

    def fit(self, values: Values) -> Numbers:
        """Returns the categories, and the number of others in the training rows."""
        categories, others = frequent(values, self.least, self.most)
        return {"categories": categories, "others": others}

    def names(self, column: str, numbers: Numbers) -> list[str]:
        """Returns a name for each category, and that of the others."""
        return [f"{column} = {category}" for category in [*numbers["categories"], OTHER]]

    def encode(self, read: Column, numbers: Numbers, gaps: Array) -> Array:
        """Returns f64[n, categories + 1]."""
        encoded = np.zeros((len(gaps), len(numbers["categories"]) + 1))
        encoded[np.arange(len(gaps)), np.where(gaps, -1, places_of(read.values, numbers))] = 1
        return zeros_at(encoded, gaps)


class Ordinal(CategoryEncoder):
    """The place of the category among all of the training rows, from 0; -1 for another one and for a gap."""

    name = "ordinal"

    def fit(self, values: Values) -> Numbers:
        """Returns the categories; raises InputError if there are more than 65,536."""
        categories, others = frequent(values, 1, MOST_ORDINALS)
        if others:
            problem = f"ordinal of more than {MOST_ORDINALS:,} categories"
            raise InputError(problem, 'set "hash", or "text" for texts of several words')
        return {"categories": categories}

    def encode(self, read: Column, numbers: Numbers, gaps: Array) -> Array:
        """Returns f64[n, 1]."""
        return np.where(gaps, -1, places_of(read.values, numbers)).astype(np.float64)[:, None]


def bucket_sql(text: str, buckets: int) -> str:
    """Returns the expression of a text's bucket: its code modulo the number of buckets."""
    return f"CAST({code_sql(text)} % {buckets} AS USMALLINT)"


@dataclass(frozen=True, kw_only=True)
class Hash(TextEncoder):
    """A column of zeros and ones for each of a number of buckets, into which a hash puts the categories: nothing is fitted."""

    # Number of columns.
    buckets: int = field(default=32, metadata=within(2, MOST_BUCKETS))

    name: ClassVar[str] = "hash"

    @property
    def most_width(self) -> int:
        """The buckets."""
        return self.buckets

    def read(self, table: TableFiles, column: str) -> str:
        """Returns the bucket."""
        return bucket_sql(text_sql(table, column), self.buckets)

    def names(self, column: str, numbers: Numbers) -> list[str]:
        """Returns a name for each bucket."""
        return [f"{column} # {bucket}" for bucket in range(self.buckets)]

    def encode(self, read: Column, numbers: Numbers, gaps: Array) -> Array:
        """Returns f64[n, buckets]."""
        encoded = np.zeros((len(gaps), self.buckets))
        encoded[np.arange(len(gaps)), np.where(gaps, 0, read.values)] = 1
        return zeros_at(encoded, gaps)


@dataclass(frozen=True, kw_only=True)
class MultiHot(OneHot):
    """A column of zeros and ones for each member of lists, and one for all others: lists, or texts with a separator."""

    # Separates the members in a column of text.
    separator: str = ""

    name: ClassVar[str] = "list"
    kinds = (LIST, NUMBER_LIST, TEXT)

    def refusal(self, table: TableFiles, column: str) -> str:
        """Returns why the column has no lists of texts."""
        if table.type_of(column) == "VARCHAR" and not self.separator:
            return 'is text, and list needs its separator: { encoder = "list", separator = "|" }'
        return super().refusal(table, column)

    def staged(self, table: TableFiles, column: str) -> str:
        """Returns the members as a list of texts."""
        if table.type_of(column).endswith("]"):
            texts = f"list_transform({table.field(column)}, lambda x: CAST(x AS VARCHAR))"
            return f"list_filter({texts}, lambda x: x IS NOT NULL)"
        split = f"string_split({text_sql(table, column)}, {literal(self.separator)})"
        return f"list_filter(list_transform({split}, lambda x: trim(x)), lambda x: x <> '')"

    def fit(self, values: Values) -> Numbers:
        """Returns the members, counted once per row, and the number of others."""
        return super().fit(replace(values, sql=f"SELECT unnest(list_distinct(v)) AS v FROM ({values.sql})"))

    def read(self, table: TableFiles, column: str) -> str:
        """Returns the list of the codes of the members."""
        return f"list_transform({self.staged(table, column)}, lambda x: {code_sql('x')})"

    def encode(self, read: Column, numbers: Numbers, gaps: Array) -> Array:
        """Returns f64[n, members + 1]."""
        assert read.lengths is not None
        encoded = np.zeros((len(gaps), len(numbers["categories"]) + 1))
        encoded[np.repeat(np.arange(len(gaps)), read.lengths), places_of(read.values, numbers)] = 1
        return zeros_at(encoded, gaps)
