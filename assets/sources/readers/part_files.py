"""The files of a table: those of a path, a pattern, or a folder of part files, and what kind of file each is.

Spark, Dask, BigQuery and DuckDB write a table as a folder. Its part files are all files below it, in the order of their names, except those
whose name, or whose folder's name, begins with `_` or `.`: markers such as `_SUCCESS`, checksums and metadata. Numbers in names count as
numbers: part.2 before part.10.

Delta, Iceberg and others keep rows that were deleted beside those of now, in files that look like any part. Their metadata tell; no file at
or below a folder with such metadata is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from graphmill.assets.sources.readers.foreign import foreign
from graphmill.assets.sources.readers.packing import PACKED, first_bytes
from graphmill.assets.storage.names.patterns import in_order, matches, why_nothing, written
from graphmill.kernels.errors import InputError

PARQUET, CSV = (".parquet", ".pq"), (".csv", ".tsv")
LISTS = (".txt", ".edges", ".edgelist", ".el", ".wel", ".ncol", ".tab", ".dat")
"""Names of lists of edges, as SNAP, KONECT, Network Repository, networkx and igraph write them."""
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
MANAGED = {
    "a Delta table": ("_delta_log",),
    "a Hudi table": (".hoodie",),
    "an Iceberg table": ("metadata/*.metadata.json*", "metadata/version-hint.text", "metadata/snap-*.avro"),
    "a Lance table": ("_versions/*.manifest", "_latest.manifest"),
    "a Paimon table": ("snapshot/LATEST", "snapshot/snapshot-*"),
}
"""Format of a table whose folder keeps old rows -> what its folder has, of which one is enough."""


def expand(patterns: Sequence[Path], key: str) -> list[Path]:
    """Returns the files that paths, folders and patterns name: each pattern's files in the order of their names, no file twice.

    Raises:
        InputError: a pattern names no file, a folder is not a finished table, or a file belongs to a table that keeps old rows.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        named = matches(pattern)
        start = written(pattern)
        if start < len(pattern.parts) and not any(part.startswith("_") for part in pattern.parts[start:]):
            named = [path for path in named if not _hidden(path.parts[start:])]
        files = [file for path in named for file in (part_files(path) if path.is_dir() else [path])]
        if not files:
            raise _nothing(pattern, key)
        found |= dict.fromkeys(files)
    refuse_managed(found)
    return list(found)


def refuse_managed(paths: Iterable[Path]) -> None:
    """Refuses folders, and files below folders, of formats that keep old rows."""
    for folder in dict.fromkeys(folder for path in paths for folder in (path, *path.parents)):
        for what, marks in MANAGED.items():
            if any(any(folder.glob(mark)) for mark in marks):
                problem = f"{folder} is {what}, whose files also have rows of the past, which were deleted or replaced"
                form, new = what.split()[1].lower(), f"{folder.name}-now"
                command = f'spark.read.format("{form}").load("{folder}").write.parquet("{new}")'
                raise InputError(
                    problem, f"write its present rows as Parquet, for example in Spark: {command}, and name {new}"
                )


def part_files(folder: Path) -> list[Path]:
    """Returns the part files of a folder, at any depth, in the order of their names.

    Raises:
        InputError: the folder belongs to a table that has to be read in another way, is not finished, has a file twice, or a link to no
            file.
    """
    refuse_managed([folder])
    if (folder / "_temporary").exists():
        problem = f"{folder} holds _temporary, so the program that writes it has not finished"
        raise InputError(problem, "wait for it, or write the table again")
    below = [path for path in folder.rglob("*") if not _hidden(path.relative_to(folder).parts)]
    for path in below:
        if path.is_symlink() and not path.is_file():
            what = "a folder, which is not followed" if path.is_dir() else "nothing that is there"
            raise InputError(f"{path} is a link to {what}", "remove the link, or name its folder beside this one")
    files = in_order(path for path in below if path.is_file())
    plain = {str(path): path for path in files}
    for path in files:
        packed = next((ending for ending in PACKED if path.name.lower().endswith(ending)), "")
        if packed and (twin := plain.get(str(path)[: -len(packed)])):
            raise InputError(f"{twin} and {path.name} look like one file, once packed", "leave one of them out")
    return files


def _hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith(("_", ".")) for part in parts)


def _nothing(pattern: Path, key: str) -> InputError:
    if pattern.is_dir():
        return InputError(f"{key}: {pattern} is a folder without part files", f'name files, such as "{key}-*.parquet"')
    what = why_nothing(pattern)
    table = "." in key
    remedy = (
        f"correct `path` in [graph.{key}]" if table else f'correct `{key}` in [graph], for example "{key}-*.parquet"'
    )
    if "remote" in what:
        remedy = "download the files, and give their local path"
    return InputError(f"{key}: {pattern} {what}", remedy)


def file_kind(path: Path) -> str:
    """Returns "parquet" or "csv", which is any text with one row per line; the first bytes decide, and then the name.

    Raises:
        InputError: the file is neither; the remedy makes a file of it that is read.
    """
    start = first_bytes(path)
    if start[:4] == b"PAR1":
        return "parquet"
    if other := foreign(path, start):
        problem, remedy = other
        raise InputError(f"{path}: is {problem}, which is not read", remedy)
    for name in (path.name, path.parent.name):  # Hadoop calls the parts of edges.csv part-00000
        kind = _kind_of_name(name)
        if kind:
            return kind
    endings = ", ".join((*PARQUET, *CSV, *LISTS))
    remedy = 'rename it if it is a table, or name the table\'s files by a pattern such as "edges/*.csv"'
    raise InputError(f"{path}: the name ends with none of {endings} (text also with {', '.join(PACKED)})", remedy)


def _kind_of_name(name: str) -> str | None:
    plain = name.lower()
    packed = next((ending for ending in PACKED if plain.endswith(ending)), "")
    plain = plain.removesuffix(packed)
    if plain.endswith((*CSV, *LISTS)) or plain.startswith("out."):  # KONECT: out.NAME
        return "csv"
    return "parquet" if plain.endswith(PARQUET) and not packed else None


def looks_like_table(path: Path) -> bool:
    """Tells whether the name or the first bytes say that a file, a pattern's file or a folder's part files are a table."""
    if path.is_dir():
        return any(_kind_of_name(part.name) for part in part_files(path)) or _kind_of_name(path.name) is not None
    if _kind_of_name(path.name) is not None or not path.is_file():
        return _kind_of_name(path.name) is not None
    start = first_bytes(path)
    return start[:4] == b"PAR1" or foreign(path, start) is not None


def folder_columns(path: Path) -> Mapping[str, str | None]:
    """Returns column -> value of the folders KEY=VALUE above a file, as Hive and Spark write them; None is their null."""
    pairs = (part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    return {unquote(key): None if value == NULL_FOLDER else unquote(value) for key, value in pairs if key and value}
