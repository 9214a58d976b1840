"""An import beside GraphBolt's: the same edges from CSV and the same features from a .npy file, each side a command of its own.

GraphBolt's OnDiskDataset (DGL 2.1, by the interpreter that GRAPHBOLT_PYTHON names) reads edges with pandas, sorts them in memory and writes
columns without weights and edge ids. `graphmill build` stores the same columns with rows sorted, checks, digests and figures; it keeps
duplicates and self-loops here, and is told the number of nodes, as GraphBolt is. Number of edges and degrees are compared first. Then both
commands run in an order that is drawn anew each time, with the same number of threads, and are measured from outside: seconds of the
whole command, seconds of processors, which others on the machine change less, and resident memory of all its processes together. "Idle" is
the same command with nothing left to build.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.limited_home import GRAPHBOLT
from benchmarks.record import record
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store

SIZES = {
    True: {"nodes": 100_000, "edges": 2_000_000, "features": 16, "repeats": 1},
    False: {"nodes": 1_000_000, "edges": 20_000_000, "features": 16, "repeats": 3},
}
THREADS = 2
KEYS = ("seconds", "processor_seconds")
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


class Run(NamedTuple):
    """What a command took; the peak is of the resident memory of all its processes together, shared pages counted in each."""

    seconds: float
    processor_seconds: float
    peak_bytes: int

    def told(self) -> str:
        """Returns it in words."""
        return f"{self.seconds:.2f} s, {self.processor_seconds:.2f} s of processors, {format_bytes(self.peak_bytes)}"


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
            "seconds": [run.seconds for run in runs],
            "processor_seconds": [run.processor_seconds for run in runs],
            "peak_bytes": max(run.peak_bytes for run in runs),
            "idle_seconds": idle[system].seconds,
            "idle_processor_seconds": idle[system].processor_seconds,
        }
        for system, runs in taken.items()
    }
    show(size, rows)
    scale = {"scale": "quick" if quick else "full", "threads": THREADS}
    record("import_rivals", scale | size | {"systems": rows}, ("numpy", "duckdb", "polars", "dagster"))


def write_tables(folder: Path, size: Mapping[str, int]) -> None:
    """Writes edges.csv without names, as GraphBolt wants it, edges.parquet, features.npy, and what both systems are told."""
    import polars

    from graphmill.kernels.graph.generate import rmat_edges

    src, dst = rmat_edges(size["nodes"], size["edges"], seed=7)
    table = polars.DataFrame({"src": np.asarray(src, np.int64), "dst": np.asarray(dst, np.int64)})
    table.write_csv(folder / "edges.csv", include_header=False)
    table.write_parquet(folder / "edges.parquet")
    features = np.random.default_rng(0).random((size["nodes"], size["features"]), np.float32)
    np.save(folder / "features.npy", features)
    # A folder of its own: GraphBolt digests all files beside its own whenever it opens one.
    rival = folder / "graphbolt"
    rival.mkdir()
    (rival / "metadata.yaml").write_text(METADATA.format(**size))
    for name in ("edges.csv", "features.npy"):
        os.link(folder / name, rival / name)
    for kind, more in (("csv", "header = false\n"), ("parquet", "")):
        (folder / f"{kind}.toml").write_text(PIPELINE.format(kind=kind, more=more, **size))


def build_command(folder: Path, kind: str) -> list[str]:
    code = "import sys; from graphmill.jobs.cli import main; sys.exit(main())"
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
    return [
        python,
        str(Path(__file__).with_name("import_graphbolt.py")),
        str(folder / "graphbolt"),
        str(THREADS),
        *more,
    ]


def in_drawn_order(
    folder: Path, commands: Mapping[str, Callable[[bool], list[str]]], repeats: int
) -> dict[str, list[Run]]:
    """Runs every command `repeats` times from scratch. Returns system -> its runs."""
    found: dict[str, list[Run]] = {system: [] for system in commands}
    order = random.Random(0)
    for _ in range(repeats):
        for system in order.sample(list(commands), len(commands)):
            for home in folder.glob("home-*"):
                shutil.rmtree(home)
            shutil.rmtree(folder / "graphbolt" / "preprocessed", ignore_errors=True)
            os.sync()
            found[system].append(measured(commands[system](True)))
            print(f"  {system}: {found[system][-1].told()}", flush=True)
    return found


def measured(command: list[str]) -> Run:
    """Runs a command and watches its session."""
    before, started, peak = processor_seconds(), time.perf_counter(), 0
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        while child.poll() is None:
            peak = max(peak, session_bytes(child.pid))
            time.sleep(SAMPLE_SECONDS)
        seconds = time.perf_counter() - started
        output.seek(0)
        assert child.returncode == 0, output.read().decode(errors="replace")[-4000:]
    return Run(seconds, processor_seconds() - before, peak)


def processor_seconds() -> float:
    """Returns the seconds that all commands so far took of processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
        run = Run(statistics.median(row["seconds"]), statistics.median(row["processor_seconds"]), row["peak_bytes"])
        print(f"  {system:20} {run.told()}; idle {row['idle_seconds']:.2f} and {row['idle_processor_seconds']:.2f} s")
        if rival is not None and row is not rival:
            faster, less = (statistics.median(rival[key]) / statistics.median(row[key]) for key in KEYS)
            memory = row["peak_bytes"] / rival["peak_bytes"]
            print(
                f"    {faster:.2f} times as fast as GraphBolt ({less:.2f} by processors), with {memory:.2f} of its memory"
            )
