"""The bar of a terminal, laid out so that nothing of it is cut: what does not fit beside the bar stands on lines of its own."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

LEAST_BAR, MOST_BAR = 10, 40
"""Columns of the bar itself."""
INDENT = 2


class FittingBar(Progress):
    """A bar whose tasks have the fields `unit` and `note`."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yields the lines of each task: name, bar and counts, and note, in one line if the terminal is wide enough."""
        for task in self.tasks:
            yield from self._lines(task)

    def _lines(self, task: Task) -> Iterator[RenderableType]:
        name, note = str(task.description), str(task.fields["note"])
        count, left = MofNCompleteColumn().render(task), TimeRemainingColumn().render(task)
        counts = Text(f"{task.fields['unit']} ").join([Text(f"{count} "), left])
        room = self.console.width - INDENT - counts.cell_len - 1
        beside, below = (note, "") if room - _taken(name) - _taken(note) >= LEAST_BAR else ("", note)
        above, before = ("", name) if room - _taken(name) - _taken(beside) >= LEAST_BAR else (name, "")
        if above:
            yield _folded(above)
        width = room - _taken(before) - _taken(beside)
        parts: list[RenderableType] = [Text(" " * INDENT + before)] if before else [Text(" " * (INDENT - 1))]
        if width >= LEAST_BAR:
            parts.append(BarColumn(bar_width=min(MOST_BAR, width)).render(task))
        line = Table.grid(padding=(0, 1))
        line.add_row(*parts, counts, *([Text(beside)] if beside else []))
        yield line
        if below:
            yield _folded(below)


def _taken(text: str) -> int:
    return cell_len(text) + 1 if text else 0


def _folded(text: str) -> Text:
    return Text(" " * INDENT + text, overflow="fold")
