"""A link of a set speed between host and device, so that time on the CPU follows bytes as it would across PCIe.

The link is a token bucket without a reserve: tokens arrive at the set rate, are used as they arrive during a transfer, and are not saved
between transfers. So transfers follow one another, B bytes take B / rate seconds from the moment when the link is free, and any number of
workers shares the one rate. A worker's own copying counts towards the transfer: it only waits for the remaining time, as a thread does that
issues a copy and then waits for the device.

Only time changes. The rows, the ledger and the losses are those of a run without a link, and the link carries exactly the bytes that the
ledger books as crossed.
"""

import threading
import time
from collections.abc import Callable
from fractions import Fraction

SECOND_NS = 1_000_000_000


class Link:
    """One direction of a link.

    Args:
        gbps: speed in GB/s, 10^9 bytes per second.
        clock: a monotonic clock that returns nanoseconds.
        sleep: a function that waits for a number of nanoseconds.
    """

    def __init__(
        self,
        gbps: float,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[int], None] = lambda ns: time.sleep(ns / SECOND_NS),
    ):
        self.gbps = gbps
        self.charged_bytes = 0
        self._rate = Fraction(gbps)  # 1 GB/s is one byte a nanosecond
        self._clock, self._sleep, self._lock = clock, sleep, threading.Lock()
        # The present run of transfers without a gap: its begin and its bytes. Dividing their sum loses no fraction of a nanosecond.
        self._began, self._busy_bytes = 0, 0

    def now(self) -> int:
        """Returns the clock's nanoseconds."""
        return self._clock()

    def carry(self, num_bytes: int, since: int) -> None:
        """Moves bytes, which could be moved since a time of `now` in nanoseconds, and returns when they have arrived."""
        with self._lock:
            if self._end() < since:
                self._began, self._busy_bytes = since, 0
            self._busy_bytes += num_bytes
            self.charged_bytes += num_bytes
            arrives = self._end()
        left = arrives - self._clock()
        if left > 0:
            self._sleep(left)

    def _end(self) -> int:
        return self._began + -(-self._busy_bytes * self._rate.denominator // self._rate.numerator)
