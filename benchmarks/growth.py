"""How the parts of the big run grow: seconds per edge and memory of each, at the scales that `python -m benchmarks big` has recorded.

    for S in 1/64 1/32 1/16 1/8; do python -m benchmarks big --scale $S; done; python -m benchmarks growth

Reads benchmarks/results/big.jsonl, of each scale the last row, prints a Markdown table and writes docs/images/big-growth.png. A part whose
work is proportional to the edges has the same microseconds per edge at every scale; n log n would add a third from 1/64 to 1/8 at most.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS

FIGURE = Path(__file__).parents[1] / "docs" / "images" / "big-growth.png"
TRAINED = ("minibatch", "disk", "fresh", "distributed")
LEAST_SECONDS = 1.0
"""A stage that takes less at the largest scale is not drawn: at the smallest it is a few milliseconds."""


def main(quick: bool) -> None:
    """Prints the table and draws the figure."""
    rows = last_rows((RESULTS / "big.jsonl").read_text())
    rows = {scale: row for scale, row in rows.items() if 1 / 64 <= scale <= 1 / 8}
    assert len(rows) > 1, "run `python -m benchmarks big` at several scales first"
    print(table(rows))
    if not quick:
        draw(rows)
        print(f"{FIGURE} written")


def last_rows(text: str) -> dict[float, dict[str, Any]]:
    """Returns scale -> its last row that says what each command took, smallest scale first."""
    found = {}
    for line in text.splitlines():
        row = json.loads(line)
        if "size" in row:
            found[row["scale"]] = row
    return dict(sorted(found.items()))


def seconds_of(row: dict[str, Any]) -> dict[str, float]:
    """Returns stage or trainer -> seconds of its build, or of an epoch."""
    stages = {name: stage["seconds"] for name, stage in row["stages"].items()}
    return stages | {
        f"{name}, an epoch": row["epoch_seconds"][name] for name in TRAINED if name in row["epoch_seconds"]
    }


def table(rows: dict[float, dict[str, Any]]) -> str:
    """Returns microseconds per edge and MiB of memory of every part as Markdown, a column for each scale."""
    heads = [f"1/{round(1 / scale)}" for scale in rows]
    lines = ["| microseconds per edge | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    names = dict.fromkeys(name for row in rows.values() for name in seconds_of(row))
    for name in names:
        found = [seconds_of(row).get(name) for row in rows.values()]
        cells = [
            "-" if each is None else f"{each / row['size']['edges'] * 1e6:.3f}"
            for each, row in zip(found, rows.values(), strict=True)
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "| memory held, MiB | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name in dict.fromkeys(name for row in rows.values() for name in row["commands"]):
        commands = [row["commands"].get(name) for row in rows.values()]
        cells = ["-" if each is None else f"{each['anonymous_bytes'] >> 20}" for each in commands]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rows: dict[float, dict[str, Any]]) -> None:
    """Draws seconds and memory against edges, both axes logarithmic, with a line of equal seconds per edge."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
    seconds, memory = figure.subplots(1, 2)
    edges = [row["size"]["edges"] for row in rows.values()]
    for name, last in seconds_of(list(rows.values())[-1]).items():
        if last >= LEAST_SECONDS:
            seconds.plot(edges, [seconds_of(row).get(name) for row in rows.values()], marker="o", ms=3, label=name)
    seconds.plot(edges, [1e-7 * each for each in edges], "k:", lw=1, label="0.1 microseconds per edge")
    for name in list(rows.values())[-1]["commands"]:
        held = [row["commands"].get(name, {}).get("anonymous_bytes") for row in rows.values()]
        memory.plot(edges, [each and each / 2**20 for each in held], marker="o", ms=3, label=name)
    memory.plot(edges, [row["limit_bytes"] / 2**20 for row in rows.values()], "k:", lw=1, label="limit")
    for axes, title in ((seconds, "seconds"), (memory, "MiB held")):
        axes.set(xscale="log", yscale="log", xlabel="edges", title=title)
        axes.legend(fontsize=6, ncols=2)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE)
