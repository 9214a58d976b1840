"""Graphs in tables that assets of the user's own Dagster project hold: the source `edges`, with asset keys in place of files.

The project's IO managers load the tables (assets/definitions.py). What they load is kept as Parquet in the home, so digests, mistakes and
memory are those of assets/sources/edges/source.py, and equal content has an equal version however it was loaded.
"""

from __future__ import annotations

import filecmp
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from graphmill.assets.sources.edges.source import EdgesConfig
from graphmill.assets.sources.interface import FEATURES_TOO
from graphmill.assets.sources.readers.part_files import expand
from graphmill.assets.storage.files.digests import identity_of
from graphmill.assets.storage.names.patterns import files_below, matches
from graphmill.assets.storage.names.upstream import AssetTable, asset_named, table_of_run
from graphmill.assets.storage.system.filesystem import locked
from graphmill.kernels.errors import InputError

ROWS = 1 << 18
"""Rows of a group of the Parquet files."""


@dataclass(frozen=True, kw_only=True)
class AssetConfig(EdgesConfig):
    """`[graph]` with `source = "asset"`; the keys that name columns are those of `source = "edges"`."""

    # names this kind of source
    source: str = field(default="asset", metadata=FEATURES_TOO)
    # key of the asset that holds the edges, such as "shop/edges"
    edges: AssetTable = field(metadata={"hashed": False})
    # key of the asset that holds the nodes; None takes the nodes that edges name
    nodes: AssetTable | None = field(default=None, metadata={"hashed": False})
    # of links: keys of the assets that hold the links to validate and to test
    valid_edges: AssetTable | None = field(default=None, metadata={"hashed": False})
    test_edges: AssetTable | None = field(default=None, metadata={"hashed": False})
    # key of an asset that holds features that are mostly zero, one row per node and feature
    feature_entries: AssetTable | None = field(default=None, metadata={"hashed": False})

    example: ClassVar[Mapping[str, Any]] = {"edges": "shop/edges", "nodes": "shop/nodes"}

    @property
    def loaded(self) -> Mapping[str, Path]:
        """Asset key -> file that keeps its table."""
        tables = (self.edges, self.valid_edges, self.test_edges, self.nodes, self.feature_entries)
        return {asset_named(table): table for table in tables if table is not None}

    def patterns(self, key: str) -> tuple[Path, ...]:
        """Returns the file of the asset of `edges`, `nodes` or `feature_entries`: of this run of Dagster, else as it was loaded last.

        Raises:
            InputError: the asset was never loaded into this home.
        """
        found = tuple(own if (own := table_of_run(table)).is_file() else table for table in super().patterns(key))
        for table in found:
            if not table.is_file():
                problem = f'{key} = "{asset_named(table)}": no run has loaded this asset into {table.parents[1]} yet'
                raise InputError(problem, "materialize it, and the graph below it, in the Dagster project that has it")
        return found


def keep_table(key: str, value: Any, table: Path) -> None:
    """Writes the table of an asset to its file of this run of Dagster, as a whole or not at all, and links the given file to it.

    A file of the same content stays as it is, since another pipeline of the run may be reading it.

    Args:
        value: what its IO manager loads: a frame of Polars or pandas, a relation of DuckDB, a table of Arrow (anything that streams Arrow),
            or the path of Parquet or CSV files.
        table: the file; without a run it holds the table itself.

    Raises:
        InputError: the value is none of these, or its files change while they are read.
    """
    table.parent.mkdir(parents=True, exist_ok=True)
    before = _states(value)
    with tempfile.TemporaryDirectory(prefix=".loading-", dir=table.parent) as folder:
        _write(key, value, path := Path(folder) / table.name)
        if _states(value) != before:
            problem = f"the asset {key}: {value} changed while it was read"
            raise InputError(problem, "wait until it is complete, then run again")
        if (own := table_of_run(table)) == table:
            os.replace(path, table)
            return
        own.parent.mkdir(exist_ok=True)
        with locked(own.with_suffix(".lock")):
            if not (own.is_file() and filecmp.cmp(path, own, shallow=False)):
                os.replace(path, own)
        (latest := Path(folder) / "latest").symlink_to(Path(own.parent.name, own.name))
        os.replace(latest, table)


def _states(value: Any) -> dict[Path, list[int]]:
    """Returns file -> identity of the files that a path names; none for another value."""
    named = matches(Path(value)) if isinstance(value, str | os.PathLike) else []
    return {file: identity_of(file) for path in named for file in (files_below(path) if path.is_dir() else [path])}


def _write(key: str, value: Any, path: Path) -> None:
    import duckdb
    import polars

    if type(value).__module__.partition(".")[0] == "pandas":
        value = duckdb.from_df(value)
    if isinstance(value, duckdb.DuckDBPyRelation):
        value.write_parquet(str(value := path.with_suffix(".duckdb.parquet")))
    if isinstance(value, str | os.PathLike):
        # One by one: Polars orders the files of a folder by letters, part.10 before part.2.
        files, hive = expand([Path(value)], key), Path(value).is_dir()
        text = files[0].name.endswith((".csv", ".csv.gz"))
        value = polars.scan_csv(files) if text else polars.scan_parquet(files, hive_partitioning=hive)
    elif hasattr(value, "__arrow_c_stream__"):
        value = polars.DataFrame(value).lazy()
    if not isinstance(value, polars.LazyFrame):
        kinds = (
            "a frame of Polars or pandas, a relation of DuckDB, a table of Arrow, or the path of Parquet or CSV files"
        )
        raise InputError(f"the asset {key} was loaded as {type(value).__name__}", f"let its IO manager load {kinds}")
    # One writer for all, since the digest of a column is that of its pages.
    value.sink_parquet(path, row_group_size=ROWS)
