"""What ranks exchange when each part keeps embeddings of earlier steps: prune, then exchange what survives (FastSample with FreshGNN).

    python -m benchmarks.distributed history

One citation graph is cut into two parts by METIS and trained on by two processes in three ways: rows of other ranks fetched as batches need
them; with a cache of the hottest of them; and with a history that has as many bytes as that cache. The bytes between ranks are those of the
ledgers, whose checks the trainings have passed, and the scores are of the test nodes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import VARIABLE
from graphmill.assets.storage.store import Store

PARTS, EPOCHS, SHARE = 2, 10, 10
"""SHARE percent of the bytes of all features, for all parts together."""
SMALL, LARGE = {"nodes": 20_000, "edges": 200_000}, {"nodes": 120_000, "edges": 1_200_000}
WAYS = {
    "no cache": ('trainer = "distributed"\ncache = "none"', f"[train.distributed]\nranks = {PARTS}"),
    "cached rows": ('trainer = "distributed"', f"[train.distributed]\nranks = {PARTS}"),
    "history": (
        'trainer = "fresh-distributed"\ncache = "none"',
        f'[train.fresh-distributed]\nranks = {PARTS}\narena = "{SHARE}%"',
    ),
}
PIPELINE = """
name = "history"
seed = 1
[graph]
source = "citation"
nodes = {nodes}
edges = {edges}
features = 128
classes = 16
undirected = true
train_ratio = 0.3
[sampling]
fanouts = [10, 5, 5]
batch_size = {batch_size}
[partitions]
method = "metis"
parts = {parts}
[memory]
host = "{share}%"
"""
TABLE = """
[[train]]
name = "{name}"
{keys}
model = "sage"
layers = 3
hidden = 64
epochs = {epochs}
eval_every = {epochs}
threads = 1
{settings}
"""


def history_bytes(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Returns and prints bytes and rounds per epoch between the ranks, and test scores.

    Args:
        folder: gets the home.
        quick: on the small graph.
    """
    size = SMALL if quick else LARGE
    text = PIPELINE.format(**size, batch_size=50 if quick else 100, parts=PARTS, share=SHARE / PARTS)
    for name, (keys, settings) in WAYS.items():
        text += TABLE.format(name=name.replace(" ", "-"), keys=keys, settings=settings, epochs=EPOCHS)
    path, home = folder / "history.toml", folder / "home"
    path.write_text(text)
    _graphmill(home, "build", str(path))
    found = []
    for name, (keys, _) in WAYS.items():
        # With a cache or without is one model, which the next training replaces; so it is read at once.
        _graphmill(home, "train", str(path), name.replace(" ", "-"), "--retrain")
        (model,) = (
            each
            for each in Store(home).artifacts()
            if each.stage == "model" and f'"{each.config["train"]["trainer"]}"' in keys.splitlines()[0]
        )
        found.append({"way": name} | _row(model))
        found[-1]["of_no_cache"] = round(found[-1]["rank_megabytes"] / found[0]["rank_megabytes"], 3)
        print(found[-1])
    return found


def _graphmill(home: Path, *arguments: str) -> None:
    command = [sys.executable, "-c", "from graphmill.jobs.cli import main; main()", *arguments]
    done = subprocess.run(command, check=False, env=os.environ | {VARIABLE: str(home)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _row(model: Artifact) -> dict[str, Any]:
    ledger = json.loads(model.file("ledger.json").read_text())
    counts = {row["name"]: row["n"] for row in ledger["counts"] if row["layer"] == 0}
    moved = sum(row["moved_bytes"] for row in ledger["moves"] if (row["link"], row["kind"]) == ("rank", "feature"))
    return {
        "rank_megabytes": round(moved / EPOCHS / 1e6, 2),
        "inputs_per_batch": round(counts["inputs"] / counts["batches"], 1),
        "rounds_per_batch": counts["rounds"] / counts["batches"],
        "test_accuracy": model.summary["numbers"]["test_accuracy"],
    }
