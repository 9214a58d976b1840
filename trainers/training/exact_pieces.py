"""Measures what an exact evaluation takes for the columns of a row and of an edge, on a part of a graph that is small enough.

The evaluation of trainers/inference/exact.py runs on some nodes whose rows lie in memory: without edges, and with the edges of the first of
them. Sources are the graph's own modulo the number of these nodes. A prediction then needs nothing but counts of rows and edges.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from graphmill.kernels.types import Array, Topology
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.own import Model
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.evaluation import edge_elements, row_elements
from graphmill.trainers.rows.source import TableSource

MOST_EDGES, WORKSPACE_BYTES = 2_000_000, 1 << 40
"""Edges of the part, and bytes of a workspace that nothing exceeds: the bounds take half of the free memory if that is less."""
REPEATS = 2
"""Times that each evaluation runs; the shorter one counts."""


def measure_exact(case: Case, topology: Topology, model: Model, most_bytes: int) -> tuple[float, float]:
    """Returns the seconds of an exact evaluation for an input column of a row, and for a summed column of an edge.

    Those of a user's module over whole blocks, which exposes no layers, are not measured: 0.

    Args:
        case: the training.
        topology: the graph that its batches are drawn of.
        model: the model.
        most_bytes: bytes that rows may take.
    """
    if not isinstance(model, LayeredModel):
        return 0.0, 0.0
    train, width = case.semantic.train, case.sizes.width
    count = max(1, min(topology.num_nodes, most_bytes // max(1, 4 * width)))
    rows, layers = np.ones((count, width), np.float32), train.layers
    last = int(np.searchsorted(topology.indptr[: count + 1], MOST_EDGES, side="right")) - 1
    ends = np.minimum(np.asarray(topology.indptr[: count + 1]), topology.indptr[last])
    parts = [_part(topology, each, count) for each in (np.zeros_like(ends), ends)]
    without, whole = (_seconds(model, part, rows, case.threads) for part in parts)
    edges = edge_elements(train, width, case.num_classes, [parts[1].num_edges] * layers)
    of_rows = without / max(1, row_elements(train, width, case.num_classes, [count] * (layers + 1)))
    return of_rows, max(0.0, whole - without) / max(1, edges)


def _part(topology: Topology, ends: Array, count: int) -> Topology:
    """Returns the first nodes of a graph, with the edges up to `ends`, i64[count + 1]; types of nodes stay where they are."""
    edges = slice(0, int(ends[-1]))
    taken = {name: each[edges] for name in ("weights", "edge_types") if (each := getattr(topology, name)) is not None}
    return replace(
        topology,
        indptr=ends,
        indices=np.asarray(topology.indices[edges]) % count,
        in_degree=topology.in_degree[:count],
        out_degree=topology.out_degree[:count],
        edge_ids=None,
        **taken,
    )


def _seconds(model: Model, part: Topology, rows: Array, threads: int) -> float:
    found = []
    for _ in range(REPEATS):
        bounds = Bounds(workspace_bytes=WORKSPACE_BYTES, threads=threads)
        inference = Inference(model, part, TableSource(rows, False, threads), bounds)
        started = time.perf_counter()
        inference.exact()
        found.append(time.perf_counter() - started)
    return min(found)
