"""Parts of a graph: edge cut, replication and balance by method, and the seconds that each takes (HongTu, section 4.1 and Table 3).

Every partition is first checked: each node has one part, and the matrix of edges between parts has as many edges as the graph. On R-MAT
and on large nested communities the methods for graphs that METIS is too large for run in a process of their own, whose anonymous memory,
with that of METIS on clusters, is read from outside while it runs, and must stay within what `graphmill inspect` says; METIS stands beside
them where it ends in `METIS_SECONDS`. `python -m benchmarks.partitions --cases sbm` measures some of the cases.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.record import record
from benchmarks.whole_graphs import made_topology, nested, sbm
from graphmill.assets.building.stage import Silent
from graphmill.assets.costs.needs import Sizes
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
from graphmill.assets.partitions.config import PartitionsConfig, PartitionsTable
from graphmill.assets.partitions.metis import metis_parts
from graphmill.assets.partitions.stage import partitions_need
from graphmill.assets.storage.files.arrays import scratch_arrays
from graphmill.kernels.chunks.ldg import count_replicas, cut_matrix
from graphmill.kernels.graph.generate import rmat_edges
from graphmill.kernels.types import Array, Topology

PARTS = 4
CONTRACTED = "metis-contracted"
METIS_SECONDS = 600
CASES = {
    "sbm": 400_000,
    "nested": (1_000_000, 10_000_000),
    "rmat-1m": (1_000_000, 16_000_000, True),
    "rmat-8m": (8_000_000, 128_000_000, False),
    "nested-8m": (8_000_000, 64_000_000, False),
}
"""Nodes of the planted partition; nodes and edges of nested communities; those of R-MAT or of large nested communities, and whether METIS
is tried (it takes twelve times the symmetrised graph)."""
QUICK = {
    "sbm": 20_000, "nested": (20_000, 200_000), "rmat": (100_000, 1_600_000, True), "nested-100k": (100_000, 800_000, True),
}  # fmt: skip
CONTRACT_TO = 700_000
"""Clusters of the large graphs: 2 GiB in all for 8M nodes."""
CHILD = """
import sys, time
from pathlib import Path
import numpy as np
from benchmarks.partitions import mapped, parts
method, folder, undirected = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "True"
topology = mapped(folder)
started = time.perf_counter()
part_of = parts(method, topology, folder, undirected, contract_to=int(sys.argv[4]) or None)
seconds = time.perf_counter() - started
np.save(folder / "part_of.npy", part_of)
print(seconds)
"""


class Direction(NamedTuple):
    """What a need asks of the configuration of a graph."""

    undirected: bool


class Ending(Silent):
    """A progress that ends METIS when its time is over."""

    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds

    def advance(self, n: int) -> None:
        """Raises `TimeoutError` from its end on."""
        if time.monotonic() > self.end:
            raise TimeoutError


def main(quick: bool, cases: Sequence[str] = tuple(CASES)) -> None:
    """Measures all methods on planted partitions, and those for large graphs apart."""
    rows, sizes = [], QUICK if quick else {name: CASES[name] for name in cases}
    with tempfile.TemporaryDirectory() as folder:
        for name, size in sizes.items():
            if name == "sbm":
                rows += every_method("SBM", sbm(size), Path(folder))
            elif name == "nested":
                rows += every_method("nested communities", nested(*size), Path(folder))
            else:
                rows += streamed(name, *size, Path(folder))
    record("partitions", {"scale": "quick" if quick else "full", "parts": PARTS, "cases": rows}, ("numpy", "pymetis"))


def every_method(name: str, graph: Topology, folder: Path) -> list[dict[str, Any]]:
    """Returns a row for each method."""
    return [timed(name, method, graph, folder, True) for method in ("random", "range", "ldg", CONTRACTED, "metis")]


def timed(name: str, method: str, topology: Topology, folder: Path, undirected: bool) -> dict[str, Any]:
    """Returns the row of a method."""
    started = time.perf_counter()
    part_of = parts(method, topology, folder, undirected)
    return described(name, method, topology, part_of, time.perf_counter() - started)


def parts(method: str, topology: Topology, folder: Path, undirected: bool, contract_to: int | None = None) -> Array:
    """Returns i32[N] by a method."""
    trained = np.zeros(topology.num_nodes, bool)
    if method == "metis":
        config = PartitionsConfig(method="metis", parts=PARTS, seed=1)
        part_of = metis_parts(topology, trained, config, folder, Ending(METIS_SECONDS), 2)
        # As the stage does: a stream moves nodes out of parts that are too full.
        overfull = is_overfull(topology, trained, PARTS, part_of)
        return balanced_pass(topology, measures(topology, trained), PARTS, part_of) if overfull else part_of
    if method in ("ldg", CONTRACTED):
        config = PartitionsConfig(method=method, parts=PARTS, seed=1, contract_to=contract_to)
        part_of = None
        if method == CONTRACTED:
            part_of = contracted_parts(topology, trained, undirected, config, folder, Silent())
        return streamed_parts(topology, trained, PARTS, part_of, scratch_arrays(folder))
    return range_parts(topology, PARTS) if method == "range" else random_parts(topology.num_nodes, PARTS, 1)


def streamed(name: str, num_nodes: int, num_edges: int, with_metis: bool, folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of a graph on which methods run in processes of their own, and METIS where it is tried and ends in time."""
    undirected = name.startswith("nested")
    drawn = None if undirected else rmat_edges(num_nodes, num_edges, 1, threads=2)
    topology = nested(num_nodes, num_edges) if drawn is None else made_topology(*drawn, num_nodes)
    del drawn
    for array in ("indptr", "indices", "in_degree", "out_degree"):
        np.save(folder / f"{array}.npy", getattr(topology, array))
    what = f"{'nested' if undirected else 'R-MAT'} {num_nodes / 1e6:g}M/{topology.num_edges / 1e6:.0f}M"
    rows = [described(what, "random", topology, random_parts(num_nodes, PARTS, 1), 0.0)]
    for method in ("ldg", CONTRACTED):
        contract_to = min(CONTRACT_TO, num_nodes // 10) if method == CONTRACTED else None
        table = PartitionsTable(method=method, parts=PARTS, contract_to=contract_to)
        sizes = Sizes(num_nodes=num_nodes, num_edges=topology.num_edges, configs={"graph": Direction(undirected)})
        most = partitions_need(table, None, sizes).memory_bytes
        seconds, peak = outside(method, folder, undirected, contract_to)
        row = described(what, method, topology, np.load(folder / "part_of.npy"), seconds)
        rows.append(row | {"anonymous_bytes": peak})
        print(f"{'':>26} anonymous memory {peak / 2**30:.2f} GiB, libraries included; {most / 2**30:.2f} were said")
        assert peak <= most, (method, peak, most)
    if with_metis:
        try:
            rows.append(timed(what, "metis", topology, folder, undirected))
        except TimeoutError:
            print(f"{what} METIS did not end in {METIS_SECONDS} s")
    return rows


def outside(method: str, folder: Path, undirected: bool, contract_to: int | None) -> tuple[float, int]:
    """Returns seconds of a method and the most anonymous bytes that its process and those that it starts had."""
    command = [sys.executable, "-c", CHILD, method, str(folder), str(undirected), str(contract_to or 0)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while child.poll() is None:
        peak = max(peak, anonymous(child.pid))
        time.sleep(0.02)
    assert child.returncode == 0 and child.stdout is not None
    return float(child.stdout.read()), peak


def anonymous(process: int) -> int:
    """Returns the anonymous bytes of a process and of those that it has started."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        started = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has ended
        return 0
    own = sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon"))
    return own + sum(anonymous(int(each)) for each in started)


def mapped(folder: Path) -> Topology:
    """Opens a graph that was saved, mapped."""
    names = ("indptr", "indices", "in_degree", "out_degree")
    return Topology(**{name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names})


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
