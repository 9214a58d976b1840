"""The bounds of a run's queue, without torch."""

from __future__ import annotations

from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.system.machine import memory_bytes

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
