"""The `[partitions]` table, and the configuration that the stage hashes."""

from dataclasses import dataclass, field
from typing import Literal

from graphmill.assets.building.keys import Checked, within
from graphmill.kernels.chunks.ldg import MOST_PARTS

Method = Literal["auto", "metis", "metis-contracted", "metis-balanced", "ldg", "range", "random"]
DRAWING: tuple[Method, ...] = ("auto", "metis", "metis-contracted", "random")
"""Methods that draw numbers by a seed; DGL gives METIS no seed, so METIS then uses its own."""


@dataclass(frozen=True, kw_only=True)
class PartitionsTable(Checked):
    """The `[partitions]` table; all of it is hashed."""

    # how nodes are assigned: "metis" cuts the fewest edges; "metis-contracted" cuts clusters of nodes, for graphs on which METIS takes too
    # long or too much memory; "ldg" streams such graphs without METIS; "auto" is "metis" for graphs on which it takes at most 4 GiB, else
    # "ldg"; "range" takes ranges of ids; "metis-balanced" is METIS through DGL, "random" the baseline
    method: Method = "auto"
    # number of parts: one per device or rank, or a multiple
    parts: int = field(default=4, metadata=within(1, MOST_PARTS))
    # seed of "metis" (also if "auto" chooses it), "metis-contracted" and "random"; not given = the pipeline's
    seed: int | None = field(default=None, metadata=within(0))


@dataclass(frozen=True, kw_only=True)
class PartitionsConfig:
    """The stage's hashed configuration; `partitions_config` makes it."""

    # how nodes are assigned
    method: Method
    # number of parts
    parts: int
    # seed of methods that draw; 0 for the others
    seed: int


def partitions_config(table: PartitionsTable, seed: int) -> PartitionsConfig:
    """Returns the stage's configuration, with the seed only if the method draws."""
    used = seed if table.seed is None else table.seed
    return PartitionsConfig(method=table.method, parts=table.parts, seed=used if table.method in DRAWING else 0)
