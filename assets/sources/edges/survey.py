"""The survey of edge and node tables: headers and counts. CSV files are read once to count their rows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.edges.config import NAMES
from graphmill.assets.sources.edges.entries import KEY, survey_entries
from graphmill.assets.sources.edges.node_tables import require_class_numbers
from graphmill.assets.sources.edges.open_table import OF_EDGES, OF_NODES, open_table
from graphmill.assets.sources.edges.shape import looks_like_triples, lost_first_line
from graphmill.assets.sources.edges.unread import unread_columns
from graphmill.assets.sources.features import stored_type
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.table_features import SQL_TYPES, column_widths, feature_columns, feature_type
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import TextForm
from graphmill.assets.sources.spooled import spooled_survey
from graphmill.assets.sources.survey import Survey
from graphmill.assets.sources.unread import unread_notes

if TYPE_CHECKING:
    from graphmill.assets.sources.edges.config import EdgeTableKeys

SHOWN_COLUMNS = 12


def survey_tables(config: EdgeTableKeys) -> Survey:
    """Describes the tables of a configuration.

    Raises:
        InputError: a file cannot be read, or lacks a column that the configuration names.
    """
    with (
        tempfile.TemporaryDirectory(prefix="graphmill-inspect-") as folder,
        Duck(Path(folder), config.memory_bytes * 6 // 10, 2) as duck,
    ):
        edges = open_table(config, duck, "edges")
        for key in OF_EDGES:
            if getattr(config, key) is not None:
                edges.require(key, getattr(config, key))
        nodes = None if config.nodes is None else open_table(config, duck, "nodes")
        for key in OF_NODES:
            if nodes is not None and getattr(config, key) is not None:
                nodes.require(key, getattr(config, key))
        if nodes is not None and config.label_column is not None and config.labels == "numbers":
            require_class_numbers(nodes, config.label_column, config.no_label)
        contents = describe_table("edges", edges) + (describe_table("nodes", nodes) if nodes else [])
        if config.feature_entries is None:
            width, dtype, notes = _features(config, nodes)
        else:
            entries, notes = open_table(config, duck, KEY), []
            width, dtype = survey_entries(entries, config)
            dtype = stored_type(np.dtype(dtype), "as stored", config.normalize, str(entries.paths[0]))
            contents += describe_table("feature entries", entries)
        num_edges, num_nodes = edges.count(), _count_nodes(config, edges, nodes)
        notes += unread_notes(unread_columns(config, edges, nodes))
        if nodes is None and config.num_nodes is None:
            contents.append(_ends_line(config, edges, num_nodes))
    types = [] if config.type_column is None else [config.type_column]
    title = f"edges: {', '.join(map(str, config.patterns('edges')))}"
    return spooled_survey(
        config, types, num_nodes, num_edges, width, dtype, title=title, contents=contents, notes=notes
    )


def _ends_line(config: EdgeTableKeys, edges: TableFiles, num_nodes: int) -> str:
    """Returns the line about ids of both ends, which are one space: users and items that are both numbered from 0 would merge."""
    names = (config.source_column, config.target_column)
    ends = " INTERSECT ".join(f"({edges.union(edges.field(name))})" for name in names)
    shared = edges.duck.rows(f"SELECT count(*) FROM ({ends}) WHERE v IS NOT NULL", str(edges.paths[0]))[0][0]
    return f"ids of {' and '.join(names)} are one space: {shared:,} of {num_nodes:,} stand in both columns" + (
        ', and each is one node; if the columns name different things, give each a table (source = "tables"), or prefix the ids: u0, i0'
        if shared
        else ""
    )


def _count_nodes(config: EdgeTableKeys, edges: TableFiles, nodes: TableFiles | None) -> int:
    if nodes is not None:
        return nodes.count()
    if config.num_nodes is not None:
        return config.num_nodes
    ids = edges.union(edges.field(config.source_column), edges.field(config.target_column))
    return int(edges.duck.rows(f"SELECT count(v) FROM ({ids})", str(edges.paths[0]))[0][0])


def describe_table(key: str, table: TableFiles) -> list[str]:
    """Returns lines about the files and columns of a table."""
    size = format_bytes(sum(path.stat().st_size for path in table.paths))
    lines = [f"{key}: {len(table.paths)} file{'s' if len(table.paths) > 1 else ''}, {size}, {table.count():,} rows"]
    lines += [f"  read in this order: {', '.join(_order(table.paths))}"] if table.paths != sorted(table.paths) else []
    kinds = list(table.columns.items())[:SHOWN_COLUMNS]
    shown = [name if table.is_csv else f"{name} {kind}" for name, kind in kinds]
    more = len(table.columns) - len(shown)
    lines.append(f"  columns: {', '.join(shown)}{f', and {more} more' if more else ''}")
    lines += [f"  {line}" for line in table.differences()]
    if table.folder_types:
        lines.append(f"  columns in the names of folders: {', '.join(table.folder_types)}")
    return lines + ([f"  {table.layouts[0].described()}"] if table.layouts else [])


def _order(paths: Sequence[Path]) -> list[str]:
    """Returns names of the first files and of the last one, which tell the order."""
    above = Path(os.path.commonpath([path.parent for path in paths]))
    names = [path.relative_to(above).as_posix() for path in paths]
    return names if len(names) < 5 else [*names[:3], "...", names[-1]]


def survey_files(paths: Sequence[Path]) -> list[str]:
    """Returns lines about table files that no configuration describes yet.

    Raises:
        InputError: a file cannot be read.
    """
    with Duck(None, 1 << 30, 2) as duck:
        table = TableFiles(duck, paths, "edges", TextForm(names=NAMES["edges"]))
        lost = lost_first_line(table)
        # With `header = false` the columns have other names.
        names = [*NAMES["edges"], *(f"c{place}" for place in range(2, len(table.columns)))] if lost else []
        columns = list(table.columns)
        triples = looks_like_triples(table, columns[0], columns[1], names) if len(columns) > 2 else ""
        return [*describe_table("table", table), *(f"note: {said}" for said in (lost, triples) if said)]


def _features(config: EdgeTableKeys, nodes: TableFiles | None) -> tuple[int, str, list[str]]:
    """Returns (number of columns, type of the stored values, notes)."""
    if nodes is None or config.features is None:
        return 1, "uint8", ["no features are read: `features` in [graph] names their columns"] if nodes else []
    names = feature_columns(nodes, config.features)
    value = feature_type(nodes, names)
    stored = stored_type(np.dtype(SQL_TYPES[value]), "as stored", config.normalize, str(nodes.paths[0]))
    return sum(column_widths(nodes, names)), stored, []
