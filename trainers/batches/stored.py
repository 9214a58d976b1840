"""Mini-batches from stored samples: the offline half of DiskGNN (section 3), for any technique that samples on threads.

A stored batch has the bytes that the online sampler draws for the same (seed, epoch, step), so everything after it is bit-equal. Reading,
the comparison with the digest, transposes and weights are done by the threads of the source, under the same queue.

Memory: as online, without the samplers' 8 bytes per node; the arrays of a batch are views of the bytes that were read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphmill.assets.samples.read import Samples
from graphmill.assets.sampling.config import Neighbours, SamplingConfig
from graphmill.assets.storage.files.digests import code_digests
from graphmill.assets.storage.names.version import canonical
from graphmill.kernels.blocks.transpose import transpose as with_transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.epoch_plan import EpochPlan, Plan, PlannedBatch
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import Array, BatchKey, Block
from graphmill.trainers.record.checks import INPUTS, count_name


class StoredSampler:
    """A sampler that reads batches that were drawn before; any number of threads may use it."""

    def __init__(self, samples: Samples):
        self.samples = samples

    def sample(
        self, batch: BatchKey, seeds: Any, *, transpose: Transposes = "hidden", **drawn: Any
    ) -> tuple[Block, ...]:
        """Returns the stored blocks of a batch; raises InputError if it is not stored, is damaged, or was drawn for other seeds.

        What `drawn` asks of a sampler was decided when the batch was drawn: its edges have their ids, its seeds had their times.
        """
        stored, blocks = self.samples.batch(batch.epoch, batch.step)
        if not np.array_equal(stored, seeds):
            label = self.samples.artifact.label
            problem = f"batch {batch.step} of epoch {batch.epoch} of {label} has other seeds than this run"
            raise InputError(problem, "build the samples of this pipeline: graphmill build PIPELINE")
        kept = {"none": len(blocks), "hidden": 1, "all": 0}[transpose]
        return (*blocks[:kept], *(with_transpose(block) for block in blocks[kept:]))


@dataclass(frozen=True)
class StoredPlan(EpochPlan):
    """The batches of an evaluation under the keys by which they are stored, of an epoch of their own."""

    stored_epoch: int = 0

    def _batches(self, train_epoch: int, start: int) -> Iterator[PlannedBatch]:
        for item in super()._batches(train_epoch, start):
            yield item._replace(key=replace(item.key, epoch=self.stored_epoch))


def stored_plan(samples: Samples, plan: EpochPlan, splits: Sequence[Array]) -> StoredPlan | None:
    """Returns the plan of an evaluation whose batches are stored, by the training, validation and test nodes; None if they are not."""
    for epoch in range(samples.num_epochs, len(samples.starts) - 1):
        if np.array_equal(plan.train_ids, splits[epoch - samples.num_epochs + 1]):
            return StoredPlan(plan.train_ids, plan.batch_size, plan.seed, plan.stream, stored_epoch=epoch)
    return None


def planned_counts(plan: Plan, epochs: int, samples: Samples | None = None, *, whole: bool = True) -> dict[str, int]:
    """Returns the ledger's counts that are known before a run: batches and seeds, and for stored batches inputs and edges.

    Args:
        samples: the stored batches that it trains on, None if it samples.
        whole: whether it takes all edges of stored batches; of others their number is not known.
    """
    counts = {"batches": epochs * plan.num_batches, "seeds": epochs * len(plan.train_ids)}
    if samples is None:
        return counts
    times = batch_uses(plan, epochs, samples)
    edges = (np.asarray(samples.num_edges) * times[:, None]).sum(axis=0).tolist()
    return {
        INPUTS: int((np.asarray(samples.num_inputs) * times).sum()),
        **counts,
        **{count_name("edges", layer): n for layer, n in enumerate(edges if whole else [])},
    }


def batch_uses(plan: Plan, epochs: int, samples: Samples) -> Array:
    """Returns i64[B], the number of uses of each stored batch by `epochs` training epochs of the plan."""
    taken = [epoch % plan.reuse if plan.reuse else epoch for epoch in range(epochs)]
    return samples.order.epochs_of(np.bincount(taken, minlength=samples.num_epochs))  # evaluations are not counted


def require_samples(samples: Samples, plan: Plan, epochs: int, sampling: SamplingConfig, seed: int) -> None:
    """Checks that stored samples are those that a run would draw.

    Args:
        plan: the run's plan; the run trains `epochs` epochs at most.

    Raises:
        InputError: the samples were drawn otherwise, or are too few.
    """
    artifact = samples.artifact
    # A key that was added later and has its default is in neither of the two; one that differs is in at least one.
    said = {*canonical(sampling), *artifact.config}
    names = [
        name for name, key in Neighbours.__dataclass_fields__.items() if "hashed" not in key.metadata or name in said
    ]
    needs = {"seed": seed, "batch_size": plan.batch_size} | {name: getattr(sampling, name) for name in names}
    by_parts = isinstance(plan, PartPlan)
    if by_parts or "plan" in artifact.config:
        needs["plan"] = "parts" if by_parts else "shuffled"
    samples.require_batches(plan.num_batches, min(epochs, plan.reuse or epochs), needs)
    if dict(artifact.manifest.get("raw") or {}) != dict(code_digests({"sampling": sampling.method})):
        problem = f"{artifact.label} was drawn by another version of {sampling.method}"
        raise InputError(problem, "build the samples of this pipeline again: graphmill build PIPELINE")
