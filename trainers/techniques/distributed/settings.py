"""The table `[train.distributed]`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assets.building.keys import LEAST_GBPS, MOST_GBPS, within
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
    # Origin of the rows of a training batch: exchange = the shards, of which other ranks send theirs; packed = packed chunks of the rank's
    # stored batches, with rows of all parts, so that an epoch exchanges gradients alone.
    rows: Literal["exchange", "packed"] = field(default="exchange", metadata={"hashed": False})
    # Way of the rows that ranks read: all_to_all = one request and one reply between all. peer = the hottest rows lie on the devices of the
    # machine, within [memory] device, which read them from each other in place; the others go by all_to_all.
    exchange: Literal["all_to_all", "peer"] = field(default="all_to_all", metadata={"hashed": False})
    # Share of a device's rows that every device has, with exchange = "peer"; the others lie on the device of their part alone.
    replicated: float = field(default=0.5, metadata=within(0, 1, hashed=False))
    # Seconds that a rank waits for the others before the run ends.
    timeout: float = field(default=45.0, metadata=within(1, 3600, hashed=False))
    # Network between ranks, modelled by waiting: microseconds per exchange, and GB/s that a rank sends or receives; None = the real speed.
    latency_us: float = field(default=0.0, metadata=within(0, 1e9, hashed=False))
    rank_gbps: float | None = field(default=None, metadata=within(LEAST_GBPS, MOST_GBPS, hashed=False))

    def conflicts(self, table: Any, tables: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields keys that contradict other tables of the pipeline file; `exchange = "peer"` needs an order of rows and a size."""
        yield from super().conflicts(table, tables)
        if self.exchange != "peer":
            return
        missing = [f"[{name}]" for name in ("hotness", "memory") if name not in tables]
        if missing:
            yield (table.trainer, "exchange"), f'exchange = "peer" needs {" and ".join(missing)}'
        elif tables["memory"] is not None and tables["memory"].device == "auto":
            problem = 'exchange = "peer" fills the devices of all ranks: write a size as `device` in [memory]'
            yield (table.trainer, "exchange"), problem
