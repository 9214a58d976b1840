"""The table `[train.fresh-distributed]`."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.errors import InputError
from trainers.techniques.distributed.settings import DistributedSettings
from trainers.techniques.fresh.settings import FreshSettings


@dataclass(frozen=True, kw_only=True)
class FreshDistributedSettings(DistributedSettings, FreshSettings):
    """How ranks share a training whose batches are pruned by the histories of their parts: the keys of both techniques."""

    def __post_init__(self):
        """Checks the keys of both, and that they fit together."""
        DistributedSettings.__post_init__(self)
        FreshSettings.__post_init__(self)
        if self.scheme == "vanilla":
            problem = 'scheme = "vanilla" samples with the other ranks, in the thread that waits for the history'
            raise InputError(problem, 'remove the key, or set it to "unfused"')
        if self.rows != "table":
            raise InputError(f"rows = {self.rows!r}, but the rows of parts come from their shards", "remove the key")
        if self.probe:
            raise InputError(f"probe = {self.probe}, but no rank has all rows", "remove the key")
