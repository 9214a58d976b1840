"""What a long evaluation says of its pace: what it read, what it waited for, and the key that would help.

A sampled one also says at its start how long it will take; an exact one shows that by its bar.
"""

import resource
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from graphmill.assets.building.stage import Progress
from graphmill.assets.sizes import format_bytes
from graphmill.trainers.record.ledger import Ledger

FIRST_BATCHES, FIRST_SECONDS = 4, 2.0
"""Batches, and seconds, after which the time of all batches is told."""
LONG_SECONDS = 10.0
"""Seconds from which on an evaluation says anything."""
MOSTLY = 0.5
"""Share of the time from which on waiting for rows is what makes it slow."""
SECTOR_BYTES = 512
"""Bytes of a unit in which `getrusage` counts what is read of disks and written to files."""

Item = TypeVar("Item")


class Pace:
    """Measures the batches of one evaluation.

    Args:
        ledger: the transfers of the evaluation, among others.
        shared: number of rows that are held for all batches; 0 for none.
        hinted: holds the hints that this run has had; each is told once.
        in_step: whether processes exchange the rows of each batch.
    """

    def __init__(
        self, progress: Progress, total: int, ledger: Ledger, shared: int, hinted: set[str], in_step: bool = False
    ):
        self.progress, self.total, self.ledger, self.shared, self.hinted = progress, total, ledger, shared, hinted
        self.in_step = in_step
        self.started, self.waited, self.rows, self.batches = time.monotonic(), 0.0, 0, 0
        self._read, self._told = self._read_bytes(), False

    def waits(self, batches: Iterable[Item]) -> Iterator[Item]:
        """Yields the batches, and adds up the time until each is there."""
        items = iter(batches)
        while True:
            began = time.monotonic()
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self.waited += time.monotonic() - began
            yield item
            del item

    def done(self, rows: int) -> None:
        """Counts a batch of some input rows, and tells once how long all of them will take."""
        self.rows, self.batches = self.rows + rows, self.batches + 1
        seconds = time.monotonic() - self.started
        if self._told or self.batches < FIRST_BATCHES or seconds < FIRST_SECONDS:
            return
        self._told, whole = True, seconds / self.batches * self.total
        if whole >= LONG_SECONDS:
            kept = f"; {self.shared:,} rows that its batches share are in memory" if self.shared else ""
            self.progress.tell(f"sampled evaluation: {self.total:,} batches, about {_time(whole)}{kept}")

    def end(self) -> None:
        """Tells the bytes that a long evaluation has read, and the share of its time in which it waited."""
        seconds = time.monotonic() - self.started
        if seconds < LONG_SECONDS:
            return
        share, read = self.waited / seconds, self._read_bytes() - self._read
        of_disk = f", {format_bytes(read)} read past the page cache" if read else ""
        pace = f"{_time(seconds)}, {self.rows / seconds:,.0f} rows/s{of_disk}"
        self.progress.tell(f"sampled evaluation: {pace}, {100 * share:.0f} % of the time the model waited for rows")
        _tell_once(self.progress, self._hint(share, read), self.hinted)

    def _hint(self, share: float, read: int) -> str:
        """Returns a sentence with the key that would help."""
        if share < MOSTLY:
            return "the model takes most of this time: a smaller hidden or fewer fanouts makes it shorter"
        if self.in_step:
            return 'most of this time waits for rows of other ranks: eval = "exact" exchanges each row once per layer'
        if read:
            return (
                'most of this time waits for rows of the disk: eval = "exact" reads each row once per layer, in order, '
                "and [memory] host or a larger eval_workspace keeps more of them"
            )
        return "most of this time prepares batches: a larger samplers prepares more of them at once"

    def _read_bytes(self) -> int:
        return self.ledger.moved_bytes("disk")


class ExactPace:
    """Measures one exact evaluation of a number of rows, over all layers, by what the system counts of this process."""

    def __init__(self, progress: Progress, rows: int, hinted: set[str]):
        self.progress, self.rows, self.hinted = progress, rows, hinted
        self.started, self._before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)

    def end(self) -> None:
        """Tells the bytes that a long evaluation has read and written, and the share of its time in which no core computed."""
        seconds = time.monotonic() - self.started
        if seconds < LONG_SECONDS:
            return
        now, before = resource.getrusage(resource.RUSAGE_SELF), self._before
        read = SECTOR_BYTES * (now.ru_inblock - before.ru_inblock)
        written = SECTOR_BYTES * (now.ru_oublock - before.ru_oublock)
        worked = now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime
        share = max(0.0, 1 - worked / seconds)
        moved = f"{format_bytes(read)} read and {format_bytes(written)} written"
        pace = f"{_time(seconds)}, {self.rows / seconds:,.0f} rows/s, {moved}"
        self.progress.tell(f"exact evaluation: {pace}, {100 * share:.0f} % of the time no core computed")
        _tell_once(self.progress, self._hint(share, written), self.hinted)

    def _hint(self, share: float, written: int) -> str:
        """Returns a sentence with the key that would help."""
        if share < MOSTLY:
            return "products and sums take most of this time: more threads make it shorter, a larger eval_every evaluates less often"
        if written:
            return "most of this time waits for the disk: a larger eval_workspace keeps rows of layers in memory"
        return "most of this time waits for the disk, which is read in order: a larger eval_every reads it less often"


def _tell_once(progress: Progress, hint: str, hinted: set[str]) -> None:
    """Tells a hint that the run has not had yet."""
    if hint not in hinted:
        hinted.add(hint)
        progress.tell(hint)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
