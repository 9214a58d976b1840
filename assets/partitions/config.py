"""The `[partitions]` table, and the configuration that the stage hashes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.kernels.chunks.ldg import MOST_PARTS

Method = Literal["auto", "metis", "metis-contracted", "metis-balanced", "ldg", "range", "random"]
DRAWING: tuple[Method, ...] = ("auto", "metis", "metis-contracted", "random")
"""Methods that draw numbers by a seed; DGL gives METIS no seed, so METIS then uses its own."""
LEAST_CLUSTERS = 256
"""Clusters per part: fewer would not fill the parts evenly."""


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
    # most clusters that METIS gets with "metis-contracted", and 16 edges for each, for which it takes about 2.6 kB; not given = a tenth
    # of the nodes, and 2.5 GiB
    contract_to: int | None = field(default=None, metadata=within(1, hashed="unless default"))

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a number of clusters that nothing is contracted to, or that cannot fill the parts."""
        yield from super().problems()
        if self.contract_to is None:
            return
        if self.method != "metis-contracted":
            text = (
                f'contract_to has no effect with method = "{self.method}": leave it out, or choose "metis-contracted"'
            )
            yield KeyProblem("contract_to method", text)
        elif self.contract_to < (least := LEAST_CLUSTERS * self.parts):
            text = f"contract_to = {self.contract_to:,} is below {LEAST_CLUSTERS} clusters for each part: give {least:,} or more"
            yield KeyProblem("contract_to parts", text)


@dataclass(frozen=True, kw_only=True)
class PartitionsConfig:
    """The stage's hashed configuration; `partitions_config` makes it."""

    # how nodes are assigned
    method: Method
    # number of parts
    parts: int
    # seed of methods that draw; 0 for the others
    seed: int
    # most clusters that METIS gets; None = by the number of nodes
    contract_to: int | None = field(default=None, metadata={"hashed": "unless default"})


def partitions_config(table: PartitionsTable, seed: int) -> PartitionsConfig:
    """Returns the stage's configuration, with the seed only if the method draws."""
    used = seed if table.seed is None else table.seed
    seed = used if table.method in DRAWING else 0
    return PartitionsConfig(method=table.method, parts=table.parts, seed=seed, contract_to=table.contract_to)
