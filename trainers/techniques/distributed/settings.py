"""The table `[train.distributed]`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assets.building.keys import LEAST_GBPS, MOST_GBPS, within
from assets.sampling.config import SamplingConfig
from trainers.recipe.settings import Settings


@dataclass(frozen=True, kw_only=True)
class DistributedSettings(Settings):
    """How ranks share a training; the parts are those of [partitions]."""

    # Processes on this machine that graphmill train starts; a divisor of [partitions] parts. --ranks and torchrun override it.
    ranks: int = field(default=1, metadata=within(1, 4096, hashed=False))
    # Sum of the gradients: ordered = those of all batches of a step are gathered and added in batch order: the same bits on any number of
    # ranks. all-reduce = each rank adds its own and the library adds the sums: less traffic for large models, other bits on other numbers
    # of ranks.
    gradients: Literal["ordered", "all-reduce"] = "ordered"
    # Part of the graph on every rank. hybrid = the whole topology. unfused = the same, with the two-step sampler. vanilla = the in-edges of
    # its own nodes alone, so that every layer below the first is sampled by the other ranks. The batches are the same to the byte.
    scheme: Literal["hybrid", "unfused", "vanilla"] = field(default="hybrid", metadata={"hashed": False})
    # Seconds that a rank waits for the others before the run ends.
    timeout: float = field(default=45.0, metadata=within(1, 3600, hashed=False))
    # Network between ranks, modelled by waiting: microseconds per exchange, and GB/s that a rank sends or receives; None = the real speed.
    latency_us: float = field(default=0.0, metadata=within(0, 1e9, hashed=False))
    rank_gbps: float | None = field(default=None, metadata=within(LEAST_GBPS, MOST_GBPS, hashed=False))

    def without_scheme(self, sampling: SamplingConfig) -> str:
        """Returns the reason why the scheme cannot draw these batches, "" if it can."""
        named = f'scheme = "{self.scheme}"'
        if self.scheme == "hybrid":
            return ""
        if sampling.method != "uniform":
            return f'{named} is for method = "uniform", not {sampling.method!r}'
        if sampling.by_relation:
            return f"{named} draws one number of neighbours per layer, and fanouts has numbers per relation"
        return f"{named} knows no schedule of fan-outs" if self.scheme == "vanilla" and sampling.schedule else ""

    def conflicts(self, table: Any, tables: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields parts that these ranks or this model cannot share, and neighbours that the scheme cannot draw."""
        yield from super().conflicts(table, tables)
        partitions, sampling, here = tables.get("partitions"), tables.get("sampling"), (table.trainer,)
        if partitions and partitions.parts % self.ranks:
            text = f"ranks = {self.ranks} does not divide [partitions] parts = {partitions.parts}: give a divisor"
            yield (*here, "ranks"), text
        if partitions and partitions.parts > 1 and table.norm == "batch":
            text = f'the model has running statistics (norm = "batch"), which {partitions.parts} parts cannot share'
            yield ("norm",), f'{text}: set norm = "layer" or "none", or [partitions] parts = 1'
        if sampling and (why := self.without_scheme(sampling)):
            yield (*here, "scheme"), f"{why}: remove the key"
        elif self.scheme == "vanilla" and (table.reads_relations or table.edge_weight):
            key = f'model = "{table.model}"' if table.reads_relations else "edge_weight = true"
            yield (
                (*here, "scheme"),
                f'scheme = "vanilla" draws edges without relations and weights, which {key} reads: remove the key',
            )
