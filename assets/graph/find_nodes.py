"""Finds the nodes of ids of the raw data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphmill.kernels.types import Array

if TYPE_CHECKING:
    import polars


def find_nodes(original: polars.Series, ids: polars.Series, kinds: Array, ranges: Sequence[tuple[int, int]]) -> Array:
    """Returns i64[n], the nodes that have ids of the raw data, -1 for an id of no node of its range.

    Args:
        original: the ids of all nodes in the raw data, in the order of nodes.
        ids: n ids; kinds: int[n], the range of each.
        ranges: (first node, last node + 1).
    """
    import polars

    found, ids = np.full(len(ids), -1), ids.cast(original.dtype, strict=False)
    for number in np.unique(kinds).tolist():
        low, high = ranges[number]
        rows = np.flatnonzero(kinds == number)
        named = polars.DataFrame({"id": ids.gather(rows), "row": rows})
        there = polars.DataFrame({"id": original.slice(low, high - low), "node": np.arange(low, high)})
        both = named.join(there, on="id", how="inner")
        found[both["row"].to_numpy()] = both["node"].to_numpy()
    return found
