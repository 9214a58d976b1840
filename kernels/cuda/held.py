"""Memory of the host that launches touch: it outlives them.

A launch returns at once, so by the time at which it runs Python may hold no reference to what it reads.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable

from graphmill.kernels.arrays import owner_of
from graphmill.kernels.types import Array


def when_untouched(array: Array, wait: Callable[[], object], end: Callable[[], object]) -> None:
    """Ends what devices may do with the memory of an array when no view of it lives any more, and before it is freed.

    Args:
        wait: waits for all that was launched and may touch the memory: the last view may go while a launch is still queued.
        end: takes the memory from the devices. The driver does so for a process that ends, and may be gone at Python's last calls.
    """

    def ended() -> None:
        wait()
        end()

    weakref.finalize(owner_of(array), ended).atexit = False


class HeldArrays:
    """Arrays of the host that launches read; safe to fill from many threads."""

    MOST = 4

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrays: deque[tuple[Array, Callable[[], bool], Callable[[], object]]] = deque()

    def add(self, array: Array, passed: Callable[[], bool], wait: Callable[[], object]) -> None:
        """Keeps an array until the device has come so far, and gives back those that it has done with."""
        with self._lock:
            self._arrays.append((array, passed, wait))
            while self._arrays and (len(self._arrays) > self.MOST or self._arrays[0][1]()):
                _, done, finish = self._arrays.popleft()
                if not done():
                    finish()
