"""The shell completes commands, names of pipelines and of their [[train]] tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.commands import graphmill
from tests.recipes import write_tiny


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("graphmill lead", {"leaderboard"}),
        ("graphmill run tin", {"tiny"}),
        ("graphmill train tiny ", {"sage", "gcn"}),
        ("graphmill predict tiny s", {"sage"}),
    ],
)
def test_names_are_completed(tmp_path: Path, words: str, expected: set[str]) -> None:
    write_tiny(tmp_path)
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_GRAPHMILL_COMPLETE": "bash_complete"}
    answer = graphmill(home=tmp_path / "home", extra=asked | {"GRAPHMILL_PIPELINES": str(tmp_path)})
    assert {line.partition(",")[2] for line in answer.stdout.split()} == expected, answer.stderr
