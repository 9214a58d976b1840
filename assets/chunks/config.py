"""The `[chunks]` table, and the configuration that the stage hashes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from assets.building.keys import Checked, within
from kernels.chunks.cut import MOST


@dataclass(frozen=True, kw_only=True)
class ChunksTable(Checked):
    """The `[chunks]` table; all of it is hashed."""

    # number of chunks that each part is cut into, which is the number of steps of a pass
    chunks_per_part: int = field(default=4, metadata=within(1, MOST))
    # order of the nodes inside a part before ranges are cut: "id", "metis" = by METIS sub-parts, "rcm" = reverse Cuthill-McKee
    order: Literal["id", "metis", "rcm"] = "id"
    # order of the chunks over the steps: "identity" = in order, "hongtu" = Algorithm 4, "best" = the least traffic that was found
    schedule: Literal["identity", "hongtu", "best"] = "best"
    # whether destinations are read with their neighbours, as models with a term of the node itself need it
    self_term: bool = True


@dataclass(frozen=True, kw_only=True)
class ChunksConfig:
    """The stage's hashed configuration; `chunks_config` makes it."""

    # the `[chunks]` table
    table: ChunksTable
    # seed of METIS for `order = "metis"`; 0 for the other orders, which draw nothing
    seed: int


def chunks_config(table: ChunksTable, seed: int) -> ChunksConfig:
    """Returns the stage's configuration, with the seed only if METIS draws the order."""
    return ChunksConfig(table=table, seed=seed if table.order == "metis" else 0)
