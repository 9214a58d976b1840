"""Writes what docs/own-data.md shows of folders of tables: `python -m tests.docs.own_data_page`, or `make docs`.

The folders are those of tests/assets/sources/folders.py. Between `<!--folder: NAME-->` and `<!--/folder-->` stand the tables of a folder,
and the lines of `[graph]` that `graphmill new --from` writes; between `<!--inspect: NAME-->` and `<!--/inspect-->` stands what
`graphmill inspect` prints. `SCORES` is the form of a line of the table of scores, with which tests/assets/sources/test_folders_trained.py
compares what it trains.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from graphmill.assets.sources.folder.guess import guessed
from graphmill.jobs.commands.pipelines.graph_table import graph_table
from graphmill.jobs.commands.pipelines.inspect_folder import graph_lines, profile_of
from tests.assets.sources.folders import FOLDERS
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "own-data.md"
SEED = 2
"""Seed of the folders, which is that of the test that trains them."""
REGION = re.compile(r"<!--(folder|inspect): (\w+)-->\n.*?<!--/\1-->", re.S)
SCORES = re.compile(r"^\| \[[^]]+\]\(#[\w-]+\)<!--(\w+)--> \|(?: [\d.]+ \|){4}$", re.M)
HIDDEN = ('source = "tables"', "undirected = ", "reverse_types = ", "features = ", "# ")
"""Beginnings of lines that are not shown: they are alike for all folders, or `encode` names the same columns."""


def text() -> str:
    """Returns what the page has to be."""
    return REGION.sub(lambda match: _region(match[1], match[2]), PAGE.read_text(encoding="utf-8"))


def printed_scores() -> dict[str, list[float]]:
    """Returns name of a folder -> the shares of its test rows that the page says are right."""
    found = SCORES.finditer(PAGE.read_text(encoding="utf-8"))
    return {row[1]: [float(cell) / 100 for cell in row[0].split("|")[2:-1]] for row in found}


def _region(kind: str, name: str) -> str:
    written: dict[str, Callable[[str, Path], str]] = {"folder": _folder, "inspect": _inspected}
    with tempfile.TemporaryDirectory() as path:
        FOLDERS[name](Path(path), np.random.default_rng(SEED))
        return f"<!--{kind}: {name}-->\n{written[kind](name, Path(path))}<!--/{kind}-->"


def _folder(name: str, path: Path) -> str:
    """Returns the tables of a folder, the command, the lines of the file that it writes, and the scores."""
    with guessed(path) as guess:
        names = {each.name: each.path.relative_to(path).as_posix() + "/" * each.path.is_dir() for each in guess.tables}
        width = max(map(len, names.values()))
        tables = [
            f"{names[each.name]:{width}}  {each.rows:6,} rows: {', '.join(column.name for column in each.columns)}"
            for each in guess.tables
        ]
        lines = [line for line in graph_table(guess, path / "pipelines").splitlines() if line]
    shown = [re.sub(r"  +# .*", "", line) for line in lines if not line.startswith(HIDDEN)]
    columns, _, _, right = printed_scores()[name]
    score = f"Score: {right:.1%} of the test nodes are right, {columns:.1%} by the columns alone."
    command = f"$ graphmill new {name} --from ."
    return f"```text\n{chr(10).join([*tables, command])}\n```\n\n```toml\n{chr(10).join(shown)}\n```\n\n{score}\n"


def _inspected(_name: str, path: Path) -> str:
    """Returns what `graphmill inspect` says behind the columns of the tables."""
    with guessed(path) as guess:
        return f"```text\n$ graphmill inspect .\n...\n{chr(10).join(graph_lines(profile_of(guess)))}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    print(f"{PAGE} is written")
