"""Writes the table of options in docs/choosing.md: `python -m tests.docs.options_page`, or `make docs`."""

from __future__ import annotations

from collections.abc import Iterator

from graphmill.trainers.recipe.option_table import CONDITIONS, OPTIONS, Limit, Option
from graphmill.trainers.recipe.techniques import TECHNIQUES, Technique
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "choosing.md"
BEGIN, END = "<!-- options: written by make docs -->", "<!-- /options -->"

HEAD = """\
What a file asks for, and what each trainer makes of it. `graphmill validate` refuses by this table, with the line, and a test trains every
cell that is not refused. "yes" works; "no" contradicts the trainer; "-" has no effect, or the trainer has no such key. "no" and "-" are
mistakes of a file; a table that other trainings of the file read is a note of `validate` and `status`."""


def text() -> str:
    """Returns what stands between the marks."""
    names = list(TECHNIQUES)
    rows = [
        f"| {option.text} | {' | '.join(_cell(option, TECHNIQUES[name]) for name in names)} |" for option in shown()
    ]
    table = "\n".join([f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}", *rows])
    reasons = "\n".join(["| trainer | what | why not: it |", "|---|---|---|", *_reasons()])
    return f"{BEGIN}\n\n{HEAD}\n\n{table}\n\n{reasons}\n\n{END}"


def shown() -> list[Option]:
    """Returns the options."""
    return [*OPTIONS.values()]


def page() -> str:
    """Returns what the page has to be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + text() + rest.partition(END)[2]


def _limits(option: Option, technique: Technique) -> list[Limit]:
    return [limit for limit in technique.limits() if limit.option == option.name]


def _cell(option: Option, technique: Technique) -> str:
    if not option.has_key(technique):
        return "-"
    found = _limits(option, technique)
    if any(not limit.when for limit in found):
        return "-" if all(limit.useless for limit in found) else "no"
    return f"yes; not {', '.join(CONDITIONS[limit.when].words for limit in found)}" if found else "yes"


def _reasons() -> Iterator[str]:
    """Yields a row for each reason, with all trainers that state it and all options that it is about."""
    found: dict[tuple[str, str], list[str]] = {}
    for option in shown():
        said: dict[tuple[str, str], list[str]] = {}
        for technique in TECHNIQUES.values():
            for limit in _limits(option, technique) if option.has_key(technique) else ():
                said.setdefault((limit.when, limit.why), []).append(technique.name)
        for (when, why), names in said.items():
            who = "each" if len(names) == len(TECHNIQUES) else ", ".join(names)
            found.setdefault((f"{who} {CONDITIONS[when].words}" if when else who, why), []).append(option.text)
    yield from (f"| {who} | {', '.join(options)} | {why} |" for (who, why), options in found.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE} is written")
