"""The peak memory of a training: anonymous pages, which the kernel cannot drop.

Pages of mapped files are left out. They are in the page cache, which the kernel empties when memory is short, so they show how much memory
was free and not how much was needed. The kernel keeps no peak of anonymous pages alone, hence the sampling.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from graphmill.assets.storage.system.machine import anonymous_bytes

INTERVAL_SECONDS = 0.02
WATCHER = "peak memory"
"""Name of the thread that samples."""


class PeakMemory:
    """Samples the memory of this process; `bytes` is the largest sample so far, None on a system without /proc."""

    def __init__(self):
        self.bytes: int | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Samples on a thread of its own while the block runs, at its start and at its end."""
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(ended,), name=WATCHER, daemon=True)
        self._sample()
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            self._sample()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(INTERVAL_SECONDS):
            self._sample()

    def _sample(self) -> None:
        now = anonymous_bytes()
        if now is not None:
            self.bytes = max(now, self.bytes or 0)


def measured_memory(run: Mapping[str, Any]) -> int | None:
    """Returns the peak bytes of a training by its run.json, summed over ranks; None if one was not recorded."""
    peaks = [each.get("peak_memory_bytes") for each in run.get("ranks") or [run]]
    known = [peak for peak in peaks if peak is not None]
    return sum(known) if len(known) == len(peaks) else None
