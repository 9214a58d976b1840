"""Links whose nodes have features of 3.5 times the memory: `disk` beside DGL and GraphBolt on mapped files, in one control group.

1M nodes x 1,024 float32 (3.8 GiB) with the edges of an R-MAT graph. Some of these edges are a relation of their own, and are the links to
learn: 80 batches of 128 with a uniform pair each, fan-outs [10, 10], 64 hidden columns, the dot product. A command has the group to itself
and cold files. Rivals map topology and features, random reads advised, and score nothing. Compared are seconds of an epoch; that losses and
gradients agree, the part "steps" checks.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from benchmarks.limited_home import RIVALS, LimitedHome, folder_of, show, widened
from benchmarks.mapped_rivals import reverse_places
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from tests.graphs import build_graph

QUICK = {"nodes": 100_000, "edges": 800_000}
FULL = {"nodes": 1_000_000, "edges": 8_000_000}
BATCHES = {True: 4, False: 80}
LIMIT_BYTES, COLUMNS, BATCH_SIZE, HIDDEN, TRAIN_RATIO = 1100 << 20, 1024, 128, 64, 0.85
RECIPE = """
name = "links"
[task]
kind = "links"
relations = ["buys"]
train_ratio = {ratio}
[graph]
source = "tables"
[graph.nodes.node]
num_nodes = {nodes}
[graph.edges.knows]
path = "knows.parquet"
source_type = "node"
target_type = "node"
[graph.edges.buys]
path = "buys.parquet"
source_type = "node"
target_type = "node"
[features]
file = "rows.npy"
node_type = "node"
[sampling]
fanouts = [10, 10]
batch_size = {batch_size}
reuse = 1
per_positive = 1
[samples]
[hotness]
[memory]
host = "100MiB"
device = "50MiB"
disk = "20GiB"
[cache_plan]
[packed]
[[train]]
name = "disk"
trainer = "disk"
hidden = {hidden}
dropout = 0.0
link_loss = "binary"
queue = "128MiB"
epochs = 2
eval_every = 0
metric = "auc"
eval_workspace = "64MiB"
"""


def measure(quick: bool, home: Path | None = None) -> dict[str, Any]:
    """Builds, trains and compares. Returns the row."""
    size = QUICK if quick else FULL
    with folder_of(home, "graphmill-links-") as folder:
        spec = write(folder, size, BATCHES[quick])
        limited = LimitedHome(folder, LIMIT_BYTES)
        assert limited.command("build", "build", "links.toml")["ended"] == "well"
        spec["rows"] = str(limited.artifact("features").path / "rows.npy")
        parts = ["disk", *RIVALS]
        for part in random.Random(0).sample(parts, len(parts)):
            if part in RIVALS:
                limited.rival(part, hidden=HIDDEN, seconds=5 if quick else 60, spec=spec)
            else:
                limited.command(part, "train", "links.toml", part)
        means = show(limited.models(), limited.rows())
        ratios = {f"{other} / disk": round(means[other] / means["disk"], 2) for other in RIVALS if other in means}
        print(f"  limited: {ratios}", flush=True)
        return {"size": size, "epoch_seconds": means, "ratios": ratios, "commands": limited.rows()}


def write(folder: Path, size: dict[str, int], batches: int) -> dict[str, Any]:
    """Writes the pipeline file and all data. Returns the spec of rivals without `rows` (benchmarks/mapped_rivals.py)."""
    graph = build_graph(
        Store(folder / "source"), config_class("rmat")(seed=1, **size, features=4, classes=2), threads=2
    )
    topology, rng = graph.open().topology, np.random.default_rng(0)
    indptr, source = np.array(topology.indptr), np.array(topology.indices)
    target = np.repeat(np.arange(size["nodes"], dtype=source.dtype), np.diff(indptr))
    once = np.flatnonzero(source < target)
    links = np.zeros(len(once), bool)
    links[rng.choice(len(once), round(batches * BATCH_SIZE / TRAIN_RATIO), replace=False)] = True
    for name, chosen in (("knows", once[~links]), ("buys", once[links])):
        pl.DataFrame({"src": source[chosen], "dst": target[chosen]}).write_parquet(folder / f"{name}.parquet")
    rows = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float32, (size["nodes"], COLUMNS))
    for begin in range(0, size["nodes"], 10_000):
        rows[begin : begin + 10_000] = rng.random(rows[begin : begin + 10_000].shape, np.float32)
    rows.flush()
    (folder / "links.toml").write_text(
        RECIPE.format(nodes=size["nodes"], ratio=TRAIN_RATIO, batch_size=BATCH_SIZE, hidden=HIDDEN)
    )
    files = {
        "indptr": indptr,
        "indices": source,
        "links": once[links][: batches * BATCH_SIZE],
        "reverse": reverse_places(torch.from_numpy(indptr), torch.from_numpy(source)).numpy(),
    }
    for name, array in files.items():
        np.save(folder / f"{name}.npy", array)
    return {name: str(folder / f"{name}.npy") for name in files} | {
        "wide_indices": str(widened(folder / "indices.npy", folder / "wide_indices.npy")),
        "fanouts": [10, 10],
        "batch_size": BATCH_SIZE,
        "batches": batches,
        "classes": HIDDEN,
        "dropout": 0.0,
        "lr": 0.003,
        "threads": 2,
    }
