"""Encoders of texts: by counts of hashed words, and by a function of the user's own, such as a sentence model.

Counts of words and of their sequences are weighted by how few training rows have them. Words are runs of at least two letters, digits or
underscores, in lower case. Each sequence of up to `ngrams` words goes into one of `buckets` columns by its hash, so no vocabulary is held.
A column is count x idf, idf = log((1 + n) / (1 + d)) + 1 for n training texts of which d have the bucket; each row is divided by its
Euclidean norm. Source: scikit-learn's TfidfTransformer over counts of a HashingVectorizer, with another hash. Memory: 2 bytes for each
sequence of a batch of 122,880 texts.

    def embed(texts):                   # list of str
        return rows                     # numbers [len(texts), width], an array or a tensor on the CPU

The function gets the texts of consecutive rows, at most 8 MiB of encoded rows at once, and no gap. Its row of a text may depend on that
text alone. The source of the function and of what it uses is part of the version of the features; model files that it reads are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from graphmill.assets.building.keys import KeyProblem, within
from graphmill.assets.sources.encoders.categories import MOST_BUCKETS, bucket_sql
from graphmill.assets.sources.encoders.encoder import TEXT, Encoder, Numbers, part_of, text_sql
from graphmill.assets.sources.encoders.training_rows import Values
from graphmill.assets.sources.features.blocks import row_ranges
from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.storage.names.user_code import find_source, load_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

WORD = r"[\p{L}\p{N}_]{2,}"


@dataclass(frozen=True, kw_only=True)
class Text(Encoder):
    """Hashed words with their rarity in the training rows."""

    # Number of columns.
    buckets: int = field(default=128, metadata=within(2, MOST_BUCKETS))
    # Most words of a sequence that counts as one.
    ngrams: int = field(default=1, metadata=within(1, 3))

    name: ClassVar[str] = "text"
    kinds = (TEXT,)

    @property
    def most_width(self) -> int:
        """The buckets."""
        return self.buckets

    def staged(self, table: TableFiles, column: str) -> str:
        """Returns the list of the buckets of all sequences of words."""
        words = f"regexp_extract_all(lower({text_sql(table, column)}), '{WORD}')"
        sequences = ["w"]
        for length in range(2, self.ngrams + 1):
            places = f"range(1, len(w) - {length - 2})"
            sequences.append(f"list_transform({places}, lambda i: array_to_string(w[i : i + {length - 1}], ' '))")
        listed = f"list_concat({', '.join(sequences)})" if len(sequences) > 1 else "w"
        buckets = f"list_transform({listed}, lambda x: {bucket_sql('x', self.buckets)})"
        # A lambda over the one list of words: written out in its place, the words would be found anew for each sequence.
        return f"CASE WHEN {table.field(column)} IS NOT NULL THEN list_transform([{words}], lambda w: {buckets})[1] END"

    def fit(self, values: Values) -> Numbers:
        """Returns the weight of each bucket."""
        texts, having = 0, np.zeros(self.buckets, np.int64)
        for batch in values.batches():
            assert batch.lengths is not None
            texts += len(batch.lengths)
            for low, high in row_ranges(len(batch.lengths), self.buckets * 8):
                having += (self._counts(part_of(batch, low, high)) > 0).sum(axis=0)
        return {"idf": (np.log((1 + texts) / (1 + having)) + 1).tolist()}

    def names(self, column: str, numbers: Numbers) -> list[str]:
        """Returns a name for each bucket."""
        return [f"{column} # {bucket}" for bucket in range(self.buckets)]

    def encode(self, read: Column, numbers: Numbers, gaps: Array) -> Array:
        """Returns f64[n, buckets]; a text without words has zeros."""
        weighted = self._counts(read) * np.array(numbers["idf"])
        norms = np.sqrt(np.add.accumulate(weighted**2, axis=1)[:, -1:])
        return weighted / np.where(norms == 0, 1, norms)

    def _counts(self, read: Column) -> Array:
        """Returns i64[n, buckets]: how often each text has each bucket."""
        assert read.lengths is not None
        rows = np.repeat(np.arange(len(read.lengths)), read.lengths)
        counts = np.bincount(rows * self.buckets + read.values, minlength=len(read.lengths) * self.buckets)
        return counts.reshape(len(read.lengths), self.buckets)


MOST_WIDTH = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Embedding(Encoder):
    """Rows of numbers that a function of the user's makes of texts; nothing is fitted."""

    # The function, as "module:name".
    function: str = ""
    # Number of columns.
    width: int = field(default=1, metadata=within(1, MOST_WIDTH))

    name: ClassVar[str] = "embedding"
    kinds = (TEXT,)

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a function that is missing, or whose module is not found."""
        yield from super().problems()
        if not isinstance(self.function, str):
            return
        try:
            find_source(self.function)
        except InputError as error:
            yield KeyProblem("function", f"function = {error.problem}; {error.remedy}")

    @property
    def most_width(self) -> int:
        """The width."""
        return self.width

    def staged(self, table: TableFiles, column: str) -> str:
        """Returns whether there is a text; its words are not fitted."""
        return f"CASE WHEN {table.field(column)} IS NOT NULL THEN true END"

    def read(self, table: TableFiles, column: str) -> str:
        """Returns the text."""
        return text_sql(table, column)

    def names(self, column: str, numbers: Numbers) -> list[str]:
        """Returns a name for each place of the rows."""
        return [f"{column}[{place}]" for place in range(self.width)]

    def encode(self, read: Column, numbers: Numbers, gaps: Array) -> Array:
        """Returns f64[n, width]."""
        encoded = np.zeros((len(gaps), self.width))
        if not gaps.all():
            encoded[~gaps] = self._rows(read.texts(~gaps))
        return encoded

    def _rows(self, texts: Sequence[str]) -> Array:
        """Calls the function; raises InputError if it failed, or returned something else than numbers of this shape."""
        where = f"{self.function} for {len(texts)} texts"
        function = self._function
        try:
            found = np.asarray(function(texts))
        except Exception as error:
            raise InputError(f"{where} failed: {type(error).__name__}: {error}", "correct the function") from error
        if found.shape != (len(texts), self.width) or found.dtype.kind not in "iuf":
            problem = f"{where} returned {found.dtype}{list(found.shape)}"
            wanted = f"numbers [{len(texts)}, {self.width}], a row for each text"
            raise InputError(problem, f"return {wanted}, or set width in `encode`")
        return found

    @cached_property
    def _function(self) -> Callable[[Sequence[str]], Any]:
        found = load_reference(self.function)
        if not callable(found):
            raise InputError(f"{self.function} is {type(found).__name__}, not a function", "name a function")
        return found
