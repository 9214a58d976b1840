"""What linear ends add to a GCN: test scores of the shipped recipes as they are, with them, and with jumping knowledge, in pairs.

    python -m benchmarks ends            # 5 seeds of Photo, 5 splits of minesweeper
    python -m benchmarks --quick ends    # one seed or split each

A pair has the same graph, split, seed and keys, but for `input`, `head` and `jk`. Needs the graphs in the folder that GRAPHMILL_TEST_DATA
names. Models go to a temporary home, or to GRAPHMILL_BENCH_DIR, where they are reused.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.quality import train
from benchmarks.record import record
from graphmill.assets.storage.store import Store

RUNS = 5
MODEL = "gcn"
GRAPHS = {"photo": "seeds", "minesweeper": "splits"}
VARIANTS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "linear ends": {"input": "linear", "head": "linear"},
    "linear ends, jk": {"input": "linear", "head": "linear", "jk": "cat"},
}


def main(quick: bool) -> None:
    if not os.environ.get("GRAPHMILL_TEST_DATA"):
        print("ends: skipped, GRAPHMILL_TEST_DATA names no folder with the graphs")
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(os.environ.get("GRAPHMILL_BENCH_DIR") or folder))
        for graph in GRAPHS:
            found = {name: scores(store, graph, keys, quick) for name, keys in VARIANTS.items()}
            for name, test in found.items():
                gains = [mine - plain for mine, plain in zip(test, found["as shipped"], strict=True)]
                print(f"{graph:<12} {name:<16} test {_spread(test)}, gain in pairs {_spread(gains)}", flush=True)
                rows.append({"graph": graph, "model": MODEL, "variant": name, "test": test, "gains": gains})
    record("ends", {"scale": "quick" if quick else "full", "rows": rows})


def scores(store: Store, graph: str, keys: dict[str, Any], quick: bool) -> list[float]:
    """Returns test scores in percent, one for each seed or split."""
    runs = range(1 if quick else RUNS)
    if GRAPHS[graph] == "seeds":
        found = train(store, graph, MODEL, tuple(runs), 0, **keys)
    else:
        found = [each for split in runs for each in train(store, graph, MODEL, (0,), split, **keys)]
    return [round(100 * numbers[f"test_{metric}"], 3) for numbers, metric in found]


def _spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")
