"""The `[samples]` table, the configuration that the stage hashes, and the plan of the stored epochs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from graphmill.assets.building.execution import MOST_THREADS, Workers
from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.partitions.read import Partitions
from graphmill.assets.sampling.bounds import even_seeds
from graphmill.assets.sampling.config import MOST_STORED, Neighbours, SamplingConfig
from graphmill.kernels.sampling.epoch_plan import EpochPlan, Plan, PlannedBatch, evaluation_plan
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.types import Array

Split = TypeVar("Split")
SeedPlan = Literal["shuffled", "parts"]

OF_SAMPLING = ("fanouts", "batch_size", "reuse", "sampling_seed")
"""Keys of a sample set that stand in place of those of `[sampling]`."""
PART_BYTES = 512 << 20
PARTS_AT_ONCE = 64
"""Parts of which the batches are drawn by the same passes: their drawn edges lie on the disk at one time."""

PART_NAME = re.compile(r"(?:part-(\d+)-)?epoch-(\d+)-batches-(\d+)-(\d+)")


@dataclass(frozen=True, kw_only=True)
class SamplesConfig(Neighbours):
    """The configuration that decides the stored batches, besides the graph."""

    # seed of the run, which names every random decision
    seed: int
    # largest number of seeds per mini-batch
    batch_size: int
    # K, the number of sampling epochs that are stored
    epochs: int
    # largest number of bytes per part; a part of one batch may exceed it
    part_bytes: int = field(default=PART_BYTES, metadata=within(1))
    # whether the batches of sampled evaluations are stored behind those of the K epochs
    evaluate: bool = field(default=False, metadata={"hashed": "unless default"})
    # which seeds form a batch: "shuffled" = any seeds; "parts" = seeds of one part, as ranks that share the parts train
    plan: SeedPlan = field(default="shuffled", metadata={"hashed": "unless default"})

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a number of epochs that stores nothing."""
        yield from super().problems()
        if self.epochs < 1:
            how = "set `reuse` in [sampling] or `epochs` in [samples] to 1 or more"
            yield KeyProblem("epochs", f"samples of {self.epochs} epochs: {how}")

    @property
    def num_stored(self) -> int:
        """Number of stored epochs: K, and with `evaluate` one of the validation nodes and one of the test nodes."""
        return self.epochs + 2 * self.evaluate

    @property
    def inputs(self) -> tuple[str, ...]:
        """Stages besides the graph that decide the batches."""
        return (*super().inputs, *(("partitions",) if self.plan == "parts" else ()))


@dataclass(frozen=True, kw_only=True)
class SamplesTable(Checked):
    """The `[samples]` table of a pipeline file."""

    # number of sampling epochs that are stored; 0 = as many as `reuse` of [sampling]
    epochs: int = field(default=0, metadata=within(0, MOST_STORED))
    # whether the batches by which `eval = "sampled"` scores validation and test nodes are stored as well, and so planned and packed
    evaluate: bool = False
    # which seeds form a batch: "shuffled" = any seeds; "parts" = seeds of one part of [partitions], as ranks that share the parts train
    plan: SeedPlan = "shuffled"

    header, whose = "[samples]", "[sampling] has "

    def problem(self, sampling: SamplingConfig) -> str:
        """Returns the conflict with `[sampling]` in words, "" if there is none."""
        if self.epochs == 0 and sampling.reuse == 0:
            return f"{self.header} would store no epoch: set reuse in [sampling], or epochs here, to 1 or more"
        if 0 < self.epochs < sampling.reuse:
            return f"epochs = {self.epochs}, but {self.whose}reuse = {sampling.reuse}: training would ask for more"
        return ""


@dataclass(frozen=True, kw_only=True)
class SampleSet(SamplesTable):
    """A `[[samples]]` table: one of several sets of samples, drawn by `[sampling]` but for the keys that the set has itself."""

    # name of the set, which trainings give as their `samples`; letters, digits, - and _
    name: str
    # number of neighbours that a node draws, one per layer, in place of those of [sampling]
    fanouts: tuple[int | dict[str, int], ...] = ()
    # largest number of seeds per mini-batch, in place of that of [sampling]
    batch_size: int | None = field(default=None, metadata=within(1))
    # number of sampling epochs that training epochs take in turn, in place of that of [sampling]
    reuse: int | None = field(default=None, metadata=within(0, MOST_STORED))
    # seed of the batches and of their neighbours, in place of that of [sampling]
    sampling_seed: int | None = field(default=None, metadata=within(0))

    header, whose = "[[samples]]", ""

    def drawn_by(self, sampling: SamplingConfig) -> SamplingConfig:
        """Returns `[sampling]` with the keys of the set; raises ConfigError if they contradict the other keys of `[sampling]`."""
        own = {key: getattr(self, key) for key in OF_SAMPLING}
        return replace(sampling, **{key: value for key, value in own.items() if value not in (None, ())})


def samples_config(table: SamplesTable, sampling: SamplingConfig, seed: int) -> SamplesConfig:
    """Returns the stage's configuration from the `[samples]` table, which was checked against `sampling`."""
    return SamplesConfig(
        seed=sampling.seed_of(seed),
        **{name: getattr(sampling, name) for name in Neighbours.__dataclass_fields__},
        batch_size=sampling.batch_size,
        epochs=table.epochs or sampling.reuse,
        evaluate=table.evaluate,
        plan=table.plan,
    )


@dataclass(frozen=True, kw_only=True)
class SamplesExecution(Workers):
    """Execution config of the stage; no byte of the samples depends on it."""

    # largest number of processes that build parts at the same time: while one writes, another samples. No more than threads.
    workers: int = field(default=2, metadata=within(1, MOST_THREADS))

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "workers", min(self.workers, self.threads))


class BatchRange(NamedTuple):
    """Consecutive batches of one stored epoch: low to high - 1.

    Attributes:
        low, high: steps; of a part, rounds.
        part: the part of the graph whose batches these are; -1 for those of all seeds.
    """

    epoch: int
    low: int
    high: int
    part: int = -1

    @property
    def name(self) -> str:
        """Name of the artifact that has these batches."""
        beginning = f"part-{self.part}-" if self.part >= 0 else ""
        return f"{beginning}epoch-{self.epoch}-batches-{self.low}-{self.high - 1}"

    @staticmethod
    def of(name: str) -> BatchRange:
        """Returns the range that an artifact's name gives."""
        match = PART_NAME.fullmatch(name)
        assert match, f"{name!r} names no batches"
        part, *rest = match.groups()
        epoch, low, last = map(int, rest)
        return BatchRange(epoch, low, last + 1, -1 if part is None else int(part))


def epoch_plan(semantic: SamplesConfig, train_ids: Array, parts: Partitions | None = None) -> Plan:
    """Returns the plan of the sampling epochs of the seeds `train_ids`; training on them permutes only the order of batches."""
    seeds = np.asarray(train_ids)
    if parts is None:
        return EpochPlan(seeds, semantic.batch_size, seed=semantic.seed)
    return PartPlan(seeds, parts.part_of[seeds], parts.num_parts, semantic.batch_size, seed=semantic.seed)


def epoch_size(semantic: SamplesConfig, num_seeds: Sequence[int], epoch: int, largest_part: int) -> tuple[int, int]:
    """Returns (number of batches, seeds of the largest) of a stored epoch, or of each part in it; (0, 0) without seeds.

    Args:
        num_seeds: numbers of training, validation and test nodes.
        largest_part: training nodes of the part that has most of them; 0 without parts.
    """
    of_parts = semantic.plan == "parts" and epoch < semantic.epochs
    return even_seeds(largest_part if of_parts else stored_seeds(semantic, num_seeds, epoch), semantic.batch_size)


def stored_seeds(semantic: SamplesConfig, splits: Sequence[Split], epoch: int) -> Split:
    """Returns the split that gives a stored epoch's seeds: the first one for the K epochs, then the others, one each."""
    return splits[max(0, epoch - semantic.epochs + 1)]


def stored_batches(
    semantic: SamplesConfig, splits: Sequence[Array], batches: BatchRange, parts: Partitions | None = None
) -> list[PlannedBatch]:
    """Returns some batches of a stored epoch, with the keys that draw them."""
    seeds, found = np.asarray(stored_seeds(semantic, splits, batches.epoch)), []
    if batches.epoch < semantic.epochs:
        found = list(epoch_plan(semantic, seeds, parts).batches(batches.epoch))
    elif len(seeds):
        found = list(evaluation_plan(seeds, semantic.batch_size, semantic.seed).batches(0))
    if parts is not None and batches.part >= 0:
        found = found[batches.part :: parts.num_parts]
    return found[batches.low : batches.high]
