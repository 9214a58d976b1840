"""Draws the figures of docs/papers.md and docs/choosing.md from the rows that benchmarks have recorded, in the style of `graphmill report`.

    python -m benchmarks figures

A benchmark that has figures has a function `drawings(rows)`, which takes the rows of its file in benchmarks/results/, oldest first, and
returns `ReportFigure`s. They are written to docs/images/papers/ as PNG. Nothing is measured.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS
from graphmill.jobs.report.drawing import ReportFigure

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "papers"
DRAWN = (
    "disk_accuracy",
    "disk_space",
    "disk_systems",
    "distributed_quality",
    "distributed_scaling",
    "extract",
    "factored",
    "factored_dgl",
    "fresh_drift",
    "fresh_io",
    "fresh_overhead",
    "fresh_thresholds",
    "fullgraph_breakdown",
    "fullgraph_chunks",
    "fullgraph_memory",
    "hotness",
    "payoff",
)
"""Benchmarks with figures."""


def main(quick: bool) -> None:
    """Writes all figures; a quick run draws and writes none."""
    FOLDER.mkdir(exist_ok=True)
    for name in DRAWN:
        for figure in drawn(name):
            picture = figure.png()
            if not quick:
                (FOLDER / f"{figure.name}.png").write_bytes(picture)
                print(f"docs/images/papers/{figure.name}.png: {figure.title}. {figure.says}")


def drawn(name: str) -> list[ReportFigure]:
    """Returns the figures of a benchmark."""
    return importlib.import_module(f"benchmarks.{name}").drawings(recorded(name))


def recorded(name: str) -> list[dict[str, Any]]:
    """Returns the rows of a benchmark, oldest first."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]
