"""Graphs on which the savings of embeddings of earlier steps are counted (benchmarks/fresh.py): skewed, even, denser, narrower.

R-MAT graphs differ in their corners and in their average degree. A banded graph has one degree distribution and edges that join nodes at
most `band` numbers apart, so that its diameter grows as the band gets narrower (FreshGNN, Fig. 17b: the bandwidth is that of the adjacency
matrix). Both ends of an edge are drawn by weight, the second one among the nodes within the band of the first; weights are Pareto's with
the exponent TAIL, and the largest are cut so that no node fills its band.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.types import Array, Topology
from tests.graphs import GraphArtifacts, build_graph

FEATURES, CLASSES, SEED = 24, 16, 0
SKEW = {"a": 0.57, "b": 0.19, "c": 0.19}  # Graph500's corners
EVEN = {"a": 0.25, "b": 0.25, "c": 0.25}
DEGREES = (4, 8, 32)
"""Average degrees of R-MAT graphs beside the 16.5 of "skewed"; edges are drawn undirected."""
BANDS = (5_000, 100_000)
"""Bands beside the whole matrix."""

GRAPHS: dict[str, dict[str, Any]] = {
    "skewed": {"nodes": 2_000_000, "edges": 16_500_000} | SKEW,
    "even": {"nodes": 1_000_000, "edges": 8_000_000} | EVEN,
    "quick": {"nodes": 100_000, "edges": 800_000} | SKEW,
    **{f"degree-{degree}": {"nodes": 2_000_000, "edges": 1_000_000 * degree} | SKEW for degree in DEGREES},
    **{
        f"band-{band or 'none'}": {"nodes": 2_000_000, "edges": 16_500_000, "band": band, "most": 2_500}
        for band in (0, *BANDS)
    },
    "quick-band": {"nodes": 100_000, "edges": 800_000, "band": 2_000, "most": 1_000},
}
"""Keys of the source "rmat", or of `banded_edges`; a band of 0 is no bound."""

TAIL = 1.25
"""The hottest 1.1 % of the nodes have 40 % of the weight then, before the largest weights are cut."""
SPLIT = {"train_ratio": 0.05, "valid_ratio": 0.01, "undirected": True}


def made(store: Store, name: str) -> GraphArtifacts:
    """Builds one of GRAPHS, or finds it in the store."""
    size = GRAPHS[name]
    if "band" not in size:
        keys: dict[str, Any] = {"features": FEATURES, "classes": CLASSES}
        return build_graph(store, config_class("rmat")(**keys, **SPLIT, **size))
    path = store.home / f"{name}.npz"
    if not path.is_file():
        write_banded(path, **size)
    archive: dict[str, Any] = {"path": path}
    return build_graph(store, config_class("npz")(**archive, **SPLIT))


def write_banded(path: Path, *, nodes: int, edges: int, band: int, most: int) -> None:
    """Writes a banded graph whose classes are ranges of its nodes, and features that are centroids of classes with noise."""
    rng = np.random.default_rng(SEED)
    labels = np.arange(nodes) * CLASSES // nodes
    x = rng.standard_normal((nodes, FEATURES), np.float32)
    x += rng.standard_normal((CLASSES, FEATURES), np.float32)[labels]
    np.savez(path, edge_index=np.stack(banded_edges(nodes, edges, band, most, rng)), x=x, y=labels, num_nodes=nodes)


def banded_edges(nodes: int, edges: int, band: int, most: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Returns src, dst, i32[edges] each, at most `band` apart.

    Args:
        nodes: N.
        edges: number of edges; an edge may be drawn more than once.
        band: largest difference of the ids of an edge's ends; 0 for no bound.
        most: largest expected degree, both directions counted, of a graph without a band.
        rng: source of the draws.
    """
    weights = (1 - rng.random(nodes)) ** (-1 / TAIL)
    weights = np.minimum(weights, most / (2 * edges) * weights.sum())
    starts = np.concatenate([[0.0], np.cumsum(weights)])
    src = _drawn(starts, np.zeros(1, np.int64), np.full(1, nodes), rng.random(edges))
    low, high = (np.maximum(src - band, 0), np.minimum(src + band + 1, nodes)) if band else (np.zeros(1, int), [nodes])
    return src.astype(np.int32), _drawn(starts, low, np.asarray(high), rng.random(edges)).astype(np.int32)


def _drawn(starts: Array, low: Array, high: Array, at: Array) -> Array:
    """Returns a node of each range [low, high), drawn by weight; starts[v] is the sum of the weights before v, at[i] is in [0, 1)."""
    found = np.searchsorted(starts, starts[low] + at * (starts[high] - starts[low]), side="right") - 1
    return np.clip(found, low, high - 1)  # a rounded sum may lie at the end of the range


def hops_from(topology: Topology, start: int) -> int:
    """Returns the distance to the farthest node that a walk from `start` reaches, a lower bound of the diameter."""
    seen, front, hops = np.zeros(topology.num_nodes, bool), np.array([start]), -1
    seen[start] = True
    while len(front):
        hops += 1
        first = topology.indptr[front]
        counts = topology.indptr[front + 1] - first
        places = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        reached = topology.indices[places]
        front = np.unique(reached[~seen[reached]])
        seen[front] = True
    return hops
