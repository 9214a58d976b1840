"""The technique `disk`: stored batches whose rows come from packed chunks (DiskGNN, section 5.3; trainers/batches/source.py).

The batches are those of the online sampler, byte for byte, and a row is the same in every tier: losses equal those of `minibatch`.
"""

from __future__ import annotations

from copy import copy

from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.trainers.batches.source import DiskSource, PreparedSource
from graphmill.trainers.batches.stored import StoredPlan
from graphmill.trainers.loop.executor import BatchExecutor, Run
from graphmill.trainers.techniques.openings import open_disk_source, planned_reads


def open_executor(run: Run) -> DiskExecutor:
    """Returns the executor of training on stored batches; raises InputError if samples or packed chunks are missing or another run's."""
    return DiskExecutor(run, open_disk_source(run))


class DiskExecutor(BatchExecutor):
    """Trains on stored batches, one after the other; every number of its ledger is known before the training."""

    source: DiskSource
    packs_stored = True

    def evaluation_source(self, plan: EpochPlan) -> PreparedSource:
        """Returns the source of an evaluation's batches: from disk as those of training, if they are stored and so packed."""
        made = super().evaluation_source(plan)
        if isinstance(made.batching.plan, StoredPlan):
            packed = copy(self.source)
            packed.batching = made.batching
            return packed
        return made

    def planned(self, epochs: int) -> dict[str, int]:
        """Returns the numbers of the cache plan and the samples."""
        return planned_reads(self.run, epochs)
