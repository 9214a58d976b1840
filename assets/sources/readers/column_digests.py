"""Digests of the columns of a Parquet file, so that a changed column leaves artifacts that depend on other columns valid.

A column's digest is the SHA-256 over its part of the schema and, row group by row group, over its pages as they lie in the file. No value
is decoded: the digest costs one read of the column. So it covers a column's stored form: the same values that were written with another
compression, another size of row groups or by another program have another digest, and artifacts that depend on them are built again.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from graphmill.assets.sources.readers.duck import Duck, path_literal
from graphmill.assets.storage.files.digests import BLOCK_BYTES, remembered_digests
from graphmill.kernels.errors import InputError


class _Chunk(NamedTuple):
    """The pages of a leaf column in one row group."""

    start: int
    num_bytes: int
    facts: tuple[Any, ...]


def column_digests(duck: Duck, path: Path, columns: Sequence[str]) -> Mapping[str, str]:
    """Returns name -> digest of top-level columns of a Parquet file, 64 hex digits each, from the home's records if it did not change.

    Raises:
        InputError: the file is missing, damaged, or changes while it is read.
    """

    def digest(file: BufferedReader, names: Sequence[str]) -> dict[str, str]:
        leaves = top_columns(duck, path)
        chunks = _chunks(duck, path)
        return {name: _digest(file, path, leaves[name], chunks) for name in names}

    return remembered_digests(path, columns, digest)


def top_columns(duck: Duck, path: Path) -> dict[str, tuple[list[tuple[Any, ...]], list[int]]]:
    """Returns column -> (rows of the schema from it on downwards, numbers of its leaf columns), by the names that the file itself has.

    The schema lists a tree from the root.
    """
    sql = (
        "SELECT name, num_children, type, type_length, repetition_type, converted_type, scale, precision, logical_type "
        f"FROM parquet_schema({path_literal(path)})"
    )
    (_, *nodes) = duck.rows(sql, str(path))
    found: dict[str, tuple[list[tuple[Any, ...]], list[int]]] = {}
    place, leaf = 0, 0
    while place < len(nodes):
        first, open_nodes, leaves = place, 1, []
        while open_nodes:
            children = nodes[place][1] or 0
            if not children:
                leaves.append(leaf)
                leaf += 1
            open_nodes += children - 1
            place += 1
        found[nodes[first][0]] = (nodes[first:place], leaves)
    return found


def _chunks(duck: Duck, path: Path) -> dict[int, list[_Chunk]]:
    """Returns leaf column -> its chunks, in the order of the row groups."""
    sql = (
        "SELECT column_id, dictionary_page_offset, data_page_offset, total_compressed_size, row_group_num_rows, num_values, type, "
        f"compression, encodings FROM parquet_metadata({path_literal(path)}) ORDER BY row_group_id, column_id"
    )
    found: dict[int, list[_Chunk]] = {}
    for leaf, dictionary, data, num_bytes, *facts in duck.rows(sql, str(path)):
        # A chunk begins with its dictionary if it has one; some writers give 0 if it has none.
        start = min(offset for offset in (dictionary, data) if offset)
        found.setdefault(leaf, []).append(_Chunk(start, num_bytes, tuple(facts)))
    return found


def _digest(
    file: BufferedReader,
    path: Path,
    column: tuple[list[tuple[Any, ...]], list[int]],
    chunks: Mapping[int, list[_Chunk]],
) -> str:
    schema, leaves = column
    whole = hashlib.sha256(repr(schema).encode())
    for leaf in leaves:
        for chunk in chunks.get(leaf, ()):
            whole.update(repr(chunk.facts).encode())
            for piece in _pieces(file, path, chunk):
                whole.update(piece)
    return whole.hexdigest()


def _pieces(file: BufferedReader, path: Path, chunk: _Chunk) -> Iterator[bytes]:
    file.seek(chunk.start)
    left = chunk.num_bytes
    while left:
        piece = file.read(min(left, BLOCK_BYTES))
        if not piece:
            raise InputError(f"{path}: is cut short", "copy it again")
        left -= len(piece)
        yield piece
