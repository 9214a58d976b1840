"""The table `[train.fresh-distributed]`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from assets.building.keys import KeyProblem
from trainers.techniques.distributed.settings import DistributedSettings
from trainers.techniques.fresh.settings import FreshSettings


@dataclass(frozen=True, kw_only=True)
class FreshDistributedSettings(DistributedSettings, FreshSettings):
    """How ranks share a training whose batches are pruned by the histories of their parts: the keys of both techniques."""

    def problems(self) -> Iterator[KeyProblem]:
        """Yields the problems of both techniques, and keys that do not fit together."""
        yield from super().problems()
        if self.scheme == "vanilla":
            why = "samples with the other ranks, in the thread that waits for the history"
            yield KeyProblem("scheme", f'scheme = "vanilla" {why}: remove the key, or set it to "unfused"')
        if self.rows != "table":
            text = f"rows = {self.rows!r}, but the rows of parts come from their shards: remove the key"
            yield KeyProblem("rows", text)
        if self.probe:
            yield KeyProblem("probe", f"probe = {self.probe}, but no rank has all rows: remove the key")
