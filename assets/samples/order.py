"""The order in which mini-batches are stored, and so their numbers among all.

    plan = "shuffled"    by epoch and step
    plan = "parts"       by part, epoch and round: the batches of a part stand together

By parts, the batches that a rank reads lie in files of their own, and batches that share many nodes share disk caches. Batches of
evaluations belong to no part and are the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphmill.assets.samples.config import BatchRange
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class StoredOrder:
    """The numbers of stored batches.

    Attributes:
        num_epochs: K, number of sampling epochs.
        num_parts: P, number of parts whose batches stand together; 1 if they do not.
        sizes: number of batches of each stored epoch, those of evaluations last.
    """

    num_epochs: int
    num_parts: int
    sizes: tuple[int, ...]

    @staticmethod
    def of(artifact: Artifact) -> StoredOrder:
        """Returns the order of a samples artifact."""
        config = artifact.config
        return StoredOrder.of_names(
            artifact.parts, config["epochs"], config["epochs"] + 2 * bool(config.get("evaluate"))
        )

    @staticmethod
    def of_names(names: Iterable[str], num_epochs: int, num_stored: int) -> StoredOrder:
        """Returns the order of the parts' `names`, of `num_stored` epochs; an epoch without seeds has no artifact."""
        ranges = [BatchRange.of(name) for name in names]
        counts = np.zeros((num_stored, 1 + max([0, *(each.part for each in ranges)])), np.int64)
        for each in ranges:
            place = each.epoch, max(0, each.part)
            counts[place] = max(counts[place], each.high)
        return StoredOrder(num_epochs=num_epochs, num_parts=counts.shape[1], sizes=tuple(counts.sum(axis=1).tolist()))

    @cached_property
    def starts(self) -> Array:
        """i64[E + 1]: the number of batches before each stored epoch, by epoch, and of all."""
        return np.cumsum([0, *self.sizes])

    @property
    def rounds(self) -> int:
        """Batches of a part in a sampling epoch."""
        return self.sizes[0] // self.num_parts

    def number(self, epoch: int, step: int) -> int:
        """Returns the number of a batch among all, by its stored epoch and its step."""
        if self.num_parts == 1 or epoch >= self.num_epochs:
            return int(self.starts[epoch]) + step
        round_, part = divmod(step, self.num_parts)
        return (part * self.num_epochs + epoch) * self.rounds + round_

    def place_of(self, number: int) -> tuple[int, int]:
        """Returns stored epoch and step of a batch, by its number among all."""
        if self.num_parts == 1 or number >= self.starts[self.num_epochs]:
            epoch = int(np.searchsorted(self.starts, number, side="right")) - 1
            return epoch, number - int(self.starts[epoch])
        place, round_ = divmod(number, self.rounds)
        part, epoch = divmod(place, self.num_epochs)
        return epoch, round_ * self.num_parts + part

    def epochs_of(self, uses: Array) -> Array:
        """Returns i64[B], the value of its epoch, of i64[K], for each batch of the sampling epochs, and 0 for those of evaluations."""
        trained = (
            np.tile(np.repeat(uses, self.rounds), self.num_parts)
            if self.num_parts > 1
            else np.repeat(uses, self.sizes[0])
        )
        return np.concatenate([trained, np.zeros(int(self.starts[-1]) - len(trained), uses.dtype)])

    @property
    def blocks(self) -> Sequence[tuple[int, int]]:
        """(first batch, one behind the last) of each part, and of the evaluations; of all batches if there are no parts."""
        end = int(self.starts[-1])
        if self.num_parts == 1:
            return [(0, end)]
        each, trained = self.num_epochs * self.rounds, int(self.starts[self.num_epochs])
        found = [(first, first + each) for first in range(0, trained, each)]
        return [*found, (trained, end)] if trained < end else found
