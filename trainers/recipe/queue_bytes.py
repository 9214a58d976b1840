"""The bounds of a run's queue, without torch."""

from __future__ import annotations

from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.machine import memory_bytes

AUTO = "auto"
AUTO_BYTES = 1 << 30
"""Initial bytes of a queue of "auto"."""


def queue_bounds(queue: str) -> tuple[int, int]:
    """Returns (bytes of the queues of a run, bytes up to which they grow if a batch is larger) for the key `queue`.

    A size is both. "auto" begins with 1 GiB and has room for two batches of any size, within half of the machine's memory: a batch of that
    size must be held for training anyway.
    """
    if queue != AUTO:
        return parse_size(queue), parse_size(queue)
    return AUTO_BYTES, max(AUTO_BYTES, memory_bytes() // 2)
