"""The seeds of each batch, with the seeds of each part of a graph together (FastSample, section 3.3).

Every machine trains on seeds of its own parts, whose rows it holds. Seeds are listed by PART, never by rank: one rank with four parts,
two with two and four with one go through the same batches, and the number of ranks decides nothing. An epoch has as many rounds as the
part with the most seeds needs, max over parts of ceil(n_p / batch_size). Every part cuts its seeds into one batch per round, all nearly
equal; some are empty if a part has fewer seeds than rounds. An empty batch takes part in every exchange. Each seed is used once.

The batch of part p in round r has the step r P + p, and its position is counted alike. An optimiser step is a group of `accumulate` rounds.
With reuse, rounds are permuted and stay whole. The order of all seeds is drawn once and each part takes its own from it, so with one part
the plan is `EpochPlan`, to the last key.

Cost: the permutation of all seeds, once per epoch, at every rank; seeds are counted by part once per plan. Not checked: that parts have
about equally many seeds; if they do not, batches of the smaller parts are small, and their ranks wait.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import key, permutation
from graphmill.kernels.sampling.epoch_plan import Plan, PlannedBatch
from graphmill.kernels.types import Array, BatchKey, Stream


@dataclass(frozen=True)
class PartPlan(Plan):
    """The batches of every epoch over the seeds of all parts, i32[n] `seed_parts`; `key.step % num_parts` is the part of one."""

    LEAST = (("num_parts", 1), *Plan.LEAST)

    train_ids: Array
    seed_parts: Array
    num_parts: int
    batch_size: int
    seed: int
    stream: int = Stream.TRAIN
    reuse: int = 0
    accumulate: int = 1

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "seed_parts", np.asarray(self.seed_parts))
        parts = self.seed_parts
        if parts.shape != self.train_ids.shape or not 0 <= parts.min() <= parts.max() < self.num_parts:
            problem = f"parts of shape {list(parts.shape)} for {len(self.train_ids)} seeds"
            raise InputError(problem, f"give one part in 0..{self.num_parts - 1} per seed")

    @cached_property
    def counts(self) -> Array:
        """i64[P]: seeds of each part; read-only."""
        counts = np.bincount(self.seed_parts, minlength=self.num_parts)
        counts.setflags(write=False)
        return counts

    @cached_property
    def rounds(self) -> int:
        """Rounds of an epoch: max over parts of ceil(n_p / batch_size)."""
        return -(-int(self.counts.max()) // self.batch_size)

    @property
    def num_batches(self) -> int:
        """Batches of an epoch, empty ones included: one per round and part."""
        return self.rounds * self.num_parts

    @property
    def batches_per_step(self) -> int:
        """Batches of a whole optimiser step."""
        return self.accumulate * self.num_parts

    def _batches(self, train_epoch: int, start: int) -> Iterator[PlannedBatch]:
        epoch = self.sampling_epoch(train_epoch)
        seeds, order, counts = self._seeds(epoch), self.order(train_epoch, self.rounds), self.counts.tolist()
        group, group_seeds, counted = [], 0, -1
        for position in range(start, self.num_batches):
            place, part = divmod(position, self.num_parts)
            first = place - place % self.accumulate
            if first != counted:
                group, counted = order[first : first + self.accumulate], first
                cuts = [self._cut(round_, count) for round_ in group for count in counts]
                group_seeds = sum(high - low for low, high in cuts)
            low, high = self._cut(order[place], counts[part])
            yield PlannedBatch(
                key=BatchKey(int(self.stream), epoch, order[place] * self.num_parts + part),
                seeds=seeds[part][low:high],
                position=position,
                group=(position - first * self.num_parts, len(group) * self.num_parts),
                group_seeds=group_seeds,
            )

    def _seeds(self, epoch: int) -> list[Array]:
        """Returns the seeds of each part in the order of a sampling epoch."""
        drawn = permutation(key(self.seed, self.stream, epoch), len(self.train_ids))
        by_part = drawn[np.argsort(self.seed_parts[drawn], kind="stable")]
        return np.split(self.train_ids[by_part], np.cumsum(self.counts)[:-1])
