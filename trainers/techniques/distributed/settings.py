"""The table `[train.distributed]`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kernels.errors import InputError
from trainers.recipe.settings import Settings


@dataclass(frozen=True, kw_only=True)
class DistributedSettings(Settings):
    """How ranks share a training; the parts are those of [partitions]."""

    # Processes on this machine that graphmill train starts; a divisor of [partitions] parts. --ranks and torchrun override it.
    ranks: int = field(default=1, metadata={"hashed": False})
    # Sum of the gradients: ordered = those of all batches of a step are gathered and added in batch order: the same bits on any number of
    # ranks. all-reduce = each rank adds its own and the library adds the sums: less traffic for large models, other bits on other numbers
    # of ranks.
    gradients: Literal["ordered", "all-reduce"] = "ordered"
    # Part of the graph on every rank. hybrid = the whole topology. unfused = the same, with the two-step sampler. vanilla = the in-edges of
    # its own nodes alone, so that every layer below the first is sampled by the other ranks. The batches are the same to the byte.
    scheme: Literal["hybrid", "unfused", "vanilla"] = field(default="hybrid", metadata={"hashed": False})
    # Seconds that a rank waits for the others before the run ends.
    timeout: float = field(default=45.0, metadata={"hashed": False})
    # Network between ranks, modelled by waiting: microseconds per exchange, and GB/s that a rank sends or receives; None = the real speed.
    latency_us: float = field(default=0.0, metadata={"hashed": False})
    rank_gbps: float | None = field(default=None, metadata={"hashed": False})

    def __post_init__(self):
        """Checks counts, times and speeds."""
        if self.ranks < 1:
            raise InputError(f"ranks = {self.ranks} is below 1", "give the number of processes")
        if self.ranks > 4096:
            raise InputError(f"ranks = {self.ranks} is above 4,096", "give the number of processes of this machine")
        if not 1 <= self.timeout <= 3600:
            raise InputError(f"timeout = {self.timeout!r} is not between 1 and 3,600 seconds", "give seconds, like 45")
        if not 0 <= self.latency_us <= 1e9:
            problem = f"latency_us = {self.latency_us!r} is not between 0 and 1,000,000,000 (1,000 seconds)"
            raise InputError(problem, "give microseconds, or leave the key out")
        if self.rank_gbps is not None and not self.rank_gbps > 0:
            raise InputError(f"rank_gbps = {self.rank_gbps!r} is not above 0", "give GB/s, or leave the key out")
