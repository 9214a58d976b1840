"""The bar on terminals of any width: no word and no number of it is cut."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from graphmill.trainers.record.bar import FittingBar

NAMES = ("read edges", "sage: seed 0, epoch 12/20", "a-rather-long-name-of-a-table: seed 7, epoch 1234/2000")
NOTES = ("", "loss 0.1234, valid 87.65 (best 90.00 in epoch 12)")


def drawn(width: int, name: str, note: str, total: int | None = 1_234_567) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    bar = FittingBar(console=console)
    bar.advance(bar.add_task(name, total=total, unit="batches", note=note), 1_000_000)
    console.print(bar.get_renderable())
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()).splitlines()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("width", [40, 60, 80, 81, 100, 132, 250])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("note", NOTES)
def test_everything_stands_there_whole(width: int, name: str, note: str) -> None:
    lines = drawn(width, name, note)
    assert all(len(line) <= width for line in lines) and "…" not in "".join(lines)
    assert any("1000000/1234567 batches -:--:--" in line for line in lines)
    assert set(f"{name} {note}".split()) <= set(" ".join(lines).split())


@pytest.mark.parametrize(("width", "lines"), [(80, 2), (130, 1)])
def test_what_fits_is_one_line(width: int, lines: int) -> None:
    assert len(drawn(width, NAMES[1], NOTES[1])) == lines


def test_a_phase_without_a_total_has_a_bar() -> None:
    (line,) = drawn(80, NAMES[0], "", total=None)
    assert "1000000/? batches" in line
