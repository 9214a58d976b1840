"""Progress for people: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from graphmill.assets.building.stage import Progress
from graphmill.assets.building.terminal import unescaped
from graphmill.kernels.errors import UNPRINTABLE

SECONDS_BETWEEN_LINES = 10.0


class LineProgress(Progress):
    """Prints a line when a phase has taken a while, and then every few seconds; for logs and pipes."""

    def __init__(
        self,
        stream: TextIO | None = None,
        every_seconds: float = SECONDS_BETWEEN_LINES,
        title: str = "",
        also: Callable[[str], None] | None = None,
    ):
        self.stream, self.every_seconds = stream or sys.stderr, every_seconds
        self._title, self._also = title, also
        self._label, self._unit, self._total, self._count = "", "", None, 0
        self._printed = self._started = 0.0

    def start(self, label: str, total: int | None, unit: str) -> None:
        """Begins a phase; nothing is printed until it has lasted a while."""
        self._label, self._unit, self._total, self._count = label, unit, total, 0
        self._printed = self._started = time.monotonic()

    def advance(self, n: int) -> None:
        """n more units are done."""
        self._count += n
        if time.monotonic() - self._printed >= self.every_seconds:
            self._printed = time.monotonic()
            of = f"/{self._total:,}" if self._total is not None else ""
            print(f"  {self._label}: {self._count:,}{of} {self._unit}{self._left()}", file=self.stream, flush=True)

    def tell(self, line: str) -> None:
        """Prints a line."""
        print(f"  {self._title}{line}", file=self.stream, flush=True)
        if self._also is not None:
            self._also(f"{self._title}{line}")

    def _left(self) -> str:
        """Returns how long the rest takes at the pace so far, in words; "" if that is not known."""
        if not self._total or not 0 < self._count < self._total:
            return ""
        seconds = (self._printed - self._started) / self._count * (self._total - self._count)
        return f", about {seconds:.0f} s left" if seconds < 120 else f", about {seconds / 60:.0f} min left"


class BarProgress(Progress):
    """A bar that is redrawn in place and removed when its phase ends; for terminals."""

    def __init__(self, stream: TextIO | None = None, title: str = "", also: Callable[[str], None] | None = None):
        self._title, self._also = title, also
        from rich.console import Console

        from graphmill.trainers.record.bar import FittingBar

        self._bar = FittingBar(console=Console(file=unescaped(stream or sys.stderr)), transient=True)
        self._task, self._note = None, ""

    def start(self, label: str, total: int | None, unit: str) -> None:
        """Begins a phase: its bar appears."""
        self.done()
        self._bar.start()
        self._task = self._bar.add_task(label.translate(UNPRINTABLE), total=total, unit=unit, note=self._note)

    def advance(self, n: int) -> None:
        """n more units are done."""
        if self._task is not None:
            self._bar.advance(self._task, n)

    def done(self) -> None:
        """Ends the phase and removes its bar."""
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._bar.stop()
            self._task = None

    def note(self, text: str) -> None:
        """Shows a few words at the end of the bar and of those that follow, until the next words come."""
        self._note = text.translate(UNPRINTABLE)
        if self._task is not None:
            self._bar.update(self._task, note=self._note)

    def tell(self, line: str) -> None:
        """Prints a line above the bar."""
        self._bar.console.print(
            f"  {self._title}{line}".translate(UNPRINTABLE), highlight=False, markup=False, soft_wrap=True
        )
        if self._also is not None:
            self._also(f"{self._title}{line}")


def open_progress(
    stream: TextIO | None = None, title: str = "", also: Callable[[str], None] | None = None
) -> BarProgress | LineProgress:
    """Returns a bar if the stream (standard error by default) is a terminal, else lines; `title` begins each line of `tell`."""
    chosen: TextIO = sys.stderr if stream is None else stream
    return BarProgress(chosen, title, also) if chosen.isatty() else LineProgress(chosen, title=title, also=also)
