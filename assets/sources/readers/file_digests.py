"""Digests of the files of a table: of the columns that are read if they are Parquet, else of the whole files."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphmill.assets.sources.readers.column_digests import column_digests
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.part_files import expand, file_kind, folder_columns
from graphmill.assets.sources.readers.table_features import left_out
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import TextForm
from graphmill.assets.storage.files.digests import sha256_file


def table_digests(
    duck: Duck,
    patterns: Sequence[Path],
    key: str,
    form: TextForm,
    roles: Mapping[str, str],
    names: Sequence[str] = (),
    *,
    apart: bool = False,
) -> dict[str, str]:
    """Returns KEY/NUMBER -> digest of each file of a table, or KEY/NUMBER/ROLE -> digest of each column.

    Args:
        roles: key of the configuration -> the column that it names.
        apart: whether each column of a Parquet file gets a digest of its own.

    Raises:
        InputError: a pattern names no file, a file cannot be read, or lacks a column.
    """
    paths = expand(patterns, key)
    if not paths:
        return {}
    text = file_kind(paths[0]) != "parquet"
    found = {f"{key}/{number:06d}": sha256_file(path) for number, path in enumerate(paths)} if text else {}
    if text and not any(map(folder_columns, paths)):
        return found
    table = TableFiles(duck, patterns, key, form)
    for role, column in roles.items():
        table.require(role, column)
    columns = list(dict.fromkeys([*names, *roles.values()]))
    number_of = {path: number for number, path in enumerate(paths)}
    for path in table.paths:
        digests, place = _of_columns(duck, path, columns, table), f"{key}/{number_of[path]:06d}"
        if apart and not text:
            found |= {f"{place}/{role}": digests[column] for role, column in roles.items()}
        elif digests:
            whole = "".join(f"{column}\0{digests[column]}\n" for column in columns if column in digests)
            found[f"{place}/folders" if text else place] = hashlib.sha256(whole.encode()).hexdigest()
    return found


def _of_columns(duck: Duck, path: Path, columns: Sequence[str], table: TableFiles) -> dict[str, str]:
    """Returns the digests of columns of a Parquet file, and of those that the names of the file's folders have; of text only the latter."""
    given = folder_columns(path)
    named = {
        column: hashlib.sha256(repr(given[column]).encode()).hexdigest()
        for column in columns
        if column in table.folder_types
    }
    own = [column for column in columns if column not in named]
    return dict(column_digests(duck, path, own)) | named if not table.is_csv else named


def left_out_digest(table: TableFiles, features: str | Sequence[str], key: str) -> dict[str, str]:
    """Returns a digest of the columns that patterns of features leave out, none if they leave out none.

    The digest of a text file is that of all columns, so that it does not tell which of them are features.
    """
    names = left_out(table, features)
    return {f"{key}/left out": hashlib.sha256("\0".join(names).encode()).hexdigest()} if names else {}
