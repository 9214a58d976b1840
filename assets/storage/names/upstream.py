"""The names of assets of a user's own Dagster project, and the files that hold the tables of such assets.

    HOME/upstream/KEY.parquet      the table of an asset as it was loaded last; each `/` of the key is %2F

Dagster loads the table of an asset in the step that builds the graph. All others read that file: the steps that compute versions
from its content, and the command line, where the project's assets do not run.
"""

from __future__ import annotations

from pathlib import Path
from typing import NewType
from urllib.parse import quote, unquote

from graphmill.assets.storage.names.home import home_folder

AssetTable = NewType("AssetTable", Path)
"""A key of a pipeline file that names an asset, as the file that holds its table."""

FOLDER, SUFFIX = "upstream", ".parquet"


def asset_table(key: str) -> AssetTable:
    """Returns the file of an asset's table in the default home; it need not exist."""
    return AssetTable(home_folder() / FOLDER / f"{quote(key, safe='')}{SUFFIX}")


def asset_named(table: Path) -> str:
    """Returns the key of the asset whose table a file holds."""
    return unquote(table.name.removesuffix(SUFFIX))


def wrong_asset_key(key: str) -> str:
    """Returns why a text is not an asset key, "" if it is one: names with `/` between them."""
    return (
        ""
        if all(key.split("/"))
        else f'"{key}" is not an asset key: write its names with / between them, such as "shop/edges"'
    )
