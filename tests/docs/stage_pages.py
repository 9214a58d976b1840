"""Writes docs/stages/ from the stages: `python -m tests.docs.stage_pages`, or `make docs`.

A page is made of the docstring of the stage's room, of the stage's page in the UI and of the sentences about its checks. The
docstring is text with a few rules:

- Its first line is "The NAME stage: " and one sentence.
- An indented block is a table. A row is a name, two blanks or more, and its content; it goes on in lines that are indented deeper. Arrays
  that are columns of the UI's table are described there, so the content of their rows is "(stage.py)". A block of one column is a formula.
- A paragraph that begins with one word and a colon, such as "Cost: ", begins a section of this name.
- `[table]` and "docs/page.md" become links, and files of code become code.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

from graphmill.assets.building.labels import labelled
from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Stage
from graphmill.assets.pipeline.catalogue import stages
from graphmill.trainers.inference.scoring.stage import ScoreStage
from graphmill.trainers.recipe.recipe import ModelRecipe
from tests.docs.pages import ROOT, slugs

FOLDER = ROOT / "docs" / "stages"
MODEL_DOCS = "graphmill.trainers.training.stage"
"""Module with the docstring about models."""
FIGURES = {
    "budgets": "![what takes the memory of each level](../images/budgets.png)",
    "cache_plan": "![rows by tier](../images/tiers.png)",
    "graph": "![balance of the classes](../images/classes.png)",
    "hotness": "![hit ratio against the size of the cache](../images/hit-ratio.png)",
    "model": "![cost of an epoch](../images/cost-of-an-epoch.png)",
}
"""Stage -> a picture of docs/images/ that stands with its numbers."""
WRITTEN = "This page is written by a program (`make docs`) from the docstring, the page of the UI and the checks of the stage."
DTYPES = "`ids` are int32 below 2^31 nodes and int64 above; i32 is int32, u8 uint8, f32 float32 and so on."

SECTION = re.compile(r"([A-Z][a-z]+):\s")
TABLE = re.compile(r"(?<![`\w])\[(\[?[a-z_]+\]?)\](?!\()")
DOCS = re.compile(r"\bdocs/([\w/-]+\.md)(#[\w-]+)?")
CODE = re.compile(r"(?<![`\w/])(?:assets|kernels|trainers|jobs)/[\w/]+\.py")


def pages() -> dict[str, str]:
    """Returns the text that each page has to have, by name of the stage."""
    return {stage.name: _text(stage) for stage in [*stages(), ModelRecipe(), ScoreStage()]}


def _text(stage: Stage) -> str:
    page, doc = stage.page, _docstring(stage)
    assert page is not None
    sections = dict(_sections(doc))
    first, _, body = sections.pop("").partition("\n\n")
    title = first.split(": ", 1)[1]
    _, aim, look = re.split(r"(?<=\.) (?=[A-Z])", page.about)
    keys = f" Keys: {_linked(f'[{stage.table}]')}." if stage.table else ""
    parts = [
        f"# Stage {stage.name}" if stage.name != "model" else "# Models",
        f"{title[0].upper()}{_linked(title[1:])} {aim}{keys}",
        "## What it builds",
        *_blocks(body, page),
        *([DTYPES] if re.search(r"\bids\[", body) else []),
        "## Numbers and figures",
        look,
        *_blocks(sections.pop("Numbers", ""), page),
        *([FIGURES[stage.name]] if stage.name in FIGURES else []),
        _numbers(page),
    ]
    below = sections.pop("Checks", "")
    for name, text in sections.items():
        parts += [f"## {name}", *_blocks(text, page)]
    parts += ["## Checks", _checks(stage), *_blocks(below, page), WRITTEN]
    return "\n\n".join(parts) + "\n"


def _docstring(stage: Stage) -> str:
    own = type(stage).__module__.removesuffix(".stage")
    doc = importlib.import_module(MODEL_DOCS if stage.name == "model" else own).__doc__
    assert doc is not None and doc.startswith(f"The {stage.name} stage: "), f"{stage.name}: how its docstring begins"
    return doc.strip()


def _sections(doc: str) -> Iterator[tuple[str, str]]:
    """Yields heading and text; the text before the first heading has none."""
    heading, blocks = "", []
    for block in doc.split("\n\n"):
        if found := SECTION.match(block + "\n"):
            yield heading, "\n\n".join(blocks)
            heading, blocks = found[1], []
            block = block[found.end() :]
            block = block[:1].upper() + block[1:]
        blocks += [block] if block else []
    yield heading, "\n\n".join(blocks)


def _blocks(text: str, page: Page) -> list[str]:
    """Returns the paragraphs and tables of a section as Markdown."""
    found = []
    for block in filter(None, text.split("\n\n")):
        if not block.startswith("    "):
            found.append(_linked(block))
        elif rows := _rows(block, page):
            found.append(
                "\n".join(["| name | content |", "|---|---|", *(f"| `{a}` | {_linked(b)} |" for a, b in rows)])
            )
        else:
            found.append("```text\n" + "\n".join(line[4:] for line in block.splitlines()) + "\n```")
    return found


def _rows(block: str, page: Page) -> list[tuple[str, str]]:
    """Returns (left, right) of each row of an indented block, () if it is not a table."""
    rows: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith(" " * 8):
            rows[-1:] = [(left, f"{right} {line.strip()}") for left, right in rows[-1:]]
        elif found := re.fullmatch(r" {4}(\S.*?)(?: {2,}|(?<=\]) )(\S.*)", line):
            rows.append((found[1], found[2]))
        else:
            return []
    return [
        each for left, right in rows for each in (_described(left, page) if right == "(stage.py)" else [(left, right)])
    ]


def _described(arrays: str, page: Page) -> Iterator[tuple[str, str]]:
    """Yields a row for each array of "a, b i32[N], c i64[M]", with its description in the UI."""
    names: list[str] = []
    for word in re.split(r"(?<!\[\w), (?![\w]+\])", arrays):
        name, _, dtype = word.partition(" ")
        names.append(name)
        if dtype:
            yield from ((f"{each} {dtype}", page.columns[each]) for each in names)
            names = []
    assert not names, f"{names} have no type"


def _linked(text: str) -> str:
    """Returns text with links to tables and pages, and files as code. Code in it stays as it is."""
    known = slugs(ROOT / "docs" / "pipelines.md")

    def table(found: re.Match[str]) -> str:
        name = found[1].strip("[]")
        shown = found[0].replace("[", r"\[").replace("]", r"\]")
        return f"[{shown}](../pipelines.md#{name})" if name in known else found[0]

    def docs(found: re.Match[str]) -> str:
        path = found[1].removeprefix("stages/") if found[1].startswith("stages/") else f"../{found[1]}"
        return f"[{found[1].rpartition('/')[2]}]({path}{found[2] or ''})"

    pieces = re.split(r"(`[^`]*`)", text)
    plain = [DOCS.sub(docs, TABLE.sub(table, CODE.sub(r"`\g<0>`", each))) for each in pieces[::2]]
    return "".join(each for pair in zip(plain, [*pieces[1::2], ""], strict=True) for each in pair)


def _numbers(page: Page) -> str:
    """Returns the table of numbers: the most important ones, then others that have labels."""
    names = [*page.first, *(name for name in page.labels if name not in page.first)]
    rows = [f"| `{name}` | {page.labels.get(name) or labelled(name, 0)[0]} |" for name in names]
    return "\n".join(["| number | in the UI |", "|---|---|", *rows])


def _checks(stage: Stage) -> str:
    rows = [f"| {name} | {sentence} |" for name, sentence in stage.says.items()]
    warnings = [name for name in stage.says if name in stage.warnings]
    said = (
        f"\n\nA warning, which keeps nothing from being published, is a failure of: {', '.join(warnings)}."
        if warnings
        else ""
    )
    return "\n".join(["| check | what is tested |", "|---|---|", *rows]) + said


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")
    print(f"{FOLDER} is written")
