"""An import beside GraphBolt's: the same edges from CSV and the same features from a .npy file, each side a command of its own.

GraphBolt's OnDiskDataset (DGL 2.1, by the interpreter that GRAPHBOLT_PYTHON names) reads edges with pandas, sorts them in memory and writes
columns without weights and edge ids. `graphmill build` stores the same columns with rows sorted, checks, digests and figures; it keeps
duplicates and self-loops here, and is told the number of nodes, as GraphBolt is. Number of edges and degrees are compared first. Then both
commands run in an order that is drawn anew each time, with the same number of threads, and are measured from outside: seconds of the
whole command, and resident memory of all its processes together. "Idle" is the same command with nothing left to build.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from assets.sizes import format_bytes
from assets.storage.home import ROOT
from assets.storage.store import Store
from benchmarks.limited_home import GRAPHBOLT
from benchmarks.record import record

SIZES = {
    True: {"nodes": 100_000, "edges": 2_000_000, "features": 16, "repeats": 1},
    False: {"nodes": 1_000_000, "edges": 20_000_000, "features": 16, "repeats": 3},
}
THREADS = 2
SAMPLE_SECONDS = 0.02
PIPELINE = """
[graph]
source = "edges"
edges = "edges.{kind}"
num_nodes = {nodes}
undirected = false
duplicates = "keep"
self_loops = "keep"
{more}
[features]
file = "features.npy"
"""
METADATA = """
dataset_name: edges
graph:
  nodes:
    - num: {nodes}
  edges:
    - format: csv
      path: edges.csv
feature_data:
  - domain: node
    type: null
    name: feat
    format: numpy
    in_memory: true
    path: features.npy
tasks: []
"""


def main(quick: bool) -> None:
    """Writes the tables, compares what both import, then measures, prints and records."""
    size, python = SIZES[quick], os.environ.get(GRAPHBOLT)
    with tempfile.TemporaryDirectory(prefix="graphmill-import-rivals-") as name:
        folder = Path(name)
        write_tables(folder, size)
        commands: dict[str, Callable[[bool], list[str]]] = {
            "graphmill, CSV": lambda _: build_command(folder, "csv"),
            "graphmill, Parquet": lambda _: build_command(folder, "parquet"),
        }
        if python is None:
            print(f"graphbolt: left out, {GRAPHBOLT} names no interpreter that has it")
        else:
            commands["graphbolt, CSV"] = lambda anew: rival_command(python, folder, *(["anew"] if anew else []))
        for command in commands.values():
            measured(command(True))
        check_equality(folder, python)
        idle = {system: measured(command(False)) for system, command in commands.items()}
        taken = in_drawn_order(folder, commands, size["repeats"])
    rows = {
        system: {
            "seconds": [seconds for seconds, _ in runs],
            "peak_bytes": max(peak for _, peak in runs),
            "idle_seconds": idle[system][0],
        }
        for system, runs in taken.items()
    }
    show(size, rows)
    scale = {"scale": "quick" if quick else "full", "threads": THREADS}
    record("import_rivals", scale | size | {"systems": rows}, ("numpy", "duckdb", "polars", "dagster"))


def write_tables(folder: Path, size: Mapping[str, int]) -> None:
    """Writes edges.csv without names, as GraphBolt wants it, edges.parquet, features.npy, and what both systems are told."""
    import polars

    from kernels.graph.generate import rmat_edges

    src, dst = rmat_edges(size["nodes"], size["edges"], seed=7)
    table = polars.DataFrame({"src": np.asarray(src, np.int64), "dst": np.asarray(dst, np.int64)})
    table.write_csv(folder / "edges.csv", include_header=False)
    table.write_parquet(folder / "edges.parquet")
    features = np.random.default_rng(0).random((size["nodes"], size["features"]), np.float32)
    np.save(folder / "features.npy", features)
    (folder / "metadata.yaml").write_text(METADATA.format(**size))
    for kind, more in (("csv", "header = false\n"), ("parquet", "")):
        (folder / f"{kind}.toml").write_text(PIPELINE.format(kind=kind, more=more, **size))


def build_command(folder: Path, kind: str) -> list[str]:
    code = "import sys; from jobs.cli import main; sys.exit(main())"
    home = str(folder / f"home-{kind}")
    return [
        sys.executable,
        "-c",
        code,
        "--home",
        home,
        "build",
        str(folder / f"{kind}.toml"),
        "--threads",
        str(THREADS),
    ]


def rival_command(python: str, folder: Path, *more: str) -> list[str]:
    return [python, str(Path(__file__).with_name("import_graphbolt.py")), str(folder), str(THREADS), *more]


def in_drawn_order(
    folder: Path, commands: Mapping[str, Callable[[bool], list[str]]], repeats: int
) -> dict[str, list[tuple[float, int]]]:
    """Runs every command `repeats` times from scratch. Returns system -> (seconds, peak in bytes) of each run."""
    found: dict[str, list[tuple[float, int]]] = {system: [] for system in commands}
    order = random.Random(0)
    for _ in range(repeats):
        for system in order.sample(list(commands), len(commands)):
            for home in folder.glob("home-*"):
                shutil.rmtree(home)
            shutil.rmtree(folder / "preprocessed", ignore_errors=True)
            os.sync()
            found[system].append(measured(commands[system](True)))
    return found


def measured(command: list[str]) -> tuple[float, int]:
    """Runs a command. Returns (its seconds, the most resident bytes of all its processes together, shared pages counted in each)."""
    started, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        while child.poll() is None:
            peak = max(peak, session_bytes(child.pid))
            time.sleep(SAMPLE_SECONDS)
        seconds = time.perf_counter() - started
        output.seek(0)
        assert child.returncode == 0, output.read().decode(errors="replace")[-4000:]
    return seconds, peak


def session_bytes(session: int) -> int:
    """Returns the resident bytes of the processes of a session."""
    total, page = 0, os.sysconf("SC_PAGE_SIZE")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            total += int(fields[21]) * page
    return total


def check_equality(folder: Path, python: str | None) -> None:
    """Compares the number of edges and both degrees of all nodes; from Parquet every array is that from CSV."""
    graphs = {}
    for kind in ("csv", "parquet"):
        (graphs[kind],) = [each for each in Store(folder / f"home-{kind}").artifacts() if each.stage == "graph"]
    for name in ("indptr", "indices"):
        csv, parquet = (np.load(graph.path / f"{name}.npy", mmap_mode="r") for graph in graphs.values())
        assert np.array_equal(csv, parquet), f"{name} of CSV and Parquet differ"
    if python is None:
        return
    said = subprocess.run(rival_command(python, folder, "check"), cwd=ROOT, capture_output=True, text=True, check=True)
    theirs = json.loads(said.stdout.splitlines()[-1])
    degrees = {name: np.load(graphs["csv"].path / f"{name}_degree.npy") for name in ("in", "out")}
    digests = {name: hashlib.sha256(each.astype("<i8").tobytes()).hexdigest() for name, each in degrees.items()}
    ours = {"num_edges": int(degrees["in"].sum()), "num_nodes": len(degrees["in"]), "digests": digests}
    assert ours == theirs, f"{ours} here, {theirs} in GraphBolt"
    print("number of edges and degrees are equal")


def show(size: Mapping[str, int], rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints a line about each system."""
    print(f"{size['edges']:,} edges, {size['nodes']:,} nodes x {size['features']} float32, {THREADS} threads")
    rival = rows.get("graphbolt, CSV")
    for system, row in rows.items():
        median = statistics.median(row["seconds"])
        line = (
            f"  {system:20} {median:6.2f} s (idle {row['idle_seconds']:.2f} s), peak {format_bytes(row['peak_bytes'])}"
        )
        if rival is not None and row is not rival:
            faster = statistics.median(rival["seconds"]) / median
            line += f"; {faster:.2f} times as fast as GraphBolt, {row['peak_bytes'] / rival['peak_bytes']:.2f} of its memory"
        print(line)
