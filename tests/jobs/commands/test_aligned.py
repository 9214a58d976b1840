"""Tables on terminals of any width: every number stands whole in one line, beside others or below them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphmill.assets.building.stage import Check, Summary
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.aligned import aligned_rows, named_values, terminal_columns
from graphmill.jobs.commands.results.leaderboard import print_leaderboard, stored_entries
from graphmill.jobs.commands.results.sql import Answer, as_table
from graphmill.jobs.commands.store.diff import print_difference
from tests.jobs.trained import trained_home
from tests.recipes import load_tiny

COLUMNS = ["name", "rows", "seconds"]
ROWS = [["short", "7", "0.25"], ["a longer name", "123,456,789", "1234.5678"]]


def terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the stream for a terminal
    monkeypatch.setenv("COLUMNS", str(columns))


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_table_that_fits_is_aligned() -> None:
    expected = ["name                  rows    seconds", "short                    7       0.25"]
    assert aligned_rows(COLUMNS, ROWS, [False, True, True], room=37)[:2] == expected
    assert aligned_rows(COLUMNS, ROWS, [False, True, True])[:2] == expected


@pytest.mark.parametrize("room", [36, 20, 5])
def test_a_table_that_does_not_fit_is_lines_of_name_and_value(room: int) -> None:
    lines = aligned_rows(COLUMNS, ROWS, [False, True, True], room=room, rule=True)
    assert lines[:3] == ["short", "  rows     7", "  seconds  0.25"]
    assert lines[3:] == [*named_values(COLUMNS, ROWS[1])]


def test_only_a_terminal_has_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert terminal_columns() is None
    terminal(monkeypatch, 61)
    assert terminal_columns() == 61


def test_an_answer_of_sql() -> None:
    answer = Answer(columns=("version", "loss", "nodes"), rows=[("f" * 30, 0.125, 10**12), ("e" * 30, None, 3)])
    assert as_table(answer, 80) == as_table(answer)
    lines = as_table(answer, 40).splitlines()
    assert lines[:3] == ["f" * 30, "  loss   0.125", "  nodes  1000000000000"] and lines[-1] == "(2 rows)"


@pytest.mark.parametrize("columns", [25, 50, 80, 200])
def test_the_leaderboard_has_every_number(
    tmp_path: Path, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = trained_home(tmp_path).home
    entries = stored_entries(load_tiny(tmp_path / "again"), home)
    terminal(monkeypatch, columns)
    print_leaderboard("tiny", entries)
    said = plain(capsys.readouterr().out)
    assert "…" not in said
    for entry in entries:
        for text in (f"{100 * entry.scores('valid')[0]:.2f}", entry.models[0].version[:12], entry.table.trainer):
            assert text in said


def test_values_of_any_length_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, lines = Store(tmp_path), []
    for version in "ab":
        with store.writer("toy", version * 64) as writer:
            detail = f"{version} " * 18 + "of 1234567 weights"
            summary = Summary(
                numbers={"rows": 10**11 + ord(version)}, checks=[Check(name="kept", passed=True, detail=detail)]
            )
            writer.path("metrics.jsonl").write_text(f'{{"epoch": 1, "loss": 0.{ord(version)}, "valid": 0.5}}\n')
            writer.publish({}, {}, summary, {}, code_version=1)
    terminal(monkeypatch, 60)
    print_difference(store.resolve("a"), store.resolve("b"), lines.append)
    said = [line.strip() for line in lines]
    assert any(line.startswith("A") and line.endswith("of 1234567 weights") for line in said)
    assert any(line.startswith("B") and line.endswith("of 1234567 weights") for line in said)
    assert any(line.split() == ["rows", "100000000097", "100000000098", "+1"] for line in said)
    assert any(line.split() == ["loss", "B", "0.98"] for line in said) and "..." not in "".join(lines)
