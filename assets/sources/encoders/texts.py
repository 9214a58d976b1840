"""The encoder of texts: counts of hashed words and of their sequences, weighted by how few training rows have them.

Words are runs of at least two letters, digits or underscores, in lower case. Each sequence of up to `ngrams` words goes into one of
`buckets` columns by its hash, so no vocabulary is held. A column is count x idf, idf = log((1 + n) / (1 + d)) + 1 for n training texts of
which d have the bucket; each row is divided by its Euclidean norm. Source: scikit-learn's TfidfTransformer over counts of a
HashingVectorizer, with another hash. Memory: 2 bytes for each sequence of a batch of 122,880 texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from graphmill.assets.building.keys import within
from graphmill.assets.sources.encoders.categories import MOST_BUCKETS, bucket_sql
from graphmill.assets.sources.encoders.encoder import TEXT, Encoder, Numbers, part_of, text_sql
from graphmill.assets.sources.encoders.training_rows import Values
from graphmill.assets.sources.features.blocks import row_ranges
from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.table_files import TableFiles
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
