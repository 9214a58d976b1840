"""Seconds and device memory of a full-graph epoch by the number of chunks: 1, 2, 3 and 4 times as many (HongTu, Figure 10).

GCN of two layers, four parts, +RU, on the modelled links of benchmarks/fullgraph.py without overlap. Memory is the most that one of four
devices holds at once, counted by logical devices; rows from the host are those of a pass, counted by sets. Gradients are first compared
with those of a pass that is not cut.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.charts import line_chart
from benchmarks.chunks import Graph
from benchmarks.fullgraph import HOST_GBPS, PARTS, PEER_GBPS, THREADS, Case, InMemory
from benchmarks.fullgraph_breakdown import needed_rows
from benchmarks.record import interleave, record
from benchmarks.whole_graphs import grid, parts_of, rmat, sbm
from graphmill.assets.building.stage import Silent
from graphmill.assets.chunks.build import cut_in_order
from graphmill.assets.chunks.config import ChunksConfig, ChunksTable
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.series import Series
from graphmill.kernels.chunks.schedule import choose_schedule
from graphmill.kernels.chunks.sets import neighbour_sets, shared_sets
from graphmill.kernels.chunks.steps import iterate_steps
from graphmill.kernels.types import Array, Topology

LEAST, TIMES = 4, (1, 2, 3, 4)
"""Chunks per part, and how many times as many."""
GRAPHS = (
    Graph("R-MAT", lambda home: rmat(16)),
    Graph("SBM, METIS", lambda home: sbm(60_000), "metis", "metis"),
    Graph("grid", lambda home: grid(256)),
)
QUICK = (Graph("R-MAT", lambda home: rmat(12)),)


def main(quick: bool) -> None:
    """Measures all graphs and records a row."""
    torch.set_num_threads(THREADS)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for graph in QUICK if quick else GRAPHS:
            rows += measured(graph, Path(folder))
    found = {"scale": "quick" if quick else "full", "parts": PARTS, "links_gbps": [HOST_GBPS, PEER_GBPS], "rows": rows}
    record("fullgraph_chunks", found, ("torch", "numpy", "pymetis"))


def measured(graph: Graph, folder: Path) -> list[dict[str, Any]]:
    """Returns a row for each number of chunks; they take turns in drawn order."""
    topology = graph.make(folder)
    assert topology is not None
    case, part_of = Case(topology, "gcn"), parts_of(topology, PARTS, graph.method, folder)
    counts = [LEAST * times for times in TIMES]
    steps = {count: cut_steps(graph, topology, part_of, count, folder) for count in counts}
    runs = {str(count): case.compared(case.cut(made, linked=True, overlap=False)) for count, made in steps.items()}
    seconds = interleave(runs, 3)
    rows = []
    for count in counts:
        places = runs[str(count)].whole.mover.places
        row = {"graph": graph.name, "nodes": topology.num_nodes, "edges": topology.num_edges, "chunks": count}
        row |= {"seconds": round(float(np.median(seconds[str(count)])), 4)}
        row |= {"device_bytes": max(place.device.peak["total"] for place in places)}
        rows.append(row | {"needed_rows": needed_rows(steps[count])["p2p+reuse"]})
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    return rows


def cut_steps(graph: Graph, topology: Topology, part_of: Array, count: int, folder: Path) -> InMemory:
    """Returns the steps of a graph whose parts are cut into a number of chunks each."""
    config = ChunksConfig(table=ChunksTable(chunks_per_part=count, order=graph.order), seed=1)  # type: ignore[arg-type]
    chunks = cut_in_order(topology, part_of, PARTS, config, folder, Silent(), THREADS)
    bits = neighbour_sets(topology.indptr, topology.indices, chunks, self_term=True, threads=THREADS)
    schedule = choose_schedule(shared_sets(bits, threads=THREADS), PARTS, "best", threads=THREADS).schedule
    return InMemory(
        list(
            iterate_steps(topology.indptr, topology.indices, part_of, chunks, schedule, self_term=True, threads=THREADS)
        )
    )


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws memory and seconds over the number of chunks (HongTu, Figure 10)."""
    last = [row for row in rows if row["scale"] == "full"][-1]["rows"]
    graphs = list(dict.fromkeys(row["graph"] for row in last))
    found = []
    for key, label, title in (
        ("device_bytes", "device memory, of 1x", "Device memory by the number of chunks"),
        ("seconds", "seconds, of 1x", "Seconds of an epoch by the number of chunks"),
    ):
        curves = [relative([row for row in last if row["graph"] == name], name, key) for name in graphs]
        says = f"GCN on three graphs, 4 parts; 1x is {LEAST} chunks per part."
        axes = {"x_label": "chunks, times the fewest", "y_label": label}
        name = f"hongtu-chunks-{'memory' if key == 'device_bytes' else 'seconds'}"
        found.append(line_chart(name, title, says, curves, ticks=TIMES, **axes))
    return found


def relative(rows: Sequence[dict[str, Any]], name: str, key: str) -> Series:
    """Returns the values of a graph's rows over those of the fewest chunks."""
    first = rows[0]
    return Series(
        label=name, x=[row["chunks"] / first["chunks"] for row in rows], y=[row[key] / first[key] for row in rows]
    )
