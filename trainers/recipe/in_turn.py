"""Whether batches are prepared ahead of the step, on threads of their own, or in turn with it; and the bounds of their queue."""

from __future__ import annotations

from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.system.machine import memory_bytes, usable_cores
from graphmill.trainers.recipe.config import TrainExecution
from graphmill.trainers.recipe.techniques import find_technique

MOST_CORES_IN_TURN = 2
"""Cores with which no thread samples ahead of a step; with more, a step leaves some of them idle."""


def prepared_in_turn(trainer: str, execution: TrainExecution) -> bool:
    """Returns whether all threads prepare each batch just before its step, if its rows are in memory.

    Threads that sample beside a step then only take cores from it. On two cores an epoch in turn took 0.84 times as long (docs/log.md).
    """
    if find_technique(trainer).roles:
        return False
    drawn = execution.samples == "online" and execution.features in ("auto", "memory")
    return drawn and not execution.samplers and usable_cores() <= MOST_CORES_IN_TURN


AUTO = "auto"
AUTO_BYTES = 1 << 30
"""Initial bytes of a queue of "auto"."""


def queue_bounds(queue: str) -> tuple[int, int]:
    """Returns (bytes of the queues of a run, bytes up to which they grow if a batch is larger) for the key `queue`.

    A batch that is larger than the queue must be held for training anyway: so a size, or 1 GiB for "auto", is where the queue begins,
    and it has room for two batches of any size, within half of the machine's memory.
    """
    first = AUTO_BYTES if queue == AUTO else parse_size(queue)
    return first, max(first, memory_bytes() // 2)
