"""What a training says of its epochs: one line for each, thinned to about a hundred per run.

Whoever shows progress may have two methods besides those of `Progress`: `tell(line)` prints a line, `note(text)` shows a few words until
the next ones come, as a bar does. Without them nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from trainers.record.metrics import MetricWriter, numbers_of

Lines = Literal["some", "all", "none"]
"""About a hundred lines per run, one for every epoch, or none."""

MOST_LINES = 100


class EpochLines:
    """Says how each epoch of a run went.

    Args:
        tell: gets the lines, None for silence.
        title: what the lines begin with: whose epochs they are.
        epochs: number of epochs of the run.
        lines: how many of them get a line.
        note: gets loss and scores of every epoch in a few words, None for nobody.
        writers: get the numbers of every epoch, and are closed after the last one. One that fails is named in a line and gets no more,
            for what it draws decides nothing.
    """

    def __init__(
        self,
        tell: Callable[[str], None] | None,
        title: str,
        epochs: int,
        lines: Lines = "some",
        note: Callable[[str], None] | None = None,
        writers: Sequence[MetricWriter] = (),
    ):
        self.tell, self.title, self.epochs = (None if lines == "none" else tell), title, epochs
        self.note, self.writers, self._tell_failure = note, list(writers), tell
        self.every = 1 if lines == "all" else -(-epochs // MOST_LINES)
        self._said_any = False

    def epoch(self, row: Mapping[str, Any], seconds: float, best: tuple[float, int] | None, *, last: bool) -> None:
        """Says a line about a finished epoch, unless it is thinned out.

        Args:
            row: epoch (from 1), loss, and the validation score where there is one.
            seconds: that it took, evaluation included.
            best: best validation score so far and its epoch (from 1), None before the first.
            last: whether the run ends with it; the first and the last epoch always get a line.
        """
        number = int(row["epoch"])
        self._write(number, numbers_of(row, seconds), last)
        valid = f", valid {100 * row['valid']:.2f}" if "valid" in row else ""
        found = f" (best {100 * best[0]:.2f} in epoch {best[1]})" if best is not None else ""
        if self.note is not None:
            self.note(f"loss {row['loss']:.4f}{valid}{found}")
        if self.tell is None or not (last or not self._said_any or number % self.every == 0):
            return
        self._said_any = True
        self.tell(f"{self.title}epoch {number}/{self.epochs}: loss {row['loss']:.4f}{valid}{found}, {seconds:.2f} s")

    def _write(self, number: int, values: Mapping[str, float], last: bool) -> None:
        """Sends an epoch's numbers, and parts with a writer that cannot: a server may go away in the middle of a training."""
        for writer in list(self.writers):
            try:
                writer.epoch(number, values)
                if last:
                    writer.close()
            except Exception as error:
                self.writers.remove(writer)
                if self._tell_failure is not None:
                    name, what = type(writer).__name__, f"{type(error).__name__}: {error}".splitlines()[0]
                    self._tell_failure(f"{self.title}{name} gets no numbers from epoch {number} on: {what}")
