"""Parts of a graph: edge cut, replication and balance by method, and the seconds that each takes (HongTu, section 4.1 and Table 3).

Every partition is first checked: each node has one part, and the matrix of edges between parts has as many edges as the graph. The
streaming partitioner runs on an R-MAT graph in a process of its own, whose peak memory is read from outside; METIS beside it where it
ends in ten minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from assets.building.stage import Silent
from assets.partitions.assign import LDG_PASSES, balanced_pass, balances, random_parts, range_parts
from assets.partitions.config import PartitionsConfig
from assets.partitions.metis import metis_parts
from benchmarks.record import record
from benchmarks.whole_graphs import made_topology, sbm
from kernels.chunks.ldg import count_replicas, cut_matrix
from kernels.graph.generate import rmat_edges
from kernels.types import Array, Topology

PARTS = 4
QUICK, FULL = (100_000, 1_600_000), (8_000_000, 128_000_000)
METIS_SECONDS = 600
CHILD = """
import sys, time, resource
import numpy as np
from benchmarks.partitions import ldg_parts, mapped
folder = sys.argv[1]
topology = mapped(folder)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.perf_counter()
part_of = ldg_parts(topology, np.zeros(topology.num_nodes, bool))
seconds = time.perf_counter() - started
anonymous = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")][0]
np.save(f"{folder}/part_of.npy", part_of)
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, before * 1024, anonymous * 1024)
"""


def main(quick: bool) -> None:
    """Measures the methods on a planted partition, and the stream on R-MAT."""
    rows = []
    graph = sbm(20_000 if quick else 400_000)
    with tempfile.TemporaryDirectory() as folder:
        for method in ("random", "range", "ldg", "metis"):
            started = time.perf_counter()
            part_of = parts(method, graph, Path(folder))
            rows.append(described("SBM", method, graph, part_of, time.perf_counter() - started))
        rows += streamed(*(QUICK if quick else FULL), Path(folder), quick)
    record("partitions", {"scale": "quick" if quick else "full", "parts": PARTS, "cases": rows}, ("numpy", "pymetis"))


def parts(method: str, topology: Topology, folder: Path) -> Array:
    """Returns i32[N] by a method."""
    trained = np.zeros(topology.num_nodes, bool)
    if method == "metis":
        config = PartitionsConfig(method="metis", parts=PARTS, seed=1)
        return metis_parts(topology, trained, config, folder, Silent(), 2)
    if method == "ldg":
        return ldg_parts(topology, trained)
    return range_parts(topology, PARTS) if method == "range" else random_parts(topology.num_nodes, PARTS, 1)


def ldg_parts(topology: Topology, trained: Array) -> Array:
    """Returns i32[N] after all passes of the stream."""
    part_of = None
    for _ in range(LDG_PASSES):
        part_of = balanced_pass(topology, trained, PARTS, part_of)
    assert part_of is not None
    return part_of


def streamed(num_nodes: int, num_edges: int, folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Returns the rows of R-MAT: the stream in a process of its own, and METIS in what time it is given."""
    topology = made_topology(*rmat_edges(num_nodes, num_edges, 1, threads=2), num_nodes)
    for name in ("indptr", "indices", "in_degree", "out_degree"):
        np.save(folder / f"{name}.npy", getattr(topology, name))
    found = subprocess.run([sys.executable, "-c", CHILD, str(folder)], capture_output=True, text=True, check=True)
    seconds, peak, before, anonymous = (float(word) for word in found.stdout.split())
    row = described("R-MAT", "ldg", topology, np.load(folder / "part_of.npy"), seconds)
    row |= {"peak_bytes": int(peak), "bytes_before": int(before), "anonymous_bytes": int(anonymous)}
    print(f"{'':>16} peak {peak / 2**30:.2f} GiB with the mapped graph, {anonymous / 2**30:.2f} GiB its own at the end")
    rows, started = [row], time.perf_counter()
    if quick:
        rows.append(
            described("R-MAT", "metis", topology, parts("metis", topology, folder), time.perf_counter() - started)
        )
    return rows


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
        f"{graph:>8} {method:>7}: {100 * row['edge_cut']:5.1f} % cut, {row['replication']:.2f} copies per node, largest part "
        f"{row['balance_nodes']:.2f} of the mean in nodes, {row['balance_edges']:.2f} in edges; {seconds:.1f} s"
    )
    return row
