"""The `[cache_plan]` table, and the configuration that the stage hashes."""

from dataclasses import dataclass, field
from typing import Literal

from graphmill.assets.building.keys import Checked, within


@dataclass(frozen=True, kw_only=True)
class CachePlanTable(Checked):
    """The `[cache_plan]` table; all of it is hashed."""

    # order of the rows of a segment's disk cache: "gray" = the Gray code of their memberships in batches; "filled" = with pages filled
    # from it; "minhash" = DiskGNN's Algorithm 1; "copies" = a row stands once for each set of batches that share its page.
    # "auto" = "filled" or "copies", whichever moves fewer bytes
    order: Literal["auto", "filled", "gray", "minhash", "copies"] = "auto"
    # number of batches that share a disk cache; 0 = the fewest that the disk budget allows, for "copies" as many as memory allows
    segment_size: int = field(default=0, metadata=within(0))


@dataclass(frozen=True, kw_only=True)
class CachePlanConfig:
    """The stage's hashed configuration; `cache_plan_config` makes it."""

    # the `[cache_plan]` table
    table: CachePlanTable
    # seed that draws the permutations of "minhash"; 0 for the other orders, which draw nothing
    seed: int


def cache_plan_config(table: CachePlanTable, seed: int) -> CachePlanConfig:
    """Returns the stage's configuration, with the seed only if the order draws."""
    return CachePlanConfig(table=table, seed=seed if table.order == "minhash" else 0)
