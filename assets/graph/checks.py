"""What is measured and tested on a compressed graph, slice by slice.

Peak memory: about 20 bytes per edge of one slice (4 Mi edges, or the longest row), and 8 bytes per node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from assets.building.stage import Check
from assets.sources.splits import split_problems
from assets.storage.arrays import forget_pages
from kernels.types import Array, Topology

SLICE_EDGES = 4 << 20


def row_slices(indptr: Array, slice_edges: int = SLICE_EDGES) -> Iterator[tuple[int, int]]:
    """Yields (first node, end node) ranges that cover all rows, with about `slice_edges` edges, or one longer row,
    each.
    """
    low, num_nodes = 0, len(indptr) - 1
    while low < num_nodes:
        high = int(np.searchsorted(indptr, indptr[low] + slice_edges, side="right")) - 1
        high = min(max(high, low + 1), num_nodes)
        yield low, high
        low = high


def topology_checks(topology: Topology, *, merged: bool) -> list[Check]:
    """Tests the compressed columns.

    Args:
        topology: the graph.
        merged: whether duplicates were merged, so that each row must be strictly ascending.
    """
    indptr, indices, num_nodes = topology.indptr, topology.indices, topology.num_nodes
    falls = np.flatnonzero(np.diff(indptr) < 0)
    monotone = not len(falls) and indptr[0] == 0 and indptr[-1] == len(indices)
    checks = [
        Check(name="has edges", passed=len(indices) > 0, detail=f"{len(indices)} edges after loops and duplicates"),
        Check(name="indptr is monotone", passed=bool(monotone), detail=f"{len(falls)} falls, ends at {indptr[-1]}"),
    ]
    if not monotone:
        return checks
    outside, unsorted, types = 0, 0, topology.edge_types
    for low, high in row_slices(indptr):
        row = indices[indptr[low] : indptr[high]]
        outside += int(np.count_nonzero((row < 0) | (row >= num_nodes)))
        wrong = row[1:] <= row[:-1] if merged else row[1:] < row[:-1]
        if types is not None:
            kind = types[indptr[low] : indptr[high]]
            wrong = (kind[1:] < kind[:-1]) | ((kind[1:] == kind[:-1]) & wrong)
            forget_pages(types)
        starts = np.zeros(len(row) + 1, bool)
        starts[indptr[low:high] - indptr[low]] = True
        unsorted += int(np.count_nonzero(wrong & ~starts[1 : len(row)]))
        forget_pages(indices)
    checks.append(Check(name="ids are in range", passed=outside == 0, detail=f"{outside} ids outside [0, {num_nodes})"))
    checks.append(Check(name="rows are sorted", passed=unsorted == 0, detail=f"{unsorted} entries out of order"))
    if topology.weights is not None:
        finite = all(np.isfinite(topology.weights[indptr[a] : indptr[b]]).all() for a, b in row_slices(indptr))
        checks.append(
            Check(name="weights are finite", passed=finite, detail="" if finite else "a sum overflows float32")
        )
    return checks


def node_checks(labels: Array, num_classes: int, parts: tuple[Array, Array, Array]) -> list[Check]:
    """Tests labels i32[N] and the split."""
    outside = int(np.count_nonzero((labels < -1) | (labels >= num_classes)))
    problems = list(split_problems(parts, labels))
    return [
        Check(name="labels are in range", passed=outside == 0, detail=f"{outside} labels outside [-1, {num_classes})"),
        Check(name="splits are disjoint", passed=not problems, detail="; ".join(problems)),
    ]


def homophily(topology: Topology, labels: Array) -> tuple[int, int]:
    """Returns (edges between equal labels, edges between known labels)."""
    equal, known = 0, 0
    for low, high in row_slices(topology.indptr):
        source = labels[topology.indices[topology.indptr[low] : topology.indptr[high]]]
        target = np.repeat(labels[low:high], np.diff(topology.indptr[low : high + 1]))
        both = (source >= 0) & (target >= 0)
        known += int(np.count_nonzero(both))
        equal += int(np.count_nonzero(both & (source == target)))
        forget_pages(topology.indices)
    return equal, known


def describe(
    topology: Topology, labels: Array, class_names: Sequence[str], parts: tuple[Array, Array, Array]
) -> dict[str, Any]:
    """Returns the numbers of the summary: sizes, degrees, classes, homophily."""
    equal, known = homophily(topology, labels)
    counts = np.bincount(labels[labels >= 0], minlength=len(class_names))
    in_degree, out_degree = topology.in_degree, topology.out_degree
    quantiles = np.quantile(in_degree, [0, 0.25, 0.5, 0.75, 0.99, 1], method="lower") if len(in_degree) else np.zeros(6)
    return {
        "num_nodes": topology.num_nodes,
        "num_edges": topology.num_edges,
        "num_classes": len(class_names),
        "class_names": list(class_names),
        "class_counts": counts.tolist(),
        "num_labelled": int(counts.sum()),
        "num_train": len(parts[0]),
        "num_valid": len(parts[1]),
        "num_test": len(parts[2]),
        "in_degree_quantiles": dict(zip(("min", "25%", "50%", "75%", "99%", "max"), quantiles.tolist(), strict=True)),
        "num_isolated": int(np.count_nonzero((in_degree == 0) & (out_degree == 0))),
        "homophily_ratio": equal / known if known else -1.0,
        "topology_bytes": topology.indptr.nbytes + topology.indices.nbytes,
    }
