"""Links of a graph: no edge that is held out, nor its reverse, is in the stored topology, whatever source the edges come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from graphmill.assets.graph.links import HELD_OUT
from graphmill.assets.graph.read import Graph
from graphmill.assets.sources.interface import TaskTable
from tests.assets.sources.own_data import Built, build

pytestmark = pytest.mark.usefixtures("quick_readers")

Edge = tuple[int, int, int]
"""Source, relation, target."""


def links(**keys: Any) -> dict[str, Any]:
    """The keys of a graph whose edges are predicted."""
    return {"task": "links", "links": TaskTable(kind="links", **keys)}


def stored(graph: Graph) -> set[Edge]:
    """The edges of the topology."""
    topology = graph.topology
    target = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    kinds = np.zeros(len(target), int) if topology.edge_types is None else topology.edge_types
    return {*zip(topology.indices.tolist(), kinds.tolist(), target.tolist(), strict=True)}


def link_edges(graph: Graph, *parts: int) -> list[Edge]:
    """The links of some parts."""
    found = graph.links
    assert found is not None
    kinds = np.zeros(len(found.split), int) if found.relation is None else found.relation
    columns = zip(found.source.tolist(), kinds.tolist(), found.target.tolist(), found.split.tolist(), strict=True)
    return [(source, kind, target) for source, kind, target, part in columns if part in parts]


def reverses(graph: Graph, edges: list[Edge]) -> set[Edge]:
    """The reverses of edges, of relations that have one."""
    assert graph.links is not None
    back = graph.links.reverse_of
    return {(target, back[kind], source) for source, kind, target in edges if back[kind] >= 0}


def require_split(built: Built, whole: Built, message_edges: str = "train") -> Graph:
    """Requires the stored topology to be the whole one without the held-out links and their reverses, and each link to be stored once."""
    graph, every = built.opened, link_edges(built.opened, 0, 1, 2)
    assert graph.task == "links" and graph.links is not None and len(graph.train_ids) == 0
    held_out = link_edges(graph, *((1, 2) if message_edges == "train" else (2,)))
    gone = {*held_out} | reverses(graph, held_out)
    assert stored(graph) == stored(whole.opened) - gone and not stored(graph) & gone
    assert len({*every}) == len(every) and not reverses(graph, every) & {*every}
    assert {*every} <= stored(whole.opened)
    numbers = built.graph.summary["numbers"]
    assert numbers["num_links"] == len(every)
    assert [each["passed"] for each in built.graph.summary["checks"] if each["name"] == HELD_OUT] == [True]
    return graph


def edge_file(folder: Path, rng: np.random.Generator, num_nodes: int, num_edges: int) -> Path:
    """A drawn edge table with relations, splits and times; some edges repeat, some are there in both directions."""
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    twice = rng.integers(0, num_edges, num_edges // 4)
    src, dst = np.concatenate([src, dst[twice]]), np.concatenate([dst, src[twice]])
    kinds = np.array(["likes", "knows"])[rng.integers(0, 2, len(src))]
    path = folder / "edges.parquet"
    pl.DataFrame({"src": src, "dst": dst, "kind": kinds, "time": rng.integers(0, 9, len(src))}).write_parquet(path)
    return path


@pytest.mark.parametrize("message_edges", ["train", "train+valid"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"undirected": False},
        {"type_column": "kind"},
        {"type_column": "kind", "reverse_types": "own"},
        {"type_column": "kind", "undirected": False, "duplicates": "keep"},
    ],
)
def test_no_held_out_edge_is_in_the_topology(tmp_path: Path, keys: Any, seed: int, message_edges: Any) -> None:
    rng = np.random.default_rng(seed)
    path = edge_file(tmp_path, rng, num_nodes := int(rng.integers(3, 20)), int(rng.integers(4, 60)))
    whole = build(tmp_path / "home", "edges", edges=path, num_nodes=num_nodes, **keys)
    asked = links(message_edges=message_edges, train_ratio=0.6, valid_ratio=0.2)
    built = build(tmp_path / "home", "edges", edges=path, num_nodes=num_nodes, seed=seed, **keys, **asked)
    require_split(built, whole, message_edges)
