"""The output of a training about its epochs: one line each, thinned to about a hundred per run, and a few words beside the bar.

A run of many long epochs has more lines: none is farther from the one before than one epoch and `MOST_SECONDS`. The first long epoch also
has a line of its pace, with the key that would help.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from graphmill.assets.building.stage import Progress
from graphmill.assets.sizes import format_bytes
from graphmill.trainers.record.ledger import STEP, WAIT, Ledger
from graphmill.trainers.record.metrics import MetricWriter
from graphmill.trainers.record.scores import bare

Lines = Literal["some", "all", "none"]
"""About a hundred lines per run, one for every epoch, or none."""

MOST_LINES = 100
MOST_SECONDS = 10.0
"""Seconds since the last line after which the next epoch gets one, whatever its number; and of an epoch that is long."""
MOSTLY = 0.5
"""Share of an epoch from which on waiting for batches is what makes it slow."""


class EpochLines:
    """Prints lines about the epochs of a run.

    Args:
        progress: receives the lines, and loss and scores of every epoch in a few words.
        title: beginning of the lines, which names the training.
        writers: receive the numbers of every epoch, and are closed after the last one. A writer that fails is named in a line and dropped,
            since it does not affect the training.
    """

    def __init__(
        self,
        progress: Progress,
        title: str,
        epochs: int,
        lines: Lines = "some",
        writers: Sequence[MetricWriter] = (),
        metric: str = "accuracy",
    ):
        self.progress, self.title, self.epochs, self.lines = progress, title, epochs, lines
        self.writers, self.metric = list(writers), metric
        self.every = 1 if lines == "all" else -(-epochs // MOST_LINES)
        self._said: float | None = None
        self._paced = lines == "none"

    def epoch(self, row: Mapping[str, Any], seconds: float, best: tuple[float, int] | None, *, last: bool) -> None:
        """Prints a line about a finished epoch, unless it is thinned out.

        Args:
            row: epoch (from 1), loss, and the validation score if there is one.
            seconds: duration of the epoch, evaluation included.
            best: best validation score so far and its epoch (from 1), None before the first.
            last: whether the run ends with this epoch; the first and the last epoch always get a line.
        """
        number = int(row["epoch"])
        numbers = {
            name: float(value) for name, value in row.items() if name != "epoch" and isinstance(value, int | float)
        }
        self._write(number, numbers | {"seconds": seconds}, last)
        valid = f", valid {bare(self.metric, row['valid'])}" if "valid" in row else ""
        found = f" (best {bare(self.metric, best[0])} in epoch {best[1]})" if best is not None else ""
        self.progress.note(f"loss {row['loss']:.4f}{valid}{found}")
        now = time.monotonic()
        due = self._said is None or number % self.every == 0 or now - self._said >= MOST_SECONDS
        if self.lines == "none" or not (last or due):
            return
        self._said = now
        self.progress.tell(
            f"{self.title}epoch {number}/{self.epochs}: loss {row['loss']:.4f}{valid}{found}, {seconds:.2f} s"
        )

    def pace(self, record: Mapping[str, Any], before: Ledger, after: Ledger) -> None:
        """Prints rows per second, bytes read and the share of waiting of the first long epoch with batches prepared beside training."""
        seconds, step = record["seconds"], record["busy_seconds"].get(STEP, {})
        if self._paced or seconds < MOST_SECONDS or WAIT not in step:
            return
        self._paced, share = True, step[WAIT] / seconds
        rows = after.counted("inputs", 0) - before.counted("inputs", 0)
        read = after.moved_bytes("disk") - before.moved_bytes("disk")
        of_disk = f", {format_bytes(read)} read past the page cache" if read else ""
        remedy = "; a larger samplers prepares more of them at once" if share >= MOSTLY else ""
        if remedy and read:
            remedy = "; [memory] host keeps more of their rows, and `graphmill plan` compares the trainers"
        self.progress.tell(
            f"{self.title}epoch {record['epoch']}: {rows / seconds:,.0f} rows/s{of_disk}, "
            f"{100 * share:.0f} % of the time the model waited for batches{remedy}"
        )

    def _write(self, number: int, values: Mapping[str, float], last: bool) -> None:
        """Sends an epoch's numbers, and drops a writer that fails: a server may go away in the middle of a training."""
        for writer in list(self.writers):
            try:
                writer.epoch(number, values)
                if last:
                    writer.close()
            except Exception as error:
                self.writers.remove(writer)
                name, problem = type(writer).__name__, f"{type(error).__name__}: {error}".splitlines()[0]
                self.progress.tell(f"{self.title}{name} gets no numbers from epoch {number} on: {problem}")
