"""Measures and tests a compressed graph, slice by slice.

Peak memory: about 20 bytes per edge of one slice (4 Mi edges, or the longest row), and 8 bytes per node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Check
from graphmill.assets.sources.splits import split_problems
from graphmill.assets.sources.targets import CLASSIFIES
from graphmill.assets.storage.files.arrays import forget_pages
from graphmill.assets.storage.files.schema import plain
from graphmill.assets.storage.files.stage_numbers import NUMBERS
from graphmill.assets.storage.names.version import canonical
from graphmill.assets.tasks.labels import column_counts, column_words, kind_of, labelled
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.types import Array, Topology

SLICE_EDGES = 1 << 20
OF_SOURCES = ("edge_types", "node_types", "num_ids_of_both_ends", "num_dropped_edges")
"""Numbers of the stage that a source counts; the build counts the others."""


def require_numbers(numbers: Mapping[str, Any], source: str) -> None:
    """Requires the numbers that a source publishes to leave those of the stage as they are.

    Raises:
        InputError: a number has the name of one that the build counts, another type than readers of the graph expect, or no JSON form.
    """
    for name, value in numbers.items():
        known = NUMBERS["graph"].check_of(name)
        if known is not None and name not in OF_SOURCES:
            problem = f"the source {source} publishes the number {name}, which the build counts itself"
            raise InputError(problem, "give it another name in `numbers` of the source")
        try:
            (known or plain)(canonical(value), f"its number {name}")
        except (TypeError, ValueError) as error:
            remedy = "give it a value of that kind, or another name, in `numbers` of the source"
            raise InputError(f"the source {source} publishes what no graph has: {error}", remedy) from error


def row_slices(indptr: Array, slice_edges: int = SLICE_EDGES) -> Iterator[tuple[int, int]]:
    """Yields (first node, end node) ranges that cover all rows, with about `slice_edges` edges, or one longer row, each."""
    low, num_nodes = 0, len(indptr) - 1
    while low < num_nodes:
        high = int(np.searchsorted(indptr, indptr[low] + slice_edges, side="right")) - 1
        high = min(max(high, low + 1), num_nodes)
        yield low, high
        low = high


def topology_checks(topology: Topology, *, merged: bool) -> list[Check]:
    """Tests the compressed columns.

    Args:
        merged: whether duplicates were merged, so that each row must be strictly ascending.
    """
    indptr, num_edges = topology.indptr, len(topology.indices)
    falls = sum(
        int(np.count_nonzero(np.diff(indptr[low : high + 1]) < 0)) for low, high in node_ranges(len(indptr) - 1)
    )
    monotone = falls == 0 and indptr[0] == 0 and indptr[-1] == num_edges
    checks = [
        Check(
            name="has edges",
            passed=num_edges > 0,
            detail=f"{num_edges:,} edges after loops and duplicates, into {topology.num_nodes:,} nodes",
            numbers={"edges": num_edges, "fewest allowed, edges": 1},
        ),
        Check(
            name="indptr is monotone",
            passed=bool(monotone),
            detail=f"{falls:,} falls among {len(indptr):,} row starts, which begin at {indptr[0]:,} and end at {indptr[-1]:,} "
            f"of {num_edges:,} edges",
            numbers={"falls": falls, "falls allowed": 0, "last row ends at, edges": int(indptr[-1]), "stored, edges": num_edges},
        ),
    ]  # fmt: skip
    if not monotone:
        return checks
    return [*checks, *_row_checks(topology, merged)]


class _Rows:
    """The findings of a pass over the rows of a topology.

    Attributes:
        outside, unsorted, overflowing: numbers of ids outside the graph, of entries out of order, and of weights that are not finite.
    """

    def __init__(self, topology: Topology, merged: bool):
        self.topology, self.merged = topology, merged
        self.outside = self.unsorted = self.overflowing = 0
        self.smallest, self.largest = topology.num_nodes, -1
        for low, high in row_slices(topology.indptr):
            if topology.indptr[low] < topology.indptr[high]:
                self._look(low, high)

    def _look(self, low: int, high: int) -> None:
        indptr, types, weights = self.topology.indptr, self.topology.edge_types, self.topology.weights
        row = self.topology.indices[indptr[low] : indptr[high]]
        self.outside += int(np.count_nonzero((row < 0) | (row >= self.topology.num_nodes)))
        self.smallest, self.largest = min(self.smallest, int(row.min())), max(self.largest, int(row.max()))
        wrong = row[1:] <= row[:-1] if self.merged else row[1:] < row[:-1]
        if self.topology.edge_times is not None:
            time = self.topology.edge_times[indptr[low] : indptr[high]]
            wrong = (time[1:] < time[:-1]) | ((time[1:] == time[:-1]) & wrong)
            forget_pages(self.topology.edge_times)
        if types is not None:
            kind = types[indptr[low] : indptr[high]]
            wrong = (kind[1:] < kind[:-1]) | ((kind[1:] == kind[:-1]) & wrong)
            forget_pages(types)
        if weights is not None:
            self.overflowing += int(np.count_nonzero(~np.isfinite(weights[indptr[low] : indptr[high]])))
        starts = np.zeros(len(row) + 1, bool)
        starts[indptr[low:high] - indptr[low]] = True
        self.unsorted += int(np.count_nonzero(wrong & ~starts[1 : len(row)]))
        forget_pages(self.topology.indices)


def _row_checks(topology: Topology, merged: bool) -> Iterator[Check]:
    rows, num_nodes, num_edges = _Rows(topology, merged), topology.num_nodes, len(topology.indices)
    largest = f"; the largest is {rows.largest:,}" if num_edges else ""
    yield Check(
        name="ids are in range",
        passed=rows.outside == 0,
        detail=f"every one of {num_edges:,} neighbour ids is below {num_nodes:,}, the number of nodes{largest}"
        if rows.outside == 0
        else f"{rows.outside:,} of {num_edges:,} neighbour ids are outside [0, {num_nodes:,}): "
        f"they go from {rows.smallest:,} to {rows.largest:,}",
        numbers={"largest id": rows.largest, "number of nodes": num_nodes, "ids outside": rows.outside},
    )
    order = "strictly ascending" if merged else "ascending"
    yield Check(
        name="rows are sorted",
        passed=rows.unsorted == 0,
        detail=f"the neighbours of each of {num_nodes:,} nodes are {order}: {rows.unsorted:,} of {num_edges:,} entries out of order"
        if rows.unsorted == 0
        else f"{rows.unsorted:,} of {num_edges:,} entries out of order, where the neighbours of each node must be {order}",
        numbers={"entries out of order": rows.unsorted, "allowed out of order": 0},
    )
    if topology.weights is not None:
        yield Check(
            name="weights are finite",
            passed=rows.overflowing == 0,
            detail=f"{rows.overflowing:,} of {num_edges:,} edge weights are NaN or infinite"
            + (": a sum of duplicates overflows float32" if rows.overflowing else ""),
            numbers={"weights not finite": rows.overflowing, "allowed not finite": 0},
        )


SHARED = "nodes share classes"
CLASS_NODES, LEAST_CLASSES = 10, 20
"""Labelled nodes per class below which labels do not look like classes; graphs of few nodes may have so many classes."""


def node_checks(labels: Array, num_classes: int, parts: tuple[Array, Array, Array]) -> list[Check]:
    """Tests the labels of N nodes (assets/tasks/labels.py) and the split."""
    problems, sizes = list(split_problems(parts, labels)), [len(part) for part in parts]
    split = f"{sizes[0]:,} training, {sizes[1]:,} validation and {sizes[2]:,} test nodes"
    return [
        _range_check(labels, num_classes) if labels.ndim == 1 else _values_check(labels),
        Check(
            name="splits are disjoint",
            passed=not problems,
            detail="; ".join(problems) or f"{split}: none is in two parts, twice in one or without a label",
            numbers={"nodes of all parts": sum(sizes), "different nodes of all parts": len(np.unique(np.concatenate(parts)))},
        ),
        *label_checks(labels, num_classes),
    ]  # fmt: skip


def _range_check(labels: Array, num_classes: int) -> Check:
    """Tests classes i32[N]."""
    outside = unknown = 0
    for low, high in node_ranges(len(labels)):
        part = labels[low:high]
        outside += int(np.count_nonzero((part < -1) | (part >= num_classes)))
        unknown += int(np.count_nonzero(part == -1))
    largest = int(labels.max(initial=-1))
    return Check(
        name="labels are in range",
        passed=outside == 0,
        detail=f"{len(labels) - unknown:,} of {len(labels):,} nodes have a label, each below {num_classes:,}, the number of classes"
        if outside == 0
        else f"{outside:,} of {len(labels):,} labels are outside [-1, {num_classes:,})",
        numbers={"largest label": largest, "number of classes": num_classes, "labels outside": outside},
    )


def _values_check(labels: Array) -> Check:
    """Tests several labels i8[N, C], which are 0, 1 or -1, or targets f32[N, T], which are finite or NaN."""
    outside = known = 0
    for low, high in node_ranges(len(labels)):
        part = labels[low:high]
        wrong = (part < -1) | (part > 1) if part.dtype.kind == "i" else np.isinf(part)
        outside += int(np.count_nonzero(wrong))
        known += int(np.count_nonzero(labelled(part)))
    columns = column_words(kind_of(labels), labels.shape[1])
    return Check(
        name="labels are in range",
        passed=outside == 0,
        detail=f"{known:,} of {len(labels):,} nodes have values of {columns}; {outside:,} values are out of range",
        numbers={"labels outside": outside, "labels outside allowed": 0},
    )


def label_checks(labels: Array, num_classes: int) -> list[Check]:
    """Returns the warnings about labels: whether classes are shared; none for other kinds."""
    return [_classes_check(labels, num_classes)] if labels.ndim == 1 else []


def _classes_check(labels: Array, num_classes: int) -> Check:
    """Warns of labels i32[N] that are numbers, dates or ids rather than classes: hardly two nodes share one."""
    filled, num_labelled = np.zeros(max(1, num_classes), bool), 0
    for low, high in node_ranges(len(labels)):
        part = labels[low:high]
        filled[part[(part >= 0) & (part < num_classes)]] = True
        num_labelled += int(np.count_nonzero(part >= 0))
    found = int(np.count_nonzero(filled))
    most = max(min(LEAST_CLASSES, max(CLASS_NODES, num_labelled) // 2), num_labelled // CLASS_NODES)
    return Check(
        name=SHARED,
        passed=found <= most,
        detail=f"{found:,} classes for {num_labelled:,} labelled nodes" + ("" if found <= most else f"; {CLASSIFIES}"),
        numbers={"number of classes": found, "most classes": most},
        blocking=False,
    )


def homophily(topology: Topology, labels: Array) -> tuple[int, int]:
    """Returns (edges between equal labels, edges between known labels)."""
    equal, known = 0, 0
    if labels.ndim > 1 or labels.max(initial=-1) < 0:
        return equal, known  # no edge to look at
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
    counts, isolated, num_labelled = np.zeros(len(class_names), np.int64), 0, 0
    for low, high in node_ranges(len(labels)):
        found = column_counts(labels[low:high], len(counts))  # of labels outside the classes as well
        counts = np.pad(counts, (0, max(0, len(found) - len(counts))))
        counts[: len(found)] += found
        num_labelled += int(np.count_nonzero(labelled(labels[low:high])))
        isolated += int(np.count_nonzero((topology.in_degree[low:high] == 0) & (topology.out_degree[low:high] == 0)))
    in_degree = topology.in_degree
    quantiles = np.quantile(in_degree, [0, 0.25, 0.5, 0.75, 0.99, 1], method="lower") if len(in_degree) else np.zeros(6)
    return {
        "num_nodes": topology.num_nodes,
        "num_edges": topology.num_edges,
        "num_classes": len(class_names),
        "class_names": list(class_names),
        "class_counts": counts.tolist(),
        "num_labelled": num_labelled,
        "num_train": len(parts[0]),
        "num_valid": len(parts[1]),
        "num_test": len(parts[2]),
        "in_degree_quantiles": dict(zip(("min", "25%", "50%", "75%", "99%", "max"), quantiles.tolist(), strict=True)),
        "num_isolated": isolated,
        "homophily_ratio": equal / known if known else -1.0,
        "topology_bytes": topology.indptr.nbytes + topology.indices.nbytes,
    }
