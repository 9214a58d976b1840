"""Parts without nodes: each is a batch without seeds, a file of no rows, and the place of a device or rank that has no work."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Check
from graphmill.kernels.types import Array

EVERY_PART, EVERY_CHUNK = "every part has nodes", "every chunk has nodes"
SAYS = {
    EVERY_PART: "No part is empty. An empty one is a file without rows, and a device or rank without work.",
    EVERY_CHUNK: "No chunk is empty. An empty one is a step of a pass in which a device has no work.",
}
"""Name of a check -> the sentence about it."""


def empty_notes(tables: Mapping[str, Any], num_nodes: int) -> Iterator[str]:
    """Yields a sentence for each table that asks for more parts than a graph has nodes.

    Args:
        tables: `[partitions]` and `[chunks]` by their names, as far as the file has them.
        num_nodes: the most nodes that the graph can have; 0 if that is not known.
    """
    partitions, chunks = tables.get("partitions"), tables.get("chunks")
    if partitions is None or num_nodes == 0:
        return
    if partitions.parts > num_nodes:
        yield f"[partitions] parts = {partitions.parts:,}: {_too_many(partitions.parts, num_nodes, 'parts')}"
    elif chunks is not None and (whole := partitions.parts * chunks.chunks_per_part) > num_nodes:
        most = max(1, num_nodes // partitions.parts)
        yield f"[chunks] chunks_per_part = {chunks.chunks_per_part:,}: {_too_many(whole, num_nodes, 'chunks', most)}"


def _too_many(count: int, num_nodes: int, what: str, most: int | None = None) -> str:
    empty = f"{count:,} {what} for {num_nodes:,} nodes, at least {count - num_nodes:,} {what} are empty"
    return f"{empty}; {num_nodes if most is None else most:,} is the most that serves"


def empty_check(name: str, sizes: Array) -> Check:
    """Returns the check of the numbers of nodes i64[P] of parts, or of chunks; it warns."""
    what, empty, num_nodes = name.split()[1], int(np.count_nonzero(sizes == 0)), int(sizes.sum())
    serve = f"; {min(num_nodes, len(sizes) - empty):,} would serve" if empty else ""
    return Check(
        name=name,
        passed=empty == 0,
        detail=f"{empty:,} of {len(sizes):,} {what}s of {num_nodes:,} nodes are empty{serve}",
        numbers={f"empty {what}s": empty, f"allowed empty {what}s": 0},
        blocking=False,
    )
