"""What the loop needs of a source of mini-batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from trainers.batches.batch import MiniBatch


class BatchSource(Protocol):
    """Whatever supplies mini-batches: an online sampler, stored samples, a queue between machines, a pruner around any of them."""

    def batches(self, epoch: int, start_position: int = 0) -> Iterator[MiniBatch]:
        """Yields the batches of a training epoch in step order, from a position on."""
        ...
