"""The node of each row of an array that lies beside a source: by ids where the file has them, else by position.

Position is certain if the source has no table of nodes (row i is node i), if the table is one file, or if its files have an order that is
stated: the pipeline file lists them one by one, or their names differ in numbers alone, as those of `part.2` and `part.10` do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from graphmill.assets.sources.readers.part_files import expand
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

MOST_NAMED = 4


def stated_order(patterns: Sequence[Path], key: str) -> str:
    """Returns the order of the rows of a table, in words.

    Args:
        patterns: the files of the table as the pipeline file names them.

    Raises:
        InputError: there are several files, and nothing states their order.
    """
    parts = [expand([pattern], key) for pattern in patterns]
    paths = expand(patterns, key)
    if len(paths) == 1:
        return "one file"
    if wrong := next((each for each in parts if not _numbered(each)), None):
        shown = ", ".join(path.name for path in wrong[:MOST_NAMED]) + (", ..." if len(wrong) > MOST_NAMED else "")
        raise InputError(
            f"{key}: nothing states the order of {shown}, and features without ids belong to nodes by the position of their rows",
            f"list the files one by one in the order of the rows, {key} = [...], or number their names; or save the features as "
            "safetensors beside a tensor `id`",
        )
    how = "the numbers in their names" if len(parts) == 1 else f"the list of {key}"
    return f"{len(paths)} files in the order of {how}"


def _numbered(paths: Sequence[Path]) -> bool:
    """Tells whether the names of files, and of their folders, differ in numbers alone."""
    above = os.path.commonpath([path.parent for path in paths])
    return len({re.sub("[0-9]+", "0", path.relative_to(above).as_posix()) for path in paths}) == 1


def nodes_of_ids(node_ids: Array, missing: Array, first: int, count: int, where: str) -> Array:
    """Returns i64[N] the nodes of the rows of a file that has ids; each node has to have one row.

    Args:
        node_ids: i64[n] the nodes that the ids of the rows name.
        missing: bool[n] true for ids without a node.

    Raises:
        InputError: there are not N ids, or one names no node, or one that another row has, too.
    """
    if len(node_ids) != count:
        raise InputError(f"{where}: has {len(node_ids):,} ids for {count:,} nodes", "give each node one row")
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise InputError(f"{where}: the id of row {row} names no node", "give each node one row, and no other")
    seen, repeated = np.unique(node_ids, return_counts=True)
    if len(seen) < len(node_ids):
        twice = int(seen[repeated > 1][0])
        row = int(np.flatnonzero(node_ids == twice)[-1])
        raise InputError(f"{where}: the id of row {row} stands in a row before it", "give each node one row")
    return node_ids + first


@runtime_checkable
class OwnIds(Protocol):
    """An open source whose nodes have ids of their own; those of other sources are the numbers of the nodes."""

    def nodes_of(self, ids: Array, node_type: str | None) -> tuple[Array, Array]:
        """Returns (nodes i64[n] within their type, bool[n] true for ids without a node) of ids i64[n].

        Args:
            node_type: the type of the nodes; None in a graph without types.

        Raises:
            InputError: ids of the nodes are texts, or unique within their type alone.
        """
        ...
