"""Checks of what a graph may say without meaning it: they warn, and `graphmill inspect` tells them before a build.

Markers for "no node" are nodes, words for "unknown" are classes, numbers of classes have gaps, relations come in both directions, or the
nodes that are trained have no neighbours. Such a graph trains without an error, and its score is worth little.

Peak memory: 8 bytes per edge of one slice, and 16 bytes per node.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphmill.assets.building.stage import Check
from graphmill.assets.graph.checks import SLICE_EDGES
from graphmill.assets.sources.directions import Directions
from graphmill.assets.sources.interface import GraphConfig, RawGraph
from graphmill.assets.sources.markers import (
    LIMITS,
    OF_CLASSES,
    is_bound,
    marked_numbers,
    marked_texts,
    rounded_ids,
    several_labels,
    unlike_others,
    written_alike,
)
from graphmill.assets.sources.splits import PARTS
from graphmill.assets.tasks.relations import REVERSE
from graphmill.kernels.errors import one_line
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.types import Array

KEYS = "columns are what their keys say"
NODES, CLASSES, FILLED = "ids are those of nodes", "class names are those of classes", "every class has nodes"
ONCE, NEIGHBOURS = "edges are stored once", "nodes of the split have neighbours"
REMARKS = {
    KEYS: "The edges do not look like triples whose relation is read as the target, and no name of a relation means none.",
    NODES: "No id looks like a marker for a missing node, such as -1 among ids from 0, None or NaN, which joins all nodes that lack one.",
    CLASSES: "No class has a name for a missing label, such as unknown or n/a.",
    FILLED: "Each class has a node. The output of a model and means over classes have a place for each.",
    ONCE: "Edges that the source has in both directions are not reversed once more by `undirected = true`.",
    NEIGHBOURS: "At most nine tenths of the nodes of a part of the split lack in-edges. A model sees such a node alone.",
}
"""Name of a check -> the sentence about it."""

ABOUT_CLASSES = (CLASSES, FILLED)
"""Checks of graphs whose nodes have a class each."""

LONELY, FEW_NODES = 0.9, 10
"""Share of nodes without in-edges from which a part of the split is told, and nodes of a part below which all must lack them."""
HUB_SHARE, HUB_TIMES, HUB_NODES = (0.2, 0.95), 4, 30
"""Shares of all edges between which node 0 may be a marker, how many times as many as any other node it has, and least number of nodes."""
LEAST_COUNTED, COUNTED_TIMES = 10, 20
"""Least number of nodes of which node 0 is told if no edge names it, and how many times as many as nodes without edges there are."""
LONE_SHARE = 0.5
"""Share of nodes without edges from which the last id of a type of integers is a marker and no count."""


def remarks(
    raw: RawGraph, config: GraphConfig, parts: tuple[Array, Array, Array], in_degree: Array, out_degree: Array
) -> list[Check]:
    """Returns the checks, each passed or not; none blocks.

    Args:
        raw: the source's graph; its edges are not read.
        parts: training, validation and test nodes.
        in_degree, out_degree: integers[N], of the edges that are stored.
    """
    # Of an undirected graph every edge at a node ends in it, too.
    degree = np.asarray(in_degree) if config.undirected else np.asarray(in_degree) + np.asarray(out_degree)
    num_edges = int(np.asarray(in_degree).sum(dtype=np.int64)) // (2 if config.undirected else 1)
    of_classes = [
        (CLASSES, _unknown_classes, "no name of a class means that there is none"),
        (FILLED, _empty_classes, "each class has a node"),
    ]
    return [
        _check(KEYS, [*raw.remarks, *_odd_relations(raw)], "nothing looks like something else"),
        _check(NODES, _marked_nodes(raw, degree, num_edges), "no id looks like a marker"),
        *(_check(name, find(raw), said) for name, find, said in of_classes if raw.labels.ndim == 1),
        _check(ONCE, _both_directions(raw, config), "no edges of both directions are reversed once more"),
        _check(NEIGHBOURS, _lonely(raw, config, parts, in_degree), "the nodes of each part have in-edges"),
    ]


def degrees(raw: RawGraph, config: GraphConfig) -> tuple[Array, Array]:
    """Returns (in, out) i64[N], the numbers of edges of the nodes before duplicates are merged."""
    found = np.zeros(raw.num_nodes, np.int64), np.zeros(raw.num_nodes, np.int64)
    for src, dst, _ in raw_edges(raw):
        if config.self_loops == "drop":
            proper = src != dst
            src, dst = src[proper], dst[proper]
        for place, ends in enumerate((dst, src)):
            found[place][:] += np.bincount(ends, minlength=raw.num_nodes)
            if config.undirected:
                found[1 - place][:] += np.bincount(ends, minlength=raw.num_nodes)
    return found


def raw_edges(raw: RawGraph) -> Iterator[tuple[Array, Array, Any]]:
    """Yields (sources, targets, relations or None) of the source's edges in their order."""
    if raw.spool is None:
        yield raw.src, raw.dst, None
        return
    for batch in raw.spool.batches():
        yield batch["src"], batch["dst"], batch["type"] if "type" in (batch.dtype.names or ()) else None


def watch_directions(raw: RawGraph, config: GraphConfig) -> Directions | None:
    """Returns the samples of the edges of a source, which are still there; None if edges of both directions do not matter."""
    if raw.spool is not None:
        return raw.spool.directions
    if not config.counts_reverses(0):
        return None
    found = Directions()
    for low in range(0, len(raw.src), SLICE_EDGES):
        found.add(raw.src[low : low + SLICE_EDGES], raw.dst[low : low + SLICE_EDGES], 0)
    return found


def _check(name: str, found: Sequence[str], otherwise: str) -> Check:
    return Check(
        name=name,
        passed=not found,
        detail=one_line("; ".join(found)) or f"0 findings: {otherwise}",
        numbers={"findings": len(found), "allowed findings": 0},
        blocking=False,
    )


def _some(shown: Sequence[str]) -> str:
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5:,} more" if len(shown) > 5 else "")


def _marked_nodes(raw: RawGraph, degree: Array, num_edges: int) -> list[str]:
    """Returns a sentence about ids that look like markers, with the edges of each."""
    nodes, other = list(dict.fromkeys(_marked(raw, degree, num_edges))), _odd_ids(raw, degree)
    if not nodes:
        return other
    ids = raw.original_ids
    shown = [
        f"'{node if ids is None else ids[node]}' is a node with {int(degree[node]):,} of {num_edges:,} edges"
        for node in nodes
    ]
    way = "If it means that there is no node, leave out the rows of the edges that name it"
    return [f"ids that look like markers: {_some(shown)}. {way}", *other]


def _odd_ids(raw: RawGraph, degree: Array) -> list[str]:
    """Returns sentences about ids that may not be those of the nodes: rounded, written in two ways, or counted from 1."""
    found, ids = list[str](), raw.original_ids
    ends = [0, raw.num_nodes] if raw.node_type_ptr is None else raw.node_type_ptr.tolist()
    for low, high in itertools.pairwise(ends):
        part = () if ids is None else ids[low:high]
        found += rounded_ids(part) if isinstance(part, np.ndarray) else written_alike(part, "ids", "a node")
    without = np.asarray(degree) == 0
    if ids is None and without[:1].any() and LEAST_COUNTED <= len(without) >= COUNTED_TIMES * np.count_nonzero(without):
        found.append(
            "no edge names node 0, and edges name nearly all others: if ids count from 1, subtract 1 from them"
        )
    return found


def _marked(raw: RawGraph, degree: Array, num_edges: int) -> Iterator[int]:
    """Yields the nodes whose ids look like markers, type by type: each has ids of its own."""
    ends = [0, raw.num_nodes] if raw.node_type_ptr is None else raw.node_type_ptr.tolist()
    for low, high in itertools.pairwise(ends):
        ids = None if raw.original_ids is None else raw.original_ids[low:high]
        if ids is None or isinstance(ids, np.ndarray):
            places = [] if ids is None else marked_numbers(ids)
            from_zero = high > low and (ids is None or ids[0] == 0)
            hub = [0] if from_zero and _is_hub(degree[low:high], num_edges) else []
            places += hub + (_lone_last(degree[low:high]) if ids is None else [])
        else:
            places = [*marked_texts(ids), *unlike_others(ids)]
        yield from (low + place for place in places)


def _is_hub(degree: Array, num_edges: int) -> bool:
    """Tells whether the first node, whose id is 0, has so many edges that 0 may mean no node where ids count from 1."""
    if len(degree) < HUB_NODES:
        return False
    first, most = int(degree[0]), int(degree[1:].max())
    return HUB_SHARE[0] * num_edges <= first <= HUB_SHARE[1] * num_edges and first >= HUB_TIMES * most


def _lone_last(degree: Array) -> list[int]:
    """Returns the last of the ids 0 to N-1 if it is the largest of a type and most ids below it have no edges."""
    last = len(degree) - 1
    if last not in LIMITS or degree[last] == 0:
        return []
    return [last] if np.count_nonzero(np.asarray(degree) == 0) > LONE_SHARE * last else []


def _unknown_classes(raw: RawGraph) -> list[str]:
    """Returns a sentence about classes whose names mean that there is no label, with their nodes."""
    names = list(raw.class_names)
    if names == [str(number) for number in range(len(names))]:
        return []
    counts = _class_counts(raw)
    found = [
        f"'{names[place]}' of {int(counts[place]):,} nodes"
        for place in marked_texts(names, OF_CLASSES, 3)
        if counts[place]
    ]
    alike = [*written_alike(names, "names of classes", "a class"), *several_labels(names)]
    if not found:
        return alike
    way = "If they mean that a label is unknown, name them in no_label (tables), or write -1 in their place"
    return [f"classes whose names may mean no label: {_some(found)}. {way}", *alike]


def _odd_relations(raw: RawGraph) -> list[str]:
    """Returns sentences about names of relations that may mean none, or that are written in two ways."""
    stored = [name for name in raw.numbers.get("edge_types", ()) if not name.startswith(REVERSE)]
    names = list(dict.fromkeys(name.split("/")[1] if name.count("/") == 2 else name for name in stored))
    alike = written_alike(names, "names of relations", "a relation")
    found = [f"'{names[place]}'" for place in marked_texts(names, OF_CLASSES, 3)]
    if not found:
        return alike
    return [f"relations whose names may mean none: {_some(found)}. If so, leave out these edges, or name them", *alike]


def _class_counts(raw: RawGraph) -> Array:
    counts = np.zeros(max(1, len(raw.class_names)), np.int64)
    for low, high in node_ranges(len(raw.labels)):
        part = raw.labels[low:high]
        counts += np.bincount(part[(part >= 0) & (part < len(counts))], minlength=len(counts))
    return counts


def _empty_classes(raw: RawGraph) -> list[str]:
    """Returns a sentence about classes without nodes."""
    if not raw.class_names:
        return []
    counts = _class_counts(raw)
    empty, filled = np.flatnonzero(counts == 0), np.flatnonzero(counts)
    if not len(filled) or (not len(empty) and len(filled) > 1):
        return []
    if len(filled) == 1 and not len(empty):
        return [
            f"all {int(counts.sum()):,} labels are one class, so that there is nothing to tell apart: give labels of two classes"
        ]
    names = [str(name) for name in raw.class_names]
    shown = _some([names[place] for place in empty.tolist()])
    last, before = int(filled[-1]), int(filled[-2]) if len(filled) > 1 else 0
    way = 'labels = "names" numbers those that there are (tables), or y = np.unique(y, return_inverse=True)[1] where all are known'
    if filled.tolist() == [1] and (raw.labels == -1).any():
        way = 'only class 1 and unknown labels, -1, are there: if -1 is a class, labels = "names" (tables), or y = (y > 0).astype(int)'
    elif filled[0] == 1 and len(empty) == 1:
        way = f"classes are counted from 0: subtract 1. Or {way}"
    elif is_bound(last) and last > 2 * max(1, before):
        way = f'if {last} means unknown, write -1 in its place, or no_label = ["{last}"] (tables). Otherwise {way}'
    return [f"{len(empty):,} of {len(counts):,} classes have no node: {shown}. Way out: {way}"]


def _both_directions(raw: RawGraph, config: GraphConfig) -> list[str]:
    """Returns a sentence about relations that hold the edges of each other in reverse."""
    if raw.directions is None:
        return []
    names, found = raw.numbers.get("edge_types", ["the edges"]), []
    own = getattr(config, "reverse_types", "same") == "own"
    summed = config.weighted and getattr(config, "merge_weights", "first") == "sum"
    for one, other, share in raw.directions.reverse_pairs():
        if one != other:
            found.append(f"{names[other]} holds {_percent(share)} of the edges of {names[one]} in reverse")
        elif config.duplicates == "keep" or summed or (own and len(names) > 1):
            found.append(f"{names[one]}: {_percent(share)} are there in both directions")
    if not found:
        return []
    return [
        f"{_some(found)}, and undirected = true adds the reverse of each once more. Set undirected = false in [graph]"
    ]


def _percent(share: float) -> str:
    return "all" if share == 1 else f"about {100 * share:.0f} %"


def _lonely(raw: RawGraph, config: GraphConfig, parts: tuple[Array, Array, Array], in_degree: Array) -> list[str]:
    """Returns a sentence about parts of the split whose nodes have no in-edges."""
    found = []
    for name, part in zip(PARTS, parts, strict=True):
        lonely = int(np.count_nonzero(np.asarray(in_degree)[part] == 0))
        least = LONELY if len(part) >= FEW_NODES else 1
        if len(part) and lonely >= least * len(part) and (name == PARTS[0] or len(part) >= FEW_NODES):
            found.append(f"{lonely:,} of {len(part):,} {name} nodes{_types_of(raw, part)}")
    if not found:
        return []
    way = "they are isolated: check that ids of edges and nodes are the same ones"
    if not config.undirected:
        way = "turn the relations round, or set undirected = true in [graph]"
    return [f"{_some(found)} have no in-edge, so a model sees each alone. Way out: {way}"]


def _types_of(raw: RawGraph, part: Array) -> str:
    """Returns the node types of a part in words, "" for a graph without."""
    names = raw.numbers.get("node_types")
    if raw.node_type_ptr is None or not names:
        return ""
    numbers = np.unique(np.searchsorted(raw.node_type_ptr, part, side="right") - 1)
    return f" (of type {', '.join(names[number] for number in numbers.tolist())})"
