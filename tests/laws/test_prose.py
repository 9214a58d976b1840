"""Plain English: docstrings of public names, and pages, have none of the turns that make a reader stop."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import GENERATED, PAGES

ROOT = Path(__file__).parents[2]
LAYERS = ("kernels", "assets", "trainers", "jobs", "graphmill")
TURNS = {
    "a clause where a noun belongs": r"\b(Returns|Yields|Tells|Says|Gives|Counts|Finds|Reads|Writes|Prints) what\b",
    "'is not a'": r"(?<![Tt]here\s)\b(is|are|was|were) no (?!more\b|longer\b|less\b|fewer\b|later\b|better\b|worse\b)\w+",
    "who it is": r"\b([Nn]obody|[Ww]hoever)\b",
    "how many": r"\bso (many|much|few)\b(?! \w+ that\b| that\b)",
    "'if'": r"\b(None|[Rr]aises|empty|True|False) where\b|(^|[.;] |\n)Where\b(?![^.\n]*\?)",
    "a name that is not in the repository": r"\b(SHAPES|DESIGN|HOUSE)\b",
}
"""What a reader needs -> the turn of phrase that withholds it."""


def turns(text: str) -> list[tuple[str, str]]:
    """Every (what a reader needs, what stands there) of a text."""
    return [(needed, found[0].strip()) for needed, turn in TURNS.items() for found in re.finditer(turn, text, re.M)]


def public_docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yields line and docstring of a file, and of what is public in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            public = isinstance(node, ast.Module) or not node.name.startswith("_")
            if public and (text := ast.get_docstring(node)):
                yield getattr(node, "lineno", 1), text


@pytest.mark.parametrize("layer", LAYERS)
def test_docstrings_are_plain(layer: str) -> None:
    files = sorted((ROOT / layer).rglob("*.py"))
    assert files
    found = [
        f"{path.relative_to(ROOT)}:{line}: {turn}"
        for path in files
        for line, text in public_docstrings(path)
        for turn in turns(text)
    ]
    assert found == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_are_plain(path: Path) -> None:
    """But for the log, whose old entries stay as they were written, and what programs write."""
    if path.name != "log.md" and path.relative_to(ROOT).as_posix() not in GENERATED:
        assert turns(path.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "Returns what is left.",
        "an id is no node",
        "rows that nobody reads",
        "reads so many rows",
        "the rows; None where the file lacks them",
        "Where it lacks one, nothing is read.",
        "see SHAPES",
    ],
)
def test_a_turn_is_found(text: str) -> None:
    assert len(turns(text)) == 1


def test_plain_sentences_are_not() -> None:
    assert (
        turns("Returns the rows that are left. It is no longer than N. So many rows that memory is short. Where is it?")
        == []
    )
