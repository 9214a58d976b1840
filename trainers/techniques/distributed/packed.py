"""The mini-batches of one rank from disk: stored batches of its parts, with rows of all parts packed for each (FastSample with DiskGNN).

Offline sampling knows every batch of every part, so the rows that a rank would fetch for one are packed beside its own ones before the
training. An epoch then exchanges no row between ranks, only gradients; what an exchange would send, a rank reads from its own disk, in one
sequential read per batch (trainers/techniques/disk.py). Losses are those of the exchange, to the bit.

    files    batches of a part stand together (assets/samples/order.py), so a machine needs those of its own parts, and the static tiers
    space    of chunks and disk caches of all parts together, as much as `disk` of [memory] allows
    memory   as `disk` on each rank: static tiers, queues and loaders

Evaluations and predictions take rows from the shards, as with the exchange.

Known limit: the static tiers hold what batches of all parts need most, the same rows on each rank.
"""

from __future__ import annotations

from graphmill.kernels.types import BatchKey
from graphmill.trainers.batches.source import Batching
from graphmill.trainers.batches.stored import StoredSampler
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.rows.packed import PackedRows
from graphmill.trainers.techniques.disk import NUM_QUEUES, DiskSource, open_packed
from graphmill.trainers.techniques.distributed.sharded import Ownership
from graphmill.trainers.techniques.minibatch import open_stored


class PackedRankSource(DiskSource):
    """Supplies the batches of this rank's parts from disk.

    Args:
        batching: the run's batching; its plan lists the batches of all parts.
        rows: the source of the stored batches' rows.
        sampler: the sampler that reads the stored batches.
        owned: the parts of this rank.
    """

    def __init__(self, batching: Batching, rows: PackedRows, sampler: StoredSampler, owned: Ownership):
        super().__init__(batching, rows, sampler)
        self.owned = owned

    def supplies(self, key: BatchKey) -> bool:
        """Returns whether a batch belongs to a part of this rank."""
        return key.step % self.owned.num_parts in self.owned.parts


def open_packed_source(run: Run, owned: Ownership) -> PackedRankSource:
    """Returns the source of a rank's batches from packed chunks.

    Args:
        run: the run.
        owned: the parts of this rank.

    Raises:
        InputError: samples or packed chunks are missing, or are another run's.
    """
    sampler = open_stored(run, owned.parts)
    rows = open_packed(run, run.batching.queue_bytes // NUM_QUEUES, owned.parts)
    return PackedRankSource(run.batching, rows, sampler, owned)
