"""The `[samples]` table, the configuration that the stage hashes, and the plan of the stored epochs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from assets.building.execution import MOST_THREADS, Workers
from assets.building.keys import Checked, KeyProblem, within
from assets.sampling.config import Neighbours, SamplingConfig
from kernels.sampling.epoch_plan import EpochPlan
from kernels.types import Array

PART_BYTES = 512 << 20

PART_NAME = re.compile(r"epoch-(\d+)-batches-(\d+)-(\d+)")


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

    def problems(self) -> Iterator[KeyProblem]:
        """Yields a number of epochs that stores nothing."""
        yield from super().problems()
        if self.epochs < 1:
            how = "set `reuse` in [sampling] or `epochs` in [samples] to 1 or more"
            yield KeyProblem("epochs", f"samples of {self.epochs} epochs: {how}")


@dataclass(frozen=True, kw_only=True)
class SamplesTable(Checked):
    """The `[samples]` table of a pipeline file."""

    # number of sampling epochs that are stored; 0 = as many as `reuse` of [sampling]
    epochs: int = field(default=0, metadata=within(0))

    def problem(self, sampling: SamplingConfig) -> str:
        """Returns the conflict with `[sampling]` in words, "" if there is none."""
        if self.epochs == 0 and sampling.reuse == 0:
            return "[samples] would store no epoch: set reuse in [sampling], or epochs here, to 1 or more"
        if 0 < self.epochs < sampling.reuse:
            return f"epochs = {self.epochs}, but [sampling] has reuse = {sampling.reuse}: training would ask for more"
        return ""


def samples_config(table: SamplesTable, sampling: SamplingConfig, seed: int) -> SamplesConfig:
    """Returns the stage's configuration from the tables of a pipeline.

    Args:
        table: the `[samples]` table, which was checked against `sampling`.
        sampling: the `[sampling]` table.
        seed: seed of the pipeline.
    """
    return SamplesConfig(
        seed=seed,
        **{name: getattr(sampling, name) for name in Neighbours.__dataclass_fields__},
        batch_size=sampling.batch_size,
        epochs=table.epochs or sampling.reuse,
    )


@dataclass(frozen=True, kw_only=True)
class SamplesExecution(Workers):
    """Execution config of the stage; no byte of the samples depends on it."""

    # largest number of processes that build parts at the same time: while one writes, another samples. No more than threads.
    workers: int = field(default=2, metadata=within(1, MOST_THREADS))

    def __post_init__(self) -> None:
        """Checks the ranges."""
        super().__post_init__()
        object.__setattr__(self, "workers", min(self.workers, self.threads))


class BatchRange(NamedTuple):
    """Consecutive steps of one epoch: low to high - 1."""

    epoch: int
    low: int
    high: int

    @property
    def name(self) -> str:
        """Name of the part."""
        return f"epoch-{self.epoch}-batches-{self.low}-{self.high - 1}"

    @staticmethod
    def of(part: str) -> BatchRange:
        """Returns the range that a part's name gives."""
        match = PART_NAME.fullmatch(part)
        assert match, f"{part!r} names no part"
        epoch, low, last = (int(group) for group in match.groups())
        return BatchRange(epoch, low, last + 1)


def epoch_plan(semantic: SamplesConfig, train_ids: Array) -> EpochPlan:
    """Returns the plan of the sampling epochs; training on them permutes only the order of batches."""
    return EpochPlan(np.asarray(train_ids), semantic.batch_size, seed=semantic.seed)
