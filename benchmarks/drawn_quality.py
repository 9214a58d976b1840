"""Quality with neighbours that are drawn by weight and by walks, beside uniform sampling: test scores.

    python -m benchmarks drawn_quality            # 3 seeds each
    python -m benchmarks --quick drawn_quality    # one seed, fewer epochs
    python -m benchmarks.drawn_quality --graph photo --rows "sage, uniform" "pinsage, walks"    # some rows

Two graphs: Amazon Photo (jobs/pipelines/photo.toml, in the folder that GRAPHMILL_TEST_DATA names), and a generated graph that is nearly
bipartite in its classes: 2 % of the edges lead to a node of the same class, so direct neighbours are of other classes and those two steps
away of the same one. Keys are those of the recipe's `sage`; nothing is tuned for the other rows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.record import record
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling_tables.config import tables_config
from graphmill.assets.sampling_tables.stage import SAMPLING_TABLES
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from tests.graphs import build_graph

SEEDS = 3
GRAPHS = ("photo", "bipartite")
BIPARTITE = {"nodes": 10_000, "edges": 80_000, "features": 32, "classes": 4, "p_in": 0.02}
ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "sage, uniform": ({}, "sage"),
    "sage, weighted by out-degree": ({"method": "weighted", "weights": "node:out_degree"}, "sage"),
    "sage, walks": ({"method": "random_walk"}, "sage"),
    "pinsage, walks": ({"method": "random_walk"}, "pinsage"),
}


def main(quick: bool, graphs: Sequence[str] = GRAPHS, names: Sequence[str] = tuple(ROWS)) -> None:
    """Trains rows on graphs and records them."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(os.environ.get("GRAPHMILL_BENCH_DIR") or folder))
        for graph in graphs:
            if graph == "photo" and not os.environ.get("GRAPHMILL_TEST_DATA"):
                print("photo: skipped, GRAPHMILL_TEST_DATA names no folder with the graph")
                continue
            for name in names:
                rows.append({"graph": graph, "row": name} | scores(store, graph, name, quick))
                spread = f" ± {statistics.stdev(rows[-1]['test']):.2f}" if len(rows[-1]["test"]) > 1 else ""
                print(f"{graph:10} {name:30} {statistics.fmean(rows[-1]['test']):.2f}{spread}", flush=True)
    record("drawn_quality", {"scale": "quick" if quick else "full", "rows": rows})


def scores(store: Store, graph: str, name: str, quick: bool) -> dict[str, list[float]]:
    """Returns test and validation accuracies in percent, one for each seed."""
    from graphmill.trainers.run import train_table

    photo = load_pipeline("photo" if graph == "photo" else "sbm", TrainTable)
    config = photo.graph if graph == "photo" else config_class("sbm")(**BIPARTITE, seed=0)
    keys, model = ROWS[name]
    assert photo.sampling is not None
    fanouts = (10, 10) if keys.get("method") == "random_walk" else photo.sampling.fanouts
    # Walks of the recipe's size: ten sources from 16 paths, as many as a node draws neighbours.
    more: dict[str, Any] = {"paths": 16} if keys.get("method") == "random_walk" else {}
    sampling = SamplingConfig(fanouts=fanouts, batch_size=photo.sampling.batch_size, **keys, **more)
    inputs = dict(build_graph(store, config).inputs)
    tables = tables_config(sampling)
    if tables is not None:
        given = {"graph": inputs["graph"]}
        inputs["sampling_tables"] = materialize(store, SAMPLING_TABLES, tables, Threads(), given)
    table = next(each for each in photo.train if each.name == "sage")
    table = replace(table, model=model, seeds=tuple(range(1 if quick else SEEDS)), epochs=5 if quick else table.epochs)
    made = train_table(store, inputs, table, sampling, 0, report=lambda line: None)
    return {
        split: [round(100 * each.summary["numbers"][f"{split}_accuracy"], 3) for each in made]
        for split in ("test", "valid")
    }


def _parse() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drawn_quality", description="Trains some rows.")
    parser.add_argument("--graph", choices=GRAPHS, nargs="+", default=GRAPHS)
    parser.add_argument("--rows", choices=ROWS, nargs="+", default=tuple(ROWS))
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    main(chosen.quick, chosen.graph, chosen.rows)


if __name__ == "__main__":
    _parse()
