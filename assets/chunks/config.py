"""The `[chunks]` table, and the configuration that the stage hashes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.chunks.rates import parse_rates
from graphmill.kernels.chunks.cut import MOST
from graphmill.kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ChunksTable(Checked):
    """The `[chunks]` table; all of it is hashed."""

    # number of chunks that each part is cut into, which is the number of steps of a pass
    chunks_per_part: int = field(default=4, metadata=within(1, MOST))
    # order of the nodes inside a part before ranges are cut: "id", "metis" = by METIS sub-parts, "rcm" = reverse Cuthill-McKee
    order: Literal["id", "metis", "rcm"] = "id"
    # order of the chunks over the steps: "identity" = in order, "hongtu" = Algorithm 4, "best" = the least traffic that was found, or time
    schedule: Literal["identity", "hongtu", "best"] = "best"
    # speeds by which "best" counts seconds, with HongTu's equation 4, in place of rows from the host: "12GB/s,200GB/s,1.5TB/s" are those
    # from the host, between devices or ranks, and inside a device; "" = rows. `graphmill chunks` measures them.
    rates: str = field(default="", metadata={"hashed": "unless default"})
    # whether destinations are read with their neighbours, as models with a term of the node itself need it
    self_term: bool = True

    def problems(self) -> Iterator[KeyProblem]:
        """Yields speeds that are none, or that nothing is chosen by."""
        yield from super().problems()
        if self.rates:
            try:
                parse_rates(self.rates)
            except InputError as error:
                yield KeyProblem("rates", f"{error.problem}: {error.remedy}")
            if self.schedule != "best":
                text = f'rates are for schedule = "best", and {self.schedule!r} chooses nothing: remove the key'
                yield KeyProblem("rates schedule", text)


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
