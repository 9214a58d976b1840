"""Published lines: test scores of full-graph trainings with the options and epochs of others.

    python -m benchmarks published               # all tables of jobs/pipelines/published/{cora,photo,minesweeper}.toml
    python -m benchmarks.published photo         # one graph
    python -m benchmarks.published --quick cora  # two epochs of one seed or split

GraphSAGE is trained with the aggregator of its file, and with "mean". A row has a score in percent for each seed, or for each of ten splits
of minesweeper, and the median of the seconds of an epoch without its evaluation. Needs the graphs in the folder that GRAPHMILL_TEST_DATA
names.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.command_line import asked_for
from benchmarks.disk_inputs import home
from benchmarks.record import record
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from tests.graphs import build_graph

GRAPHS = ("cora", "photo", "minesweeper")
SPLITS = {"minesweeper": 10}


def main(quick: bool, names: Sequence[str] = GRAPHS) -> None:
    """Trains the tables of graphs, and records a row for each."""
    if not os.environ.get("GRAPHMILL_TEST_DATA"):
        print("published: skipped, GRAPHMILL_TEST_DATA names no folder with the graphs")
        return
    with home() as store:
        for name in names:
            for table in tables(name, quick):
                row = {"graph": name, "model": table.model, "aggregator": table.aggregator, "epochs": table.epochs}
                row |= scores(store, name, table, quick)
                spread = f" ± {statistics.stdev(row['test']):.2f}" if len(row["test"]) > 1 else ""
                what = f"{name} {table.model} {table.aggregator if table.model == 'sage' else ''}"
                print(
                    f"{what:28} {statistics.fmean(row['test']):.2f}{spread}, {row['epoch_seconds']} s per epoch",
                    flush=True,
                )
                record("published", {"scale": "quick" if quick else "full"} | row)


def tables(name: str, quick: bool) -> list[TrainTable]:
    """Returns the tables of a pipeline, those of GraphSAGE with both aggregators."""
    found = []
    for table in load_pipeline(f"published/{name}", TrainTable).train:
        table = replace(table, epochs=2, seeds=table.seeds[:1]) if quick else table
        found += [table, replace(table, aggregator="mean")] if table.model == "sage" else [table]
    return found


def scores(store: Store, name: str, table: TrainTable, quick: bool) -> dict[str, Any]:
    """Trains a table with all its seeds on all splits of its graph. Returns test scores in percent and the seconds of an epoch."""
    from graphmill.trainers.run import train_table

    pipeline = load_pipeline(f"published/{name}", TrainTable)
    test, seconds = [], []
    for split in range(1 if quick else SPLITS.get(name, 1)):
        config = replace(pipeline.graph, split=split) if name in SPLITS else pipeline.graph  # pyright: ignore
        graph = build_graph(store, config)
        models = train_table(store, graph.inputs, table, None, pipeline.seed, report=lambda line: None)
        test += [round(100 * model.summary["numbers"][f"test_{table.metric}"], 3) for model in models]
        seconds += [statistics.median(model.run_record()["epoch_seconds"]["train"]) for model in models]
    return {"test": test, "epoch_seconds": round(statistics.median(seconds), 4)}


if __name__ == "__main__":
    main(*asked_for(GRAPHS, "graph"))
