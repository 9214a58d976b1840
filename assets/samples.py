"""The samples stage: all mini-batches of K epochs, sampled before training (DiskGNN, section 3, offline sampling).

With the batches known beforehand, what each needs can be counted exactly, placed and packed; and training on stored samples
is training on the online sampler's, byte for byte, because both are functions of (seed, epoch, step).

Parts `epoch-E-batches-A-B`, each the batches of one run of steps of one epoch:
    batches u8[bytes]                    records (assets/batch_record.py), each starting on a page of the file
    bounds i64[n+1]                      byte of the file at which each record starts, and the end
    digests u64[n]                       xxh3-64 of each record
    num_inputs i64[n]; num_edges i64[n, layers], from the input side
The parent, with B = K x batches an epoch, by epoch and step:
    part_of i32[B], offsets i64[B], num_bytes i64[B]    where each record is
    digests u64[B], num_inputs i64[B], num_edges i64[B, layers]
    visits u32[N]                        how many batches have the node among their inputs
    access.png                           share of all accesses by the hottest nodes

Batches a part: as many as surely fit into `part_bytes` (a bound from fan-outs and graph; real parts are several times smaller).

Peak memory of a part, with T threads: T x (12 N + 3 R) + 4 R bytes at most and touched pages only, R the bytes of the
largest batch, beside some 30 MB of the process and the mapped topology; the T threads may be spread over several
processes. Of the parent: 20 N + T R, and 100 bytes a batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from assets.execution import Workers
from assets.references import code_digests
from assets.sampling import SamplingConfig
from assets.stage import Progress, Summary
from kernels.errors import InputError
from kernels.plan import EpochPlan
from kernels.types import Array

if TYPE_CHECKING:
    from assets.artifact import Artifact
    from assets.writer import Writer

PART_BYTES = 512 << 20
PART_NAME = re.compile(r"epoch-(\d+)-batches-(\d+)-(\d+)")


@dataclass(frozen=True, kw_only=True)
class SamplesConfig:
    """Everything that decides the stored batches, besides the graph."""

    # Of the run; keys what is drawn.
    seed: int
    # How neighbours are drawn, as in `[sampling]`.
    method: str
    # From the seeds outwards.
    fanouts: tuple[int, ...]
    # Seeds in a mini-batch at most.
    batch_size: int
    # K, the sampling epochs that are stored.
    epochs: int
    # Bound on the bytes of a part; one batch may exceed it.
    part_bytes: int = PART_BYTES

    def __post_init__(self) -> None:
        """Checks the ranges."""
        if self.epochs < 1:
            raise InputError(
                f"samples of {self.epochs} epochs", "set `reuse` in [sampling] or `epochs` in [samples] to 1 or more"
            )
        if self.part_bytes < 1:
            raise InputError(f"part_bytes = {self.part_bytes}", "give at least 1")


@dataclass(frozen=True, kw_only=True)
class SamplesTable:
    """The `[samples]` table of a pipeline file.

    Raises:
        InputError: a value is outside its range.
    """

    # Sampling epochs that are stored; 0 = as many as `reuse` of [sampling].
    epochs: int = 0

    def __post_init__(self) -> None:
        """Checks the range."""
        if self.epochs < 0:
            raise InputError(f"epochs = {self.epochs} is negative", "give 0 for the `reuse` of [sampling], or more")

    def problem(self, sampling: SamplingConfig) -> str:
        """Returns what does not fit together with `[sampling]`, "" where all does."""
        if self.epochs == 0 and sampling.reuse == 0:
            return "[samples] would store no epoch: set reuse in [sampling], or epochs here, to 1 or more"
        if 0 < self.epochs < sampling.reuse:
            return f"epochs = {self.epochs}, but [sampling] has reuse = {sampling.reuse}: training would ask for more"
        return ""


def samples_config(table: SamplesTable, sampling: SamplingConfig, seed: int) -> SamplesConfig:
    """Returns what the tables of a pipeline ask to be stored.

    Args:
        table: checked against `sampling`.
        sampling: how batches are drawn.
        seed: the pipeline's.
    """
    return SamplesConfig(
        seed=seed,
        method=sampling.method,
        fanouts=sampling.fanouts,
        batch_size=sampling.batch_size,
        epochs=table.epochs or sampling.reuse,
    )


@dataclass(frozen=True, kw_only=True)
class SamplesExecution(Workers):
    """How samples are built; no byte of them depends on this.

    Raises:
        InputError: a value is outside its range.
    """

    # Processes that build parts side by side, at most: while one writes, another samples. No more than threads.
    workers: int = 2

    def __post_init__(self) -> None:
        """Checks the ranges."""
        super().__post_init__()
        object.__setattr__(self, "workers", min(self.workers, self.threads))


class Run(NamedTuple):
    """Consecutive steps of one epoch: low to high - 1."""

    epoch: int
    low: int
    high: int

    @property
    def name(self) -> str:
        """The part's name."""
        return f"epoch-{self.epoch}-batches-{self.low}-{self.high - 1}"

    @staticmethod
    def of(part: str) -> Run:
        """Returns the run that a part's name says."""
        match = PART_NAME.fullmatch(part)
        assert match, f"{part!r} names no part"
        epoch, low, last = (int(group) for group in match.groups())
        return Run(epoch, low, last + 1)


class SamplesStage:
    """Samples and stores mini-batches; `SAMPLES` is the one instance."""

    name = "samples"
    code_version = 1
    work_unit = "batches"
    Semantic = SamplesConfig
    Execution = SamplesExecution

    def inputs(self, semantic: SamplesConfig) -> Mapping[str, str]:
        """Sampling reads a graph."""
        return {"graph": "graph"}

    def raw(self, semantic: SamplesConfig) -> Mapping[str, str]:
        """The user's own sampling function enters besides the graph."""
        return code_digests({"sampling": semantic.method})

    def parts(self, inputs: Mapping[str, Artifact], semantic: SamplesConfig) -> Sequence[str]:
        """Returns the parts' names, by epoch and step.

        Raises:
            InputError: the graph has no training nodes.
        """
        files = inputs["graph"].files
        num_train = files["train_ids.npy"]["shape"][0]
        if num_train == 0:
            problem = f"{inputs['graph'].label} has no training nodes, so an epoch of samples would be empty"
            raise InputError(problem, "give its source a training split")
        num_batches = -(-num_train // semantic.batch_size)
        seeds = -(-num_train // num_batches)
        shape = files["indptr.npy"]["shape"][0] - 1, files["indices.npy"]["shape"][0]
        bound = _record_bound(seeds, semantic.fanouts, *shape)
        count = min(num_batches, -(-num_batches // max(1, semantic.part_bytes // bound)))
        cuts = [place * num_batches // count for place in range(count + 1)]
        return [Run(epoch, low, high).name for epoch in range(semantic.epochs) for low, high in pairwise(cuts)]

    def work(self, inputs: Mapping[str, Artifact], semantic: SamplesConfig, part: str) -> int:
        """Returns the batches of a part."""
        run = Run.of(part)
        return run.high - run.low

    def build(
        self,
        inputs: Mapping[str, Artifact],
        semantic: SamplesConfig,
        execution: SamplesExecution,
        writer: Writer,
        progress: Progress,
        part: str | None = None,
    ) -> Summary:
        """Samples the batches of a part, or puts the index over finished parts.

        Raises:
            InputError: the topology is not sound, a user's function failed, or a part is damaged.
        """
        if part is None:
            from assets.samples_index import build_index

            names = self.parts(inputs, semantic)
            return build_index(inputs, semantic, names, execution.threads, writer, progress)
        threads = execution.threads_each
        from assets.samples_part import build_part

        return build_part(inputs["graph"], semantic, threads, Run.of(part), writer, progress)


SAMPLES = SamplesStage()


def _record_bound(seeds: int, fanouts: tuple[int, ...], num_nodes: int, num_edges: int) -> int:
    """Returns bytes that a record hardly exceeds: every draw another edge, and another node while there are any."""
    nodes, num_bytes = seeds, 0
    for fanout in fanouts:
        edges = num_edges if fanout < 0 else min(num_edges, nodes * fanout)
        num_bytes += 4 * edges + 4 * nodes
        nodes = min(num_nodes, nodes + edges)
    return num_bytes + (4 if num_nodes < 2**31 else 8) * nodes


def epoch_plan(semantic: SamplesConfig, train_ids: Array) -> EpochPlan:
    """Returns the plan of the sampling epochs; training on them permutes the order of batches and nothing else."""
    return EpochPlan(np.asarray(train_ids), semantic.batch_size, seed=semantic.seed)
