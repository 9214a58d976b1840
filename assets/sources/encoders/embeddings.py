"""The encoder of texts by a function of the user's own, such as a sentence model.

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
from graphmill.assets.sources.encoders.encoder import TEXT, Encoder, Numbers, text_sql
from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.storage.names.user_code import find_source, load_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

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
