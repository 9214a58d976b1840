"""Batches that are prepared ahead of the step, or in turn with it, and the bounds of a run's queue, without torch."""

import sys

from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.system.machine import memory_bytes, usable_cores
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.execution import TrainExecution

AUTO = "auto"
AUTO_BYTES = 1 << 30
"""Initial bytes of a queue of "auto"."""
EAGER_BYTES = 32 << 20
"""Bytes of batches that wait in a queue of "auto" at any number of them."""
WAITING_BATCHES = 1
"""Batches that wait in it beyond these bytes, besides one in the work of each thread."""

SHARING = 16
"""Batches of a sampled evaluation that read a row from which on it is held for all of them (trainers/rows/shared.py)."""

MOST_CORES_IN_TURN = 2
"""Cores with which no thread samples ahead of a step; with more, a step leaves some of them idle."""


def batches_ahead(queue: str) -> tuple[int, int] | None:
    """Returns (bytes, batches): beyond the bytes no more batches wait than threads prepare at once and these; None for a queue of a size.

    More batches hide nothing, and a queue of 1 GiB that fills now and then would be memory that must be there.
    """
    return (EAGER_BYTES, WAITING_BATCHES) if queue == AUTO else None


def most_batches(queue: str, lanes: int, batch_bytes: int) -> int:
    """Returns the most batches of a size that are prepared, wait or are trained on at once by the key `queue`, beside its bytes.

    Args:
        lanes: number of threads that prepare batches.
    """
    if queue != AUTO:
        return sys.maxsize
    # A little smaller ones are one more within the bytes.
    return 1 + max(lanes + WAITING_BATCHES, -(-EAGER_BYTES // max(1, batch_bytes)))


def queue_bounds(queue: str) -> tuple[int, int]:
    """Returns (bytes of the queues of a run, bytes up to which they grow if a batch is larger) for the key `queue`.

    A batch that is larger than the queue must be held for training anyway: so a size, or 1 GiB for "auto", is where the queue begins,
    and it has room for two batches of any size, within half of the machine's memory.
    """
    first = AUTO_BYTES if queue == AUTO else parse_size(queue)
    return first, max(first, memory_bytes() // 2)


def prepared_in_turn(train: TrainConfig, execution: TrainExecution) -> bool:
    """Returns whether all threads prepare each batch just before its step, if its rows are in memory.

    Threads that sample beside a step then only take cores from it, as long as the step has all cores. On two cores an epoch in turn took
    0.84 times as long (docs/log.md). Rows that cross a modelled link leave the cores idle, so they come while the step computes.
    """
    cores, settings = usable_cores(), train.own_settings
    at_once, ahead = settings.trainers_of(cores), settings.staleness or settings.lookahead
    alone = at_once == 1 and not ahead and train.num_threads >= cores
    drawn = execution.samples == "online" and execution.features in ("auto", "memory")
    own = execution.link is None and not execution.samplers
    return alone and drawn and own and cores <= MOST_CORES_IN_TURN
