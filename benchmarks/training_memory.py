"""Peak memory of trainings with their evaluations against what `graphmill inspect` says before each, per trainer.

Every table is trained by `python -m graphmill.trainers` twice, with its files dropped from the page cache: in a control group that holds
everything, and in one of exactly the bytes that were said (benchmarks/groups.py), where a training that takes more is killed. What was
said must be no less than either peak, and near the peak in its own group: with more memory a training maps rows that it reads directly
there, so that its peak may be less. Then it is trained in a group of the bytes with which it must do, where exact evaluations write rows to
files, and in one of less, where it must be refused with an amount. Peaks are those of anonymous memory over all processes. The data of the
graph exceed what Python and torch take. Each trainer evaluates exactly and by samples.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.groups import run_limited
from benchmarks.limited_home import folder_of
from benchmarks.record import record
from graphmill.assets.costs.needs import COMMAND
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.names.home import ROOT
from graphmill.jobs.commands.pipelines.needs import pipeline_needs
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.costs.memory import waiting_term
from tests.recipes import recipe

QUICK, FULL = 50_000, 200_000
STORED: dict[str, Any] = {"samples": "stored"}
TABLES: dict[str, dict[str, Any]] = {
    "minibatch": {"cache": "none"},
    "minibatch-direct": {"cache": "none", "features": "direct"},
    "minibatch-memory": {"cache": "none", "features": "memory"},
    "minibatch-cached": {"features": "direct", **STORED},
    "gat": {"cache": "none", "model": "gat", "heads": 4},
    "disk": {"trainer": "disk"},
    "fresh": {"trainer": "fresh", "features": "direct", "cache": "none"},
    "fresh-packed": {"trainer": "fresh", "fresh": {"rows": "packed"}, **STORED},
    "factored": {"trainer": "factored", "factored": {"samplers": 1, "trainers": 1}},
    "fresh-factored": {"trainer": "fresh-factored", "fresh-factored": {"samplers": 1, "trainers": 1}},
    "fullgraph": {"trainer": "fullgraph"},
    "fullgraph-uncut": {"trainer": "fullgraph", "fullgraph": {"mode": "device"}},
    "distributed": {"trainer": "distributed", "distributed": {"ranks": 2}},
    "fresh-distributed": {"trainer": "fresh-distributed", "fresh-distributed": {"ranks": 2}},
}
WAYS = ("exact", "sampled")
WAITING_TERMS = (waiting_term().name, COMMAND.name)
MOST, SECONDS, ENOUGH = 1.4, 180, 8 << 30
"""Largest bound over the peak in its own group, seconds after which a training is stopped, and bytes of the group that holds everything."""
LESS = 0.9
"""Share of the bytes with which a training must do, in which it is refused."""


def main(quick: bool, parts: tuple[str, ...] | None = None) -> None:
    """Builds the data, trains every table, prints and records."""
    nodes = QUICK if quick else FULL
    with folder_of(None, "graphmill-memory-") as folder:
        path = folder / "memory.toml"
        path.write_text(pipeline_text(nodes))
        environment = {"GRAPHMILL_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
        build = [sys.executable, "-c", "from graphmill.jobs.cli import main; main()", "build", str(path)]
        built = run_limited(build, folder, ENOUGH, SECONDS, environment)
        assert built["ended"] == "well", built["said"]
        runs = [measured(folder, environment, name) for name in asked(parts)]
    record("training_memory", {"scale": "quick" if quick else "full", "nodes": nodes, "runs": runs}, ("torch", "numpy"))
    bad = [row["table"] for row in runs if row["ended"] != "well" or row["bound_over_peak"] < 1]
    assert not bad, f"not within what was said: {', '.join(bad)}"
    # In the quick graph Python and torch take more than the data.
    far = [row["table"] for row in runs if row["bound_over_limited_peak"] > MOST and not quick]
    assert not far, f"more than {MOST} times the peak was said: {', '.join(far)}"


def asked(parts: tuple[str, ...] | None) -> Iterator[str]:
    """Yields the names of the tables to train: all, or those that begin with one of some words."""
    for name in (f"{name}-{way}" for name in TABLES for way in WAYS):
        if parts is None or any(name.startswith(part) for part in parts):
            yield name


def pipeline_text(nodes: int) -> str:
    """Returns the recipe."""
    common = {"layers": 2, "hidden": 64, "epochs": 2}
    trains = (
        {"name": f"{name}-{way}", "trial": f"{name}-{way}", "eval": way} | common | table
        for name, table in TABLES.items()
        for way in WAYS
    )
    return recipe(
        *trains,
        graph={"source": "rmat", "nodes": nodes, "edges": 8 * nodes, "features": 128, "classes": 16, "labelled": 0.1},
        sampling={"fanouts": [10, 10], "batch_size": 512, "reuse": 1},
        samples={},
        hotness={"policy": "presample"},
        memory={"host": "10%", "device": "5%", "disk": "20x"},
        cache_plan={},
        packed={},
        partitions={"parts": 2},
        chunks={},
    )


def measured(folder: Path, environment: dict[str, str], name: str) -> dict[str, Any]:
    """Trains a table in a group of the bytes that are said, prints a line, and returns what was found."""
    path = folder / "memory.toml"
    pipeline = load_pipeline(path, TrainTable)
    (need,) = (each.need for each in pipeline_needs(pipeline, folder / "home").steps if each.name == name)
    assert need is not None, f"{name} has no formula"
    # The processes that wait for a training are not part of it here.
    waiting = sum(term.most for term in need.memory if term.name in WAITING_TERMS)
    said, required, least = (each - waiting for each in (need.memory_bytes, need.required_bytes, need.least_bytes))
    command = [sys.executable, "-m", "graphmill.trainers", str(path), name, "--quiet", "--retrain"]
    limits = (ENOUGH, said, required, int(LESS * required))
    free, limited, small, less = (run_limited(command, folder, limit, SECONDS, environment) for limit in limits)
    assert less["ended"] == "badly" and "MiB" in less["said"], f"{name} began in {limits[-1]:,} bytes"
    peak = free["anonymous_bytes"]
    row = {
        "table": name,
        "ended": next((each["ended"] for each in (free, limited, small) if each["ended"] != "well"), "well"),
        "least_bytes": least,
        "required_bytes": required,
        "required_peak_bytes": small["anonymous_bytes"],
        "said_bytes": said,
        "peak_bytes": peak,
        "limited_peak_bytes": limited["anonymous_bytes"],
        "bound_over_peak": round(said / max(1, peak), 2),
        "bound_over_limited_peak": round(said / max(1, limited["anonymous_bytes"]), 2),
        "terms": {term.name: term.most for term in need.memory if term.most},
    }
    mib = {key: f"{value / 2**20:.0f}" for key, value in row.items() if key.endswith("_bytes")}
    print(
        f"{name}: {mib['least_bytes']} to {mib['said_bytes']} MiB were said, {mib['peak_bytes']} measured; in a group of that size "
        f"{mib['limited_peak_bytes']}, of {mib['required_bytes']} MiB {mib['required_peak_bytes']}, ended {row['ended']}",
        flush=True,
    )
    for each in (free, limited, small):
        if each["ended"] != "well":
            print(each["said"][-1500:], flush=True)
    return row
