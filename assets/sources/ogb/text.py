"""The text forms of an OGB folder: gzipped CSV files without headers."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import numpy as np

from graphmill.assets.sources.edges.node_tables import read_label_columns
from graphmill.assets.sources.features.blocks import FeatureBlock
from graphmill.assets.sources.ogb.split_dict import NAME as SPLIT_DICT
from graphmill.assets.sources.ogb.split_dict import in_range, split_by_dict
from graphmill.assets.sources.readers.duck import FIX_FILE, Duck
from graphmill.assets.sources.readers.table_features import table_block
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import TextForm
from graphmill.assets.sources.splits import PARTS
from graphmill.assets.sources.targets import CLASSIFIES, joined_labels, known_labels
from graphmill.assets.sources.typed_graph import EdgeBatch, Relation, first_ids
from graphmill.assets.tasks.labels import CLASSES, LINKS, Kind, no_labels
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

BARE, NAMED = TextForm(",", header=False, comment=""), TextForm(",", header=True, comment="")
"""The layout of OGB's files, and that of the one with names of columns."""

ONLY = "node"
"""Name of the node type of a graph with a single one."""

ROWS = "give one row for each node, empty if unknown"

Parts = tuple[dict[str, int], list[Relation], list[FeatureBlock], Array]
"""Node types, relations, features and labels of a folder; see `TypedGraph`."""


def read_text(path: Path, duck: Duck, kind: Kind) -> Parts:
    """Reads raw/edge.csv.gz and the files beside it; see `graphmill.assets.sources.ogb.source.read`."""
    folder = path / "raw"
    num_nodes = _one_number(duck, folder / "num-node-list.csv.gz")
    blocks = _features(duck, folder / "node-feat.csv.gz", 0, num_nodes)
    file = folder / "node-label.csv.gz"
    labels = no_labels(LINKS, num_nodes) if kind == LINKS else _labels(duck, file, num_nodes, kind)
    return {ONLY: num_nodes}, [_relation(duck, folder, (ONLY, "edge", ONLY))], blocks, labels


def read_typed_text(path: Path, duck: Duck, kind: Kind) -> Parts:
    """Reads raw/relations and the files beside it (ogbn-mag); see `graphmill.assets.sources.ogb.source.read`."""
    folder = path / "raw"
    counts = TableFiles(duck, [required(folder / "num-node-dict.csv.gz")], "path", NAMED)
    found = duck.rows(f"SELECT * FROM {counts.source(0)}", str(counts.paths[0]))
    if len(found) != 1 or not all(re.fullmatch(r"\d{1,18}", str(value), re.ASCII) for value in found[0]):
        raise InputError(f"{counts.paths[0]}: has {len(found)} rows, not one of counts", "give a folder with one graph")
    given = dict(zip(counts.columns, (int(value) for value in found[0]), strict=True))
    node_types = {name: given[name] for name in sorted(given)}
    starts = first_ids(node_types)
    relations = [_relation(duck, folder / "relations" / "___".join(t), t) for t in _triplets(duck, folder, node_types)]
    blocks, labels = [], []
    for name, count in node_types.items():
        blocks += _features(duck, folder / "node-feat" / name / "node-feat.csv.gz", starts[name], count)
        file = folder / "node-label" / name / "node-label.csv.gz"
        read = kind != LINKS and file.is_file()
        labels.append(_labels(duck, file, count, kind) if read else no_labels(kind, count))
    return node_types, relations, blocks, joined_labels(kind, labels)


def refuse_other_spelling(path: Path) -> None:
    """Refuses a folder that lacks a file of features and has one whose name differs in spelling, or that is unpacked.

    Raises:
        InputError: the features would be left out, and each node would have a one instead.
    """
    for other in sorted(path.parent.iterdir()) if path.parent.is_dir() else ():
        if _letters(other.name) == _letters(path.name) and other != path:
            pack = (
                f"pack it: gzip {quote(str(other))}" if f"{other.name}.gz" == path.name else f"write it as {path.name}"
            )
            raise InputError(f"{other}: is not read (did you mean {path.name}?)", f"{pack}, or leave it out")


def _letters(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower().partition(".")[0])


def required(path: Path) -> Path:
    """Returns the path, after finding the file."""
    if not path.is_file():
        raise InputError(f"{path} is missing", "unzip the dataset again, or restore the file")
    return path


def _triplets(duck: Duck, folder: Path, node_types: dict[str, int]) -> list[tuple[str, str, str]]:
    table = TableFiles(duck, [required(folder / "triplet-type-list.csv.gz")], "path", BARE)
    found = sorted(duck.rows(f"SELECT * FROM {table.source(0)}", str(table.paths[0])))
    for row in found:
        if len(row) != 3 or row[0] not in node_types or row[2] not in node_types:
            problem = f"{table.paths[0]}: {', '.join(map(str, row))} is no triplet of {', '.join(node_types)}"
            raise InputError(problem, FIX_FILE)
    return [(str(a), str(b), str(c)) for a, b, c in found]


def _one_number(duck: Duck, path: Path) -> int:
    values = _integers(duck, required(path))
    if len(values) != 1 or values[0] < 0:
        raise InputError(f"{path}: has {len(values)} counts, not one", "give a folder with one graph (ogbn-*)")
    return int(values[0])


def _integers(duck: Duck, path: Path) -> Array:
    """Reads a file's first column of whole numbers, i64[n]."""
    found = [columns[0].copy() for columns in _whole_numbers(TableFiles(duck, [path], "path", BARE), 1)]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _whole_numbers(table: TableFiles, width: int) -> Iterator[list[Array]]:
    """Yields the first `width` columns, i64[n] each, batch by batch."""
    for rows in table.select([table.integer("path", f"c{number}") for number in range(width)]):
        for number, column in enumerate(rows.columns):
            if column.nulls is not None:
                row = rows.first + int(np.flatnonzero(column.nulls)[0])
                problem = f"column {number} holds '{table.value(0, row, f'c{number}')}', not a whole number"
                raise InputError(f"{table.place(0, row)}: {problem}", FIX_FILE)
        yield [column.values for column in rows.columns]


def _relation(duck: Duck, folder: Path, names: tuple[str, str, str]) -> Relation:
    path = required(folder / "edge.csv.gz")
    table = TableFiles(duck, [path], "path", BARE)
    if len(table.columns) != 2:
        raise InputError(f"{path}: has {len(table.columns)} columns, not source and destination", FIX_FILE)

    return Relation(
        kind=names,
        num_edges=_one_number(duck, folder / "num-edge-list.csv.gz"),
        batches=lambda: (EdgeBatch(src, dst) for src, dst in _whole_numbers(table, 2)),
        place=lambda row: table.place(0, row),
    )


def _features(duck: Duck, path: Path, first: int, count: int) -> list[FeatureBlock]:
    if not path.is_file():
        refuse_other_spelling(path)
        return []
    table = TableFiles(duck, [path], "path", BARE)
    return [table_block(table, list(table.columns), first, count)]


def _labels(duck: Duck, path: Path, count: int, kind: Kind) -> Array:
    """Reads the labels of a CSV file, with one column if they are classes; empty and nan are unknown."""
    table = TableFiles(duck, [required(path)], "path", BARE)
    if kind != CLASSES:
        if (rows := table.count()) != count:
            raise InputError(f"{path}: has {rows} rows of labels for {count} nodes", ROWS)
        return read_label_columns(table, list(table.columns), kind, count)[0]
    if len(table.columns) != 1:
        problem = f"{path}: has {len(table.columns)} columns of labels"
        raise InputError(problem, f"keep one column: {CLASSIFIES}")
    found = []
    for rows in table.select(["TRY_CAST(c0 AS DOUBLE)", "CAST(c0 IS NOT NULL AS UTINYINT)"]):
        values, nulls = rows.columns[0].values.copy(), rows.columns[0].nulls
        if nulls is not None:
            bad = np.flatnonzero(nulls & (rows.columns[1].values != 0))
            if len(bad):
                row = rows.first + int(bad[0])
                held = table.value(0, row, "c0")
                problem = f"{table.place(0, row)}: the label is '{held}', no class number"
                raise InputError(problem, "number the classes from 0")
            values[nulls] = np.nan
        found.append(values)
    labels = np.concatenate(found) if found else np.zeros(0)
    if len(labels) != count:
        raise InputError(f"{path}: has {len(labels)} labels for {count} nodes", ROWS)
    return known_labels(labels, count, str(path), "labels")


def read_split(
    root: Path, scheme: str | None, duck: Duck, node_types: dict[str, int], *, typed: bool
) -> tuple[Array, Array, Array] | None:
    """Reads split/<scheme>/[<type>/]{train,valid,test}.csv.gz, or split/<scheme>/split_dict.pt, as global ids, or None for "random".

    Raises:
        InputError: a file is missing, there are several schemes and none was chosen, or an id is outside its type.
    """
    if scheme == "random":
        return None
    top = root / "split"
    schemes = sorted(path.name for path in top.iterdir() if path.is_dir()) if top.is_dir() else []
    if not schemes:
        raise InputError(f"{top} holds no split", 'restore the folder, or set split = "random" in [graph]')
    if (scheme is None and len(schemes) > 1) or (scheme is not None and scheme not in schemes):
        problem = f"split = {scheme}: {top} holds {', '.join(schemes)}"
        raise InputError(problem, "name one of these as `split` in [graph]")
    folder = top / (scheme or schemes[0])
    starts = first_ids(node_types)
    if (folder / SPLIT_DICT).is_file():
        return split_by_dict(folder / SPLIT_DICT, node_types, starts, typed=typed)
    kinds = [name for name in node_types if (folder / name).is_dir()] if typed else [ONLY]
    if not kinds:
        raise InputError(f"{folder} holds no folder of a node type ({', '.join(node_types)})", "restore the folder")
    parts = []
    for part in PARTS:
        found = []
        for kind in kinds:
            path = required((folder / kind if typed else folder) / f"{part}.csv.gz")
            if path.stat().st_size and (ids := _split_ids(duck, path)).size:
                found.append(in_range(ids, node_types[kind], path) + starts[kind])
        parts.append(np.concatenate(found) if found else np.zeros(0, np.int64))
    return parts[0], parts[1], parts[2]


def _split_ids(duck: Duck, path: Path) -> Array:
    with gzip.open(path, "rb") as file:
        try:
            empty = not file.read(1)
        except (OSError, EOFError) as error:
            raise InputError(f"{path}: the gzip file is damaged or cut short: {error}", "copy it again") from error
    return np.zeros(0, np.int64) if empty else _integers(duck, path)
