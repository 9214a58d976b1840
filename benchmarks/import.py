"""Importing a graph from Parquet that is larger than the memory it is given.

A child process builds graph and features with `memory_limit`, and its peak is measured from outside: the kernel's high-water mark of
resident memory, and what of it could not have been taken back (anonymous pages), sampled from /proc. The peak must stay under the
formula in assets/sources/edges/source.py. Then the same edges are compressed in memory by `build_csc`; every array must be byte-equal.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import record
from graphmill.assets.sizes import format_bytes

SIZES = {
    True: {"nodes": 200_000, "edges": 2_000_000, "features": 64, "memory_limit": "256MiB"},
    False: {"nodes": 5_000_000, "edges": 50_000_000, "features": 64, "memory_limit": "2GiB"},
}
FILES = 4
SAMPLE_SECONDS = 0.02


def main(quick: bool) -> None:
    """Writes the tables, imports them in a child, compares, prints and records."""
    size = SIZES[quick]
    with tempfile.TemporaryDirectory(prefix="graphmill-import-") as name:
        folder = Path(name)
        table_bytes = write_tables(folder, size)
        report, peaks = measured_child(folder, size)
        check_equality(folder, size, Path(report["graph"]), Path(report["features"]))
    allowed = formula_bytes(size)
    assert peaks["resident_bytes"] < allowed, f"{peaks} is above the formula's {allowed}"
    speed = {key: round(size["edges"] / report[key]) for key in ("read_sort_seconds", "seconds")}
    print(
        f"{size['edges']:,} edges, {size['nodes']:,} nodes x {size['features']} float32, {format_bytes(table_bytes)} of Parquet"
    )
    print(f"memory_limit {size['memory_limit']}: peak {format_bytes(peaks['resident_bytes'])} resident, ", end="")
    print(f"{format_bytes(peaks['anonymous_bytes'])} anonymous; the formula allows {format_bytes(allowed)}")
    print(f"{report['seconds']:.1f} s in all ({speed['seconds']:,} edges/s), of which hashing the tables ", end="")
    print(f"{report['hash_seconds']:.1f} s; every array equals the one built in memory")
    for label, seconds in report["phases"].items():
        print(f"  {label:16} {seconds:6.1f} s")
    # Folders of this run say nothing to whoever reads the row later; versions do.
    report |= {stage: f"{stage}/{Path(report[stage]).name[:12]}" for stage in ("graph", "features")}
    row = {"scale": "quick" if quick else "full", "graph": size, "peaks": peaks, "formula_bytes": allowed}
    record("import", row | {"edges_per_second": speed["seconds"], "report": report}, ("numpy", "duckdb", "polars"))


def write_tables(folder: Path, size: dict[str, Any]) -> int:
    """Writes edges-*.parquet and nodes.parquet and returns their bytes; keeps the ends as ends.npy."""
    import duckdb
    import polars

    from graphmill.kernels.graph.generate import rmat_edges

    src, dst = rmat_edges(size["nodes"], size["edges"], seed=7)
    np.save(folder / "ends.npy", np.stack([src, dst]))
    bounds = [size["edges"] * number // FILES for number in range(FILES + 1)]
    for number, (low, high) in enumerate(itertools.pairwise(bounds)):
        polars.DataFrame({"src": src[low:high], "dst": dst[low:high]}).write_parquet(folder / f"edges-{number}.parquet")
    connection = duckdb.connect(config={"memory_limit": "1GiB", "threads": 2, "temp_directory": str(folder)})
    connection.execute(
        f"COPY (SELECT i AS id, list_transform(range({size['features']}), lambda c: ((hash(i * 64 + c) % 2001)::FLOAT - 1000) / 8) "
        f"::FLOAT[] AS x, (hash(i) % 16)::INTEGER AS label FROM range({size['nodes']}) t(i)) "
        f"TO '{folder / 'nodes.parquet'}' (FORMAT parquet)"
    )
    connection.close()
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


def measured_child(folder: Path, size: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Imports in a child process. Returns (its report, its peaks as seen from here)."""
    environment = os.environ | {"GRAPHMILL_HOME": str(folder / "home"), "MALLOC_ARENA_MAX": "4"}
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.import", str(folder), json.dumps(size)],
        stdout=subprocess.PIPE,
        env=environment,
    )
    peaks = {"resident_bytes": 0, "anonymous_bytes": 0}
    while child.poll() is None:
        for line in status_lines(child.pid):
            field, _, value = line.partition(":")
            name = {"VmHWM": "resident_bytes", "RssAnon": "anonymous_bytes"}.get(field)
            if name:
                peaks[name] = max(peaks[name], int(value.split()[0]) * 1024)
        time.sleep(SAMPLE_SECONDS)
    output = child.stdout.read() if child.stdout else b""
    assert child.returncode == 0, f"the import ended with {child.returncode}"
    return json.loads(output.splitlines()[-1]), peaks


def status_lines(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return []


class Phases:
    """Listens to the stages of an import and times them."""

    def __init__(self):
        self.seconds: dict[str, float] = {}

    def start(self, label: str, total: int | None, unit: str) -> None:
        self._label, self._started = label, time.perf_counter()

    def advance(self, n: int) -> None:
        pass

    def done(self) -> None:
        self.seconds[self._label] = round(time.perf_counter() - self._started, 2)


def child_main(folder: Path, size: dict[str, Any]) -> None:
    """Builds both artifacts in one pass and prints a report as one line of JSON."""
    from graphmill.assets.building.execution import Threads
    from graphmill.assets.building.materialize import materialize_together
    from graphmill.assets.features.config import features_config
    from graphmill.assets.features.stage import FEATURES
    from graphmill.assets.graph.stage import GRAPH
    from graphmill.assets.sources.registry import config_class
    from graphmill.assets.storage.store import Store

    config = config_class("edges")(
        edges=folder / "edges-*.parquet",
        nodes=folder / "nodes.parquet",
        features="x",
        label_column="label",
        memory_limit=size["memory_limit"],
    )
    started = time.perf_counter()
    asked = [(FEATURES, features_config(config)), (GRAPH, config)]
    for stage, semantic in asked:
        stage.raw(semantic)
    hashed = time.perf_counter()
    phases = Phases()
    features, graph = materialize_together(Store(), asked, Threads(threads=2), phases)
    ended = time.perf_counter()
    read_sort = sum(phases.seconds.get(label, 0.0) for label in ("read edges", "distribute edges", "sort edges"))
    report = {
        "graph": str(graph.path),
        "features": str(features.path),
        "hash_seconds": round(hashed - started, 2),
        "seconds": round(ended - started, 2),
    }
    print(json.dumps(report | {"read_sort_seconds": round(read_sort, 2), "phases": phases.seconds}))


def check_equality(folder: Path, size: dict[str, Any], graph: Path, features: Path) -> None:
    """Compresses the same edges in memory and compares every array with the artifacts'.

    Args:
        folder, size: the tables.
        graph, features: folders of the artifacts.

    Raises:
        AssertionError: an array differs.
    """
    from graphmill.kernels.graph.csc import build_csc

    src, dst = np.load(folder / "ends.npy", mmap_mode="r")
    csc = build_csc(src, dst, size["nodes"], undirected=True, duplicates="merge", self_loops="drop", threads=2)
    for name in ("indptr", "indices", "in_degree", "out_degree"):
        stored = np.load(graph / f"{name}.npy", mmap_mode="r")
        assert stored.dtype == getattr(csc, name).dtype and np.array_equal(stored, getattr(csc, name)), (
            f"{name} differs"
        )
    import polars

    stored = np.load(features / "rows.npy", mmap_mode="r")
    step, lazy = 250_000, polars.scan_parquet(folder / "nodes.parquet").select("x")
    for low in range(0, size["nodes"], step):
        rows = lazy.slice(low, step).collect().to_series().explode().to_numpy().reshape(-1, size["features"])
        assert np.array_equal(stored[low : low + step], rows), f"features differ after row {low}"


def formula_bytes(size: dict[str, Any]) -> int:
    """Returns the peak that the docstring of assets/sources/edges/source.py allows."""
    from graphmill.assets.sources.spooled import peak_bytes

    return peak_bytes(size["memory_limit"], num_nodes=size["nodes"], row_bytes=4 * size["features"])


if __name__ == "__main__":
    child_main(Path(sys.argv[1]), json.loads(sys.argv[2]))
