"""Exact evaluation and prediction of graph attention on rows of thousands of columns, against a training epoch and against the workspace.

A GAT is trained for three epochs on a planted partition of 30,000 nodes and 8,000 columns, evaluated exactly after each. "evaluation" is
the median evaluation over the median training epoch of that run. Then `predict` runs in a process of its own at 512 MiB and at 6 GiB, in
drawn order, and its processor seconds are compared, for they depend less on who else is at work; the two files have to agree first.
"""

from __future__ import annotations

import random
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.predict import CHILD
from benchmarks.record import record
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from tests.graphs import build_graph

QUICK, FULL = {"nodes": 3_000, "features": 1_000}, {"nodes": 30_000, "features": 8_000}
WORKSPACES, ROUNDS = ("512MiB", "6GiB"), 2
RECIPE = """
[graph]
source = "sbm"
nodes = {nodes}
edges = {edges}
features = {features}
classes = 16

[sampling]
fanouts = [10, 10]
batch_size = 1024

[[train]]
name = "gat"
model = "gat"
layers = 2
hidden = 64
heads = 8
epochs = 3
eval_workspace = "512MiB"
"""


def main(quick: bool) -> None:
    """Trains, predicts, records one row."""
    from graphmill.trainers.run import train_table

    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        home, recipe = Path(folder) / "home", Path(folder) / "wide.toml"
        recipe.write_text(RECIPE.format(**size, edges=10 * size["nodes"]))
        pipeline, store = load_pipeline(recipe, TrainTable), Store(home)
        graph = build_graph(store, pipeline.graph)
        assert pipeline.sampling is not None
        (model,) = train_table(store, graph.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
        seconds = {name: statistics.median(each) for name, each in model.run_record()["epoch_seconds"].items() if each}
        used: dict[str, list[float]] = {workspace: [] for workspace in WORKSPACES}
        order = random.Random(0)
        for _ in range(1 if quick else ROUNDS):
            for workspace in order.sample(WORKSPACES, len(WORKSPACES)):
                out = Path(folder) / f"{workspace}.parquet"
                used[workspace].append(cpu_seconds([str(recipe), str(home), "gat", str(out), workspace]))
        apart = compared(*(Path(folder) / f"{workspace}.parquet" for workspace in WORKSPACES))
    small, large = (statistics.median(used[workspace]) for workspace in WORKSPACES)
    row: dict[str, Any] = {
        "scale": "quick" if quick else "full", "graph": size, "epoch_seconds": seconds, "predict_cpu_seconds": used,
        "evaluation_ratio": round(seconds["evaluate"] / seconds["train"], 3), "predict_ratio": round(small / large, 3),
        "largest_difference": apart,
    }  # fmt: skip
    print(
        f"training epoch {seconds['train']:.2f} s, evaluation {seconds['evaluate']:.2f} s ({row['evaluation_ratio']:.2f}x); predict "
        f"{small:.1f} processor seconds at {WORKSPACES[0]}, {large:.1f} at {WORKSPACES[1]} ({row['predict_ratio']:.2f}x)"
    )
    record("wide_rows", row, ("torch", "numpy", "polars"))


def cpu_seconds(arguments: list[str]) -> float:
    """Returns the processor seconds of a prediction in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", CHILD, *arguments], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


def compared(one: Path, two: Path) -> float:
    """Returns the largest difference between the probabilities of two files, after comparing the classes."""
    import polars

    left, right = polars.read_parquet(one), polars.read_parquet(two)
    assert (left["class"] == right["class"]).mean() > 0.999
    apart = float(np.abs(left["probability"].to_numpy() - right["probability"].to_numpy()).max())
    assert apart < 1e-3
    return apart
