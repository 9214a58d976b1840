"""Mini-batches from stored samples: the offline half of DiskGNN (section 3), for any trainer that samples on threads.

A stored batch has the bytes that the online sampler draws for the same (seed, epoch, step), so everything after it is equal to
the bit. Reading, the comparison with the digest, transposes and weights are done by the worker threads, under the same queue.

Memory: as online, without the samplers' 8 bytes a node; the arrays of a batch are views of the bytes that were read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assets.samples.read import Samples
from kernels.errors import InputError
from kernels.sampling.epoch_plan import EpochPlan
from kernels.sampling.sample import Transposes
from kernels.sampling.transpose import transpose as with_transpose
from kernels.types import BatchKey, Block
from trainers.batches.online import OnlineSource


class StoredSampler:
    """Stands where a sampler stands and reads what one drew before; any number of threads may use it.

    Args:
        samples: open for reading.
    """

    def __init__(self, samples: Samples):
        self.samples = samples

    def sample(self, batch: BatchKey, seeds: Any, *, transpose: Transposes = "hidden") -> tuple[Block, ...]:
        """Returns the stored blocks of a batch, with the transposes that are asked for.

        Raises:
            InputError: the batch is not stored, is damaged, or was drawn for other seeds.
        """
        stored, blocks = self.samples.batch(batch.epoch, batch.step)
        if not np.array_equal(stored, seeds):
            label = self.samples.artifact.label
            problem = f"batch {batch.step} of epoch {batch.epoch} of {label} has other seeds than this run"
            raise InputError(problem, "build the samples of this pipeline: graphmill build PIPELINE")
        kept = {"none": len(blocks), "hidden": 1, "all": 0}[transpose]
        return (*blocks[:kept], *(with_transpose(block) for block in blocks[kept:]))


class OfflineSource(OnlineSource):
    """An `OnlineSource` whose batches come from stored samples.

    Args:
        samples: those of the run: same graph, seed and `[sampling]`, and enough epochs.
        epochs: that the run trains at most.
        workers: number of threads that read.
        options: as of `OnlineSource`.

    Raises:
        InputError: the samples were drawn otherwise, or are too few.
    """

    def __init__(self, samples: Samples, *, epochs: int, workers: int, **options: Any):
        method = options.get("method", "uniform")
        require_samples(samples, options["plan"], epochs, options["fanouts"], method, options["seed"])
        super().__init__(workers=workers, samplers=[StoredSampler(samples)] * workers, **options)


def require_samples(
    samples: Samples, plan: EpochPlan, epochs: int, fanouts: tuple[int, ...], method: str, seed: int
) -> None:
    """Checks that stored samples are those that a run would draw.

    Args:
        samples: open for reading.
        plan: of the run, which trains `epochs` epochs at most.
        fanouts, method, seed: what it samples with.

    Raises:
        InputError: the samples were drawn otherwise, or are too few.
    """
    needs = {"seed": seed, "fanouts": fanouts, "method": method, "batch_size": plan.batch_size}
    samples.require_batches(plan.num_batches, min(epochs, plan.reuse or epochs), needs)
