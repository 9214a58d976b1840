"""Parts of a graph: edge cut, replication and balance by method, and the seconds that each takes (HongTu, section 4.1 and Table 3).

Every partition is first checked: each node has one part, and the matrix of edges between parts has as many edges as the graph. The
streaming partitioner runs on an R-MAT graph in a process of its own, whose anonymous memory is read from outside while it runs; METIS
stands beside it where it ends in `METIS_SECONDS`. `python -m benchmarks.partitions --cases sbm` measures some of the cases.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import record
from benchmarks.whole_graphs import made_topology, nested, sbm
from graphmill.assets.building.stage import Silent
from graphmill.assets.partitions.assign import (
    balanced_pass,
    balances,
    contracted_parts,
    is_overfull,
    measures,
    random_parts,
    range_parts,
    streamed_parts,
)
from graphmill.assets.partitions.config import PartitionsConfig
from graphmill.assets.partitions.metis import metis_parts
from graphmill.kernels.chunks.ldg import count_replicas, cut_matrix
from graphmill.kernels.graph.generate import rmat_edges
from graphmill.kernels.types import Array, Topology

PARTS = 4
METIS_SECONDS = 600
CASES = {
    "sbm": 400_000,
    "nested": (1_000_000, 10_000_000),
    "rmat-1m": (1_000_000, 16_000_000, True),
    "rmat-8m": (8_000_000, 128_000_000, False),
}
"""Nodes of the planted partition; nodes and edges of nested communities; those of R-MAT, and whether METIS is tried (it takes twelve times
the symmetrised graph)."""
QUICK = {"sbm": 20_000, "nested": (20_000, 200_000), "rmat": (100_000, 1_600_000, True)}
CHILD = """
import sys, time
import numpy as np
from benchmarks.partitions import mapped
from graphmill.assets.partitions.assign import streamed_parts
folder = sys.argv[1]
topology = mapped(folder)
started = time.perf_counter()
part_of = streamed_parts(topology, np.zeros(topology.num_nodes, bool), 4)
seconds = time.perf_counter() - started
np.save(f"{folder}/part_of.npy", part_of)
print(seconds)
"""


class Ending(Silent):
    """A progress that ends METIS when its time is over."""

    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds

    def advance(self, n: int) -> None:
        """Raises `TimeoutError` from its end on."""
        if time.monotonic() > self.end:
            raise TimeoutError


def main(quick: bool, cases: Sequence[str] = tuple(CASES)) -> None:
    """Measures all methods on a planted partition, and the stream on R-MAT."""
    rows, sizes = [], QUICK if quick else {name: CASES[name] for name in cases}
    with tempfile.TemporaryDirectory() as folder:
        for name, size in sizes.items():
            if name == "sbm":
                rows += every_method("SBM", sbm(size), Path(folder))
            elif name == "nested":
                rows += every_method("nested communities", nested(*size), Path(folder))
            else:
                rows += streamed(*size, Path(folder))
    record("partitions", {"scale": "quick" if quick else "full", "parts": PARTS, "cases": rows}, ("numpy", "pymetis"))


def every_method(name: str, graph: Topology, folder: Path) -> list[dict[str, Any]]:
    """Returns a row for each method."""
    return [timed(name, method, graph, folder) for method in ("random", "range", "ldg", "metis-contracted", "metis")]


def timed(name: str, method: str, topology: Topology, folder: Path) -> dict[str, Any]:
    """Returns the row of a method."""
    started = time.perf_counter()
    part_of = parts(method, topology, folder)
    return described(name, method, topology, part_of, time.perf_counter() - started)


def parts(method: str, topology: Topology, folder: Path) -> Array:
    """Returns i32[N] by a method."""
    trained = np.zeros(topology.num_nodes, bool)
    if method == "metis":
        config = PartitionsConfig(method="metis", parts=PARTS, seed=1)
        part_of = metis_parts(topology, trained, config, folder, Ending(METIS_SECONDS), 2)
        # As the stage does: a stream moves nodes out of parts that are too full.
        overfull = is_overfull(topology, trained, PARTS, part_of)
        return balanced_pass(topology, measures(topology, trained), PARTS, part_of) if overfull else part_of
    if method == "metis-contracted":
        config = PartitionsConfig(method=method, parts=PARTS, seed=1)
        part_of = contracted_parts(topology, trained, False, config, folder, Silent())
        return streamed_parts(topology, trained, PARTS, part_of)
    if method == "ldg":
        return streamed_parts(topology, trained, PARTS)
    return range_parts(topology, PARTS) if method == "range" else random_parts(topology.num_nodes, PARTS, 1)


def streamed(num_nodes: int, num_edges: int, with_metis: bool, folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of R-MAT: the stream in a process of its own, and METIS where it is tried and ends in time."""
    topology = made_topology(*rmat_edges(num_nodes, num_edges, 1, threads=2), num_nodes)
    name = f"R-MAT {num_nodes / 1e6:g}M/{num_edges / 1e6:g}M"
    for array in ("indptr", "indices", "in_degree", "out_degree"):
        np.save(folder / f"{array}.npy", getattr(topology, array))
    seconds, peak = streamed_outside(folder)
    rows = [described(name, "ldg", topology, np.load(folder / "part_of.npy"), seconds) | {"anonymous_bytes": peak}]
    print(f"{'':>26} anonymous memory at most {peak / 2**30:.2f} GiB, libraries included, beside the mapped graph")
    rows.append(described(name, "random", topology, random_parts(num_nodes, PARTS, 1), 0.0))
    rows.append(timed(name, "metis-contracted", topology, folder))
    if with_metis:
        try:
            rows.append(timed(name, "metis", topology, folder))
        except TimeoutError:
            print(f"{name} METIS did not end in {METIS_SECONDS} s")
    return rows


def streamed_outside(folder: Path) -> tuple[float, int]:
    """Returns seconds of the stream and the most anonymous bytes that its process had."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True)
    peak = 0
    while child.poll() is None:
        for line in Path(f"/proc/{child.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                peak = max(peak, int(line.split()[1]) * 1024)
        time.sleep(0.02)
    assert child.returncode == 0 and child.stdout is not None
    return float(child.stdout.read()), peak


def mapped(folder: str) -> Topology:
    """Opens a graph that was saved, mapped."""
    names = ("indptr", "indices", "in_degree", "out_degree")
    return Topology(**{name: np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in names})


def described(graph: str, method: str, topology: Topology, part_of: Array, seconds: float) -> dict[str, Any]:
    """Checks a partition, and returns and prints how good it is."""
    assert part_of.shape == (topology.num_nodes,) and 0 <= part_of.min() <= part_of.max() < PARTS
    cut = cut_matrix(topology.indptr, topology.indices, part_of, PARTS)
    assert cut.sum() == topology.num_edges
    replicas = count_replicas(topology.indptr, topology.indices, part_of, PARTS)
    even = balances(topology, np.zeros(topology.num_nodes, bool), PARTS, part_of)
    row: dict[str, Any] = {
        "graph": graph, "method": method, "nodes": topology.num_nodes, "edges": topology.num_edges,
        "edge_cut": round(1 - float(np.trace(cut)) / topology.num_edges, 4), "replication": round(replicas / topology.num_nodes, 3),
        "balance_nodes": round(even[0], 3), "balance_edges": round(even[1], 3), "seconds": round(seconds, 2),
    }  # fmt: skip
    print(
        f"{graph:>16} {method:>7}: {100 * row['edge_cut']:5.1f} % cut, {row['replication']:.2f} copies per node, largest part "
        f"{row['balance_nodes']:.2f} of the mean in nodes, {row['balance_edges']:.2f} in edges; {seconds:.1f} s"
    )
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    main(quick=False, cases=parser.parse_args().cases)
