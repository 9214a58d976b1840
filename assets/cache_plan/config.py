"""The `[cache_plan]` table, and the configuration that the stage hashes."""

from dataclasses import dataclass, field
from typing import Literal

from graphmill.assets.building.keys import Checked, within
from graphmill.assets.sizes import parse_size


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
class EdgeBudgets:
    """The budgets of rows of edges, as `[memory]` gives them: a size, or a share of the bytes of all rows of edges."""

    # `edge_host`: bytes of rows in main memory
    host: int | str
    # `edge_disk`: bytes of disk caches and packed rows
    disk: int | str

    def num_bytes(self, level: str, feature_bytes: int) -> int:
        """Returns the bytes of the level "device", "host" or "disk"; a device holds none yet."""
        return 0 if level == "device" else parse_size(getattr(self, level), feature_bytes)


@dataclass(frozen=True, kw_only=True)
class CachePlanConfig:
    """The stage's hashed configuration; `cache_plan_config` makes it."""

    # the `[cache_plan]` table
    table: CachePlanTable
    # seed that draws the permutations of "minhash"; 0 for the other orders, which draw nothing
    seed: int
    # the budgets of rows of edges, for a plan about these; None in one about rows of nodes
    edges: EdgeBudgets | None = field(default=None, metadata={"hashed": "unless default"})


def cache_plan_config(table: CachePlanTable, seed: int) -> CachePlanConfig:
    """Returns the stage's configuration, with the seed only if the order draws."""
    return CachePlanConfig(table=table, seed=seed if table.order == "minhash" else 0)
