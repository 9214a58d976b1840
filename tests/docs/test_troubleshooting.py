"""The messages that docs/troubleshooting.md quotes are those of the program."""

import ast
import re
from collections.abc import Iterator

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
FOLDERS = ("kernels", "assets", "trainers", "jobs", "graphmill")
HOLE = "\0"
"""Stands for a value that a message gets when it is raised."""


def test_every_quoted_message_stands_in_the_code() -> None:
    messages = list(texts())
    quoted = re.findall(r'\*\*"([^"]+)"\*\*', PAGE.read_text(encoding="utf-8"))
    assert len(quoted) > 15
    patterns = {text: ".*".join(map(re.escape, re.split(r" ?\.\.\. ?|\d+", text))) for text in quoted}
    missing = [text for text, pattern in patterns.items() if not any(re.search(pattern, each) for each in messages)]
    assert not missing
    short = [text for text in quoted if max(len(piece) for piece in text.split("...")) < 8]
    assert not short, "a few letters stand anywhere"


def texts() -> Iterator[str]:
    """Yields every text of the program but docstrings, with a hole for each value inside."""
    for path in (path for name in FOLDERS for path in (ROOT / name).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        plain = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(each.value) if isinstance(each, ast.Constant) else HOLE for each in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in plain:
                yield node.value
