"""README.md and docs/*.md as a test sees them: fenced blocks, code inside sentences, headings, links.

The convention that the pages keep:

- Code stands in fences with one of `LANGUAGES`. Nothing else is indented by four blanks or more.
- Each line of an `sh` fence is one command, without pipes and other syntax of the shell but `NAME=VALUE` in front. Behind " #" stands a
  comment.
- Code inside a sentence (or a cell of a table) is a command when it has several words and the first is one of `PROGRAMS`.
- Words in capitals stand for what a user gives.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
WALKED = ("docs/tutorial.md", "docs/regression.md", "docs/links.md", "docs/python.md", "docs/scoring.md")
"""Pages that a reader goes through from the first line to the last, in one folder: tests/docs/test_tutorial.py does so."""
GENERATED = ("docs/cli.md",)
"""Pages in whose sentences nothing is looked for, since a program writes them; tests/docs/test_cli_page.py does so again."""
LANGUAGES = {"sh", "text", "toml", "python", "sql", "nginx", "yaml"}
PROGRAMS = {"dagster", "dg", "graphmill", "make", "pip", "pytest", "python"}
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
ASSIGNMENT = re.compile(r"[A-Z_]+=.*", re.S)


class Fence(NamedTuple):
    """A fenced block: its page, the number of its first line, its language, its text."""

    page: str
    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """One command of a page."""

    page: str
    # Its file, relative to the repository.
    line: int
    # Number of its line.
    assignments: tuple[str, ...]
    # NAME=VALUE in front of it.
    words: tuple[str, ...]
    # The program and its arguments, without quotes.
    shown: bool
    # It stands in an `sh` fence, and not in a sentence.

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {shlex.join(self.words)}"


def fences(path: Path) -> Iterator[Fence]:
    """Yields the fenced blocks of a page."""
    opened: tuple[int, str] | None = None
    body: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            body.append(line)
        elif opened is None:
            opened, body = (number + 1, line[3:].strip()), []
        else:
            yield Fence(path.relative_to(ROOT).as_posix(), *opened, "\n".join(body) + "\n")
            opened = None
    assert opened is None, f"{path} ends inside a fence"


def prose(path: Path) -> list[tuple[int, str]]:
    """Returns the numbered lines of a page outside its fences."""
    inside, found = False, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            found.append((number, line))
    return found


def inline_code(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each piece of code inside a sentence. Code does not run over the end of a line."""
    for number, line in prose(path):
        yield from ((number, match[1]) for match in INLINE.finditer(line))


def commands(path: Path) -> Iterator[Command]:
    """Yields the commands of a page, those in fences first."""
    page = path.relative_to(ROOT).as_posix()
    for fence in fences(path):
        if fence.language == "sh":
            for number, line in enumerate(fence.text.splitlines(), fence.line):
                if line.strip() and not line.startswith("#"):
                    yield parsed(page, number, line, shown=True)
    for number, code in inline_code(path):
        words = [word for word in code.split() if not ASSIGNMENT.fullmatch(word)]
        if len(words) > 1 and words[0] in PROGRAMS:
            yield parsed(page, number, code, shown=False)


def parsed(page: str, number: int, text: str, *, shown: bool) -> Command:
    """Takes a command apart as a shell does."""
    words = shlex.split(text, comments=True)
    count = next((place for place, word in enumerate(words) if not ASSIGNMENT.fullmatch(word)), len(words))
    return Command(page, number, tuple(words[:count]), tuple(words[count:]), shown)


def slugs(path: Path) -> set[str]:
    """Returns the anchors of a page's headings, made as GitHub makes them."""
    headings = [line.lstrip("#").strip() for _, line in prose(path) if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in headings}
