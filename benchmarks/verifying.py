"""What it costs that every step compares what it reads with its digests: whole runs and epochs, with it and without.

Without it no file and no block of a mapped table is compared. Digests of what is written, and those of the records of stored batches and
packed chunks, belong to their formats and are in both. Each run has a process and a home of its own, because a file is compared once per
process, and both come in drawn order. Two things are timed:

- run: everything that `rmat-disk` builds and trains, from nothing;
- epoch: one epoch of mini-batches from mapped features of a graph that is there, the first comparison of all its files included. Files
  are in the page cache in both, so what is timed is the comparison and not the disk.

The weights of both have to be equal. Seconds are those of the processor, of all threads and of the processes that build parts: they depend
least on what else a machine does. The cost is the ratio of the medians, less one; beside it stands what was spent inside the comparisons.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import record
from graphmill.assets.building.child import child_environment

WITHOUT = """
import graphmill.assets.storage.files.verified as verified

def compare_nothing(*given):
    pass

verified.verify_once = verified.verify_again = compare_nothing
verified.VerifiedRows.require = compare_nothing
"""
"""A `sitecustomize` module: Python runs it at the start of every process, those of parts included, before others import the names."""
TARGET = 0.03
ROUNDS = {"run": 2, "epoch": 3}
KEYS = ("seconds", "cpu_seconds", "comparing_seconds")
WAYS = ("without", "with")


def main(quick: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "patched").mkdir()
        (folder / "patched" / "sitecustomize.py").write_text(WITHOUT)
        _child("graph", folder, "with", quick)
        rows = {what: _compared(what, folder, quick) for what in ROUNDS}
    for what, row in rows.items():
        print(
            f"{what:6} processor: without {row['without']:.2f} s, with {row['with']:.2f} s, {100 * row['cost']:+.1f} %; "
            f"inside the comparisons {row['comparing']:.3f} s, {100 * row['share']:.2f} % (target 3 %)"
        )
    record("verifying", {"scale": "quick" if quick else "full", "target": TARGET} | rows)


def _compared(what: str, folder: Path, quick: bool) -> dict[str, Any]:
    told: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    order = random.Random(0)
    for _ in range(2 if quick else ROUNDS[what]):
        for way in order.sample(WAYS, len(WAYS)):
            told[way].append(_child(what, folder, way, quick))
    weights = {json.dumps(each["weights"]) for way in WAYS for each in told[way]}
    assert len(weights) == 1, f"{what}: the weights differ"
    medians = {way: statistics.median(each["cpu_seconds"] for each in told[way]) for way in WAYS}
    comparing = statistics.median(each["comparing_seconds"] for each in told["with"])
    return medians | {
        "cost": medians["with"] / medians["without"] - 1,
        "comparing": comparing,
        "share": comparing / medians["with"],
        "all": {way: [[round(each[key], 3) for key in KEYS] for each in told[way]] for way in WAYS},
    }


def _child(what: str, folder: Path, way: str, quick: bool) -> dict[str, Any]:
    environment = child_environment()
    if way == "without":
        environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(folder / "patched")])
    command = [sys.executable, "-m", "benchmarks.verifying_run", what, str(folder), str(int(quick))]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
