"""The seeds of each batch, and the batches of each optimiser step.

An epoch's n seeds are permuted and cut into ceil(n / batch_size) nearly equal batches, so no batch is much smaller than the others.
Everything follows from (seed, stream, epoch): no state is kept, any batch can be named without making those before it, and resuming at a
position is exact. With `reuse = K` training epoch e takes the batches of sampling epoch e mod K, in an order of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from graphmill.kernels.arrays import as_ids
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import key, permutation
from graphmill.kernels.types import Array, BatchKey, Stream

ORDER_WORD = -1  # in the place of a step: the order of reused batches shares no key with their sampling


class PlannedBatch(NamedTuple):
    """One batch of a training epoch."""

    # Key that names its sampling decisions; key.step is its number in the sampling epoch.
    key: BatchKey
    # ids[b] global.
    seeds: Array
    # Place of the batch in the training epoch.
    position: int
    # (place, size): place of the batch in the group of its optimiser step, and batches of that group.
    group: tuple[int, int]
    # Number of seeds of that whole step.
    group_seeds: int


class Plan:
    """The batches of all epochs, for loop and sources; `EpochPlan` and `PartPlan` (kernels/sampling/part_plan.py) are the two kinds.

    An epoch is cut into rounds. Training epochs go through K sampling epochs in rotation, each in an order of its own.

    Attributes:
        train_ids: ids[n], global: the seeds of an epoch, each used once.
        batch_size: largest number of seeds per batch, at least 1.
        stream: random stream that shuffles.
        reuse: K: training epoch e uses sampling epoch e mod K; 0 = every epoch samples anew.
        accumulate: number of rounds per optimiser step.
    """

    LEAST: ClassVar[tuple[tuple[str, int], ...]] = (("batch_size", 1), ("reuse", 0), ("accumulate", 1))
    """Numbers that are checked, with the least value of each."""

    train_ids: Array
    batch_size: int
    seed: int
    stream: int
    reuse: int
    accumulate: int

    def __post_init__(self):
        object.__setattr__(self, "train_ids", as_ids(self.train_ids, "train_ids"))
        if len(self.train_ids) == 0:
            raise InputError("there are no seeds to make batches of", "give a split with at least one node")
        for name, least in self.LEAST:
            if getattr(self, name) < least:
                raise InputError(f"{name} = {getattr(self, name)}", f"give {least} or more")

    @property
    def rounds(self) -> int:
        """Rounds of an epoch."""
        raise NotImplementedError

    @property
    def num_batches(self) -> int:
        """Batches in an epoch."""
        return self.rounds

    @property
    def batches_per_step(self) -> int:
        """Batches of a whole optimiser step."""
        return self.accumulate

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in an epoch: ceil(rounds / accumulate)."""
        return -(-self.rounds // self.accumulate)

    def step_of(self, train_epoch: int, position: int) -> int:
        """Returns the number, in the whole run, of the optimiser step that a batch belongs to."""
        return train_epoch * self.steps_per_epoch + position // self.batches_per_step

    def batches(self, train_epoch: int, start: int = 0) -> Iterator[PlannedBatch]:
        """Yields the batches of a training epoch, those of all parts if there are parts, from position `start` on."""
        if train_epoch < 0 or not 0 <= start <= self.num_batches:
            raise InputError(f"epoch {train_epoch}, position {start}", f"give positions in 0..{self.num_batches}")
        return self._batches(train_epoch, start)

    def _batches(self, train_epoch: int, start: int) -> Iterator[PlannedBatch]:
        raise NotImplementedError

    def sampling_epoch(self, train_epoch: int) -> int:
        """Returns the epoch whose batches a training epoch takes."""
        return train_epoch % self.reuse if self.reuse else train_epoch

    def order(self, train_epoch: int, count: int) -> list[int]:
        """Returns the step or round, of `count`, at each place of a training epoch."""
        if not self.reuse:
            return list(range(count))
        return permutation(key(self.seed, self.stream, train_epoch, ORDER_WORD), count).tolist()

    def _cut(self, round_: int, count: int) -> tuple[int, int]:
        """Returns the range of `count` permuted seeds that a round takes."""
        return round_ * count // self.rounds, (round_ + 1) * count // self.rounds


@dataclass(frozen=True)
class EpochPlan(Plan):
    """The batches of every epoch over one set of seeds."""

    train_ids: Array
    batch_size: int
    seed: int
    stream: int = Stream.TRAIN
    reuse: int = 0
    accumulate: int = 1

    @property
    def rounds(self) -> int:
        """Rounds of an epoch, of one batch each: ceil(n / batch_size)."""
        return -(-len(self.train_ids) // self.batch_size)

    def _batches(self, train_epoch: int, start: int) -> Iterator[PlannedBatch]:
        epoch = self.sampling_epoch(train_epoch)
        seeds = self.train_ids[permutation(key(self.seed, self.stream, epoch), len(self.train_ids))]
        steps = self.order(train_epoch, self.num_batches)
        for position in range(start, self.num_batches):
            first = position - position % self.accumulate
            group = steps[first : first + self.accumulate]
            low, high = self._cut(steps[position], len(seeds))
            yield PlannedBatch(
                key=BatchKey(int(self.stream), epoch, steps[position]),
                seeds=seeds[low:high],
                position=position,
                group=(position - first, len(group)),
                group_seeds=sum(high - low for low, high in (self._cut(step, len(seeds)) for step in group)),
            )


def evaluation_plan(node_ids: Array, batch_size: int, seed: int) -> EpochPlan:
    """Returns the batches of a sampled evaluation, the same ones each time, of the ids[n] that are scored, or of their places 0..n-1."""
    return EpochPlan(node_ids, batch_size, seed=seed, stream=Stream.EVAL)
