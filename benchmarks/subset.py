"""What exact inference of some nodes computes, counted, against all nodes (trainers/inference/needed.py).

R-MAT of 2M nodes and 33M edges with 1% labelled nodes: the sets that a model of two and of three layers needs for the validation nodes,
which each epoch asks for, and for all labelled ones. A row is an output row of a layer for which a neighbourhood is gathered. The sets are
those of a plain walk over the edges, which is checked first.
"""

from __future__ import annotations

import tempfile
import time

import numpy as np

from benchmarks.record import record
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.types import Array, Topology
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.needed import find_needed
from tests.graphs import build_graph

QUICK = {"nodes": 50_000, "edges": 400_000}
FULL = {"nodes": 2_000_000, "edges": 16_500_000}
LAYERS = (2, 3)


def main(quick: bool) -> None:
    """Counts, compares, prints and records."""
    size, found = (QUICK if quick else FULL), []
    with tempfile.TemporaryDirectory() as home:
        made = {"features": 4, "classes": 16, "labelled": 0.01, "train_ratio": 0.6, "valid_ratio": 0.2}
        graph = build_graph(Store(home), config_class("rmat")(**size, **made)).open()  # pyright: ignore
        topology = graph.topology
        nodes, edges = topology.num_nodes, topology.num_edges
        splits = {"validation": graph.valid_ids, "labelled": np.flatnonzero(np.asarray(graph.labels) >= 0)}
        bounds = Bounds(workspace_bytes=2**28, threads=2)
        for layers in LAYERS:
            for name, wanted in splits.items():
                wanted, started = np.asarray(wanted), time.perf_counter()
                needed = find_needed(bounds.whole(topology), topology.indptr, wanted, layers, 2**27)
                seconds = time.perf_counter() - started
                assert needed.num_nodes == walked(topology, wanted, layers), "the sets are not those of a walk"
                rows, walks = sum(needed.num_nodes[1:]), sum(needed.num_edges)
                row = {"layers": layers, "nodes": name, "wanted": len(wanted), "num_nodes": needed.num_nodes}
                row |= {"num_edges": needed.num_edges, "rows_ratio": round(rows / (layers * nodes), 4)}
                row |= {"edges_ratio": round(walks / (layers * edges), 4), "seconds": round(seconds, 3)}
                found.append(row)
                print(
                    f"{layers} layers, {len(wanted):,} {name} nodes: features of {needed.num_nodes[0]:,} nodes; rows {rows:,} of "
                    f"{layers * nodes:,} ({row['rows_ratio']:.1%}), edges {walks:,} of {layers * edges:,} ({row['edges_ratio']:.1%}); "
                    f"sets in {seconds:.2f} s"
                )
    scale = {"scale": "quick" if quick else "full", "graph": size, "num_nodes": nodes, "num_edges": edges}
    record("subset", scale | {"runs": found})


def walked(topology: Topology, wanted: Array, layers: int) -> tuple[int, ...]:
    """Returns the sizes of the sets, from below, by one pass over all edges per layer."""
    marked = np.zeros(topology.num_nodes, bool)
    marked[wanted] = True
    sizes, degrees = [int(marked.sum())], np.diff(topology.indptr)
    for _ in range(layers):
        marked[np.asarray(topology.indices)[np.repeat(marked, degrees)]] = True
        sizes.insert(0, int(marked.sum()))
    return tuple(sizes)
