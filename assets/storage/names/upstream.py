"""The names of assets of a user's own Dagster project, and the files that hold the tables of such assets.

    HOME/upstream/RUN/KEY.parquet  the table of an asset as a run of Dagster loaded it; each `/` of the key is %2F
    HOME/upstream/KEY.parquet      a link to the table that was loaded last

Dagster loads the table of an asset in the step that builds the graph. All others read that file: the steps that compute versions
from its content, and the command line, where the project's assets do not run. The steps of a run read the run's own table, so runs that
overlap do not see each other's.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NewType
from urllib.parse import quote, unquote

from graphmill.assets.storage.names.home import home_folder

AssetTable = NewType("AssetTable", Path)
"""A key of a pipeline file that names an asset, as the file that holds its table."""
FOLDER, SUFFIX = "upstream", ".parquet"
_RUN: ContextVar[str] = ContextVar("run of Dagster", default="")


def asset_table(key: str) -> AssetTable:
    """Returns the file of an asset's table in the default home; it need not exist."""
    return AssetTable(home_folder() / FOLDER / f"{quote(key, safe='')}{SUFFIX}")


def asset_named(table: Path) -> str:
    """Returns the key of the asset whose table a file holds."""
    return unquote(table.name.removesuffix(SUFFIX))


@contextmanager
def steps_of(run_id: str) -> Iterator[None]:
    """Lets the block read and keep the tables of one run of Dagster, "" for those that were loaded last."""
    before = _RUN.get()
    _RUN.set(run_id)
    try:
        yield
    finally:
        _RUN.set(before)


def table_of_run(table: Path) -> Path:
    """Returns the file of an asset's table in this run of Dagster; it need not exist. Without a run it is the given file."""
    return table.parent / _RUN.get() / table.name


def forget_tables(table: Path, ended: Callable[[str], bool]) -> None:
    """Removes the tables of runs that have ended, but for those that were loaded last."""
    latest = {each.resolve().parent for each in table.parent.glob(f"*{SUFFIX}")}
    for folder in table.parent.iterdir():
        if folder.is_dir() and folder.name[0] != "." and folder.resolve() not in latest and ended(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def wrong_asset_key(key: str) -> str:
    """Returns why a text is not an asset key, "" if it is one: names with `/` between them."""
    if all(key.split("/")):
        return ""
    return f'"{key}" is not an asset key: write its names with / between them, such as "shop/edges"'
