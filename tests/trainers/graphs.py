"""Small graphs for the trainer tests, in memory and as artifacts of a store."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.assets.building.stage import Summary
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import version_of
from graphmill.assets.storage.store import Store
from graphmill.assets.tasks.labels import OF_LABEL, Kind
from graphmill.kernels.links.splits import PARTS, TRAIN, split_edges
from graphmill.kernels.links.triples import Triples
from graphmill.kernels.rows.pages import PAGE_BYTES, page_digests
from graphmill.kernels.types import Topology
from tests.assets.storage.tiny_artifacts import numbers_of
from tests.graphs import GraphArtifacts, OpenedGraph

RELATIONS = 0
"""Number of relations of the edges that `random_graph_artifacts` makes; 0 = edges have none. A test may change it."""

TYPE_COLUMNS: tuple[int, ...] = ()
"""Columns of the features of each node type of `random_graph_artifacts`, types being equal ranges of ids; none = nodes have no types."""

WEIGHTS = False
"""Whether these edges have weights. A test may change it."""


LABELS: Kind = "classes"
"""Kind of the labels of `random_graph_artifacts`. A test may change it."""


@contextmanager
def attributed(
    relations: int = 3,
    type_columns: tuple[int, ...] = (12, 5, 0),
    weights: bool = True,
    labels: Kind = "classes",
) -> Iterator[None]:
    """Gives the graphs that are made inside these relations, node types, weights and kind of labels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.RELATIONS", relations)
        patch.setattr(f"{__name__}.TYPE_COLUMNS", type_columns)
        patch.setattr(f"{__name__}.WEIGHTS", weights)
        patch.setattr(f"{__name__}.LABELS", labels)
        yield


TYPED = {"model": "rgcn", "input": "typed", "edge_weight": True}
"""Keys of a train table that read all of it."""


def random_topology(
    num_nodes: int,
    num_edges: int,
    seed: int,
    rename: np.ndarray | None = None,
    relations: int = 0,
    weights: bool = False,
) -> Topology:
    """A random directed graph without duplicates.

    Args:
        rename: maps old ids to new ones.
        relations: edges have one of these, if there are any.
        weights: whether edges have weights from 0 to 4, every tenth of them 0.
    """
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, num_nodes, (num_edges, 2)), axis=0)
    if rename is not None:
        pairs = rename[pairs]
    src, dst = pairs[:, 0], pairs[:, 1]
    kinds = rng.integers(0, max(1, relations), len(pairs)).astype(np.uint8)
    order = np.lexsort((src, kinds, dst))
    return Topology(
        indptr=np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=num_nodes))]).astype(np.int64),
        indices=src[order].astype(np.int32),
        in_degree=np.bincount(dst, minlength=num_nodes).astype(np.int32),
        out_degree=np.bincount(src, minlength=num_nodes).astype(np.int32),
        edge_types=kinds[order] if relations else None,
        weights=random_weights(len(pairs), seed) if weights else None,
    )


def random_weights(count: int, seed: int) -> np.ndarray:
    """Weights f32[count] from 0 to 4, about every tenth of them 0."""
    rng = np.random.default_rng(seed + 1)
    return (4 * rng.random(count) * (rng.random(count) > 0.1)).astype(np.float32)


def random_graph_artifacts(
    home: Path,
    num_nodes: int = 400,
    num_edges: int = 2400,
    width: int = 12,
    num_train: int = 200,
    num_valid: int = 100,
    featureless: int = 0,
    dtype: str = "float32",
) -> GraphArtifacts:
    """A graph and its features, which the labels follow, so that a few epochs learn something.

    Args:
        featureless: every node whose id is a multiple of it has no features; 0 = all have.
        dtype: stored type of the rows; "uint16" takes the upper half of each float32, which is bfloat16.
    """
    topology = random_topology(num_nodes, num_edges, seed=7, relations=RELATIONS, weights=WEIGHTS)
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 4, num_nodes).astype(np.int32)
    rows = (rng.normal(size=(num_nodes, width)) + 1.5 * np.eye(4, width)[labels]).astype(np.float32)
    ids = rng.permutation(num_nodes).astype(np.int32)
    cuts = {"train_ids": ids[:num_train], "valid_ids": ids[200 : 200 + num_valid], "test_ids": ids[300:]}
    arrays = {name: getattr(topology, name) for name in ("indptr", "indices", "in_degree", "out_degree")}
    arrays |= {"edge_types": topology.edge_types} if RELATIONS else {}
    arrays |= {"weights": topology.weights} if WEIGHTS else {}
    labels = labels if LABELS == "classes" else other_labels(LABELS, labels)
    arrays |= {"labels": labels} | {name: np.sort(part) for name, part in cuts.items()}
    config = {"nodes": num_nodes, "edges": num_edges, "train": num_train, "valid": num_valid, "relations": RELATIONS}
    config |= {"weights": True} if WEIGHTS else {}
    config |= {"task": LABELS} if LABELS != "classes" else {}
    numbers = {
        "num_nodes": num_nodes,
        "num_edges": topology.num_edges,
        "class_names": list("abcd" if LABELS == "classes" else "abc"),
    }
    numbers |= {"edge_types": [f"relation {number}" for number in range(RELATIONS)]} if RELATIONS else {}
    starts = np.linspace(0, num_nodes, len(TYPE_COLUMNS) + 1).astype(np.int64)
    if TYPE_COLUMNS:
        arrays["node_type_ptr"], config["types"] = starts, len(TYPE_COLUMNS)
    graph = _published(home, "graph", config, arrays, numbers)
    of_type = np.searchsorted(starts, np.arange(num_nodes), side="right") - 1
    columns = np.array(TYPE_COLUMNS or [width])[of_type if TYPE_COLUMNS else np.zeros(num_nodes, int)]
    rows[np.arange(width) >= columns[:, None]] = 0
    rows = (rows.view(np.uint32) >> 16).astype(np.uint16) if dtype == "uint16" else rows.astype(dtype)
    arrays = {"rows": rows}
    if featureless or (TYPE_COLUMNS and not columns.all()):
        has = (np.arange(num_nodes) % featureless != 0) if featureless else columns > 0
        arrays = {"rows": rows[has], "row_of": np.where(has, np.cumsum(has) - 1, -1).astype(np.int32)}
    config = {"nodes": num_nodes, "width": width, "featureless": featureless, "dtype": dtype}
    numbers = {"num_rows": len(arrays["rows"])}
    if TYPE_COLUMNS:
        config["types"] = numbers["type_columns"] = list(TYPE_COLUMNS)
    pages = np.zeros(-(-arrays["rows"].nbytes // PAGE_BYTES) * PAGE_BYTES, np.uint8)
    pages[: arrays["rows"].nbytes] = np.ascontiguousarray(arrays["rows"]).reshape(-1).view(np.uint8)
    arrays["page_digests"] = page_digests(pages)
    return GraphArtifacts(graph, _published(home, "features", config, arrays, numbers))


def other_labels(kind: Kind, classes: np.ndarray) -> np.ndarray:
    """Several labels i8[N, 3] or numbers f32[N, 3] that follow from classes 0 to 3; about a tenth of the values are unknown."""
    rng = np.random.default_rng(9)
    bits = np.stack([classes >= 2, classes % 2 == 1, classes == 3], axis=1)
    unknown = rng.random(bits.shape) < 0.1
    unknown[:, 0] &= ~unknown[:, 1:].all(axis=1)
    if kind == "multilabel":
        return np.where(unknown, -1, bits).astype(np.int8)
    numbers = 100 + 10 * bits + rng.normal(size=bits.shape)
    return np.where(unknown, np.nan, numbers * [1, 1000, 0.01]).astype(np.float32)


def _published(home: Path, stage: str, config: dict, arrays: dict, numbers: dict) -> Artifact:
    found = Store(home).find(stage, version_of(stage, 0, config, {}, {}))
    if found is not None:
        return found
    with Store(home).writer(stage, version_of(stage, 0, config, {}, {})) as writer:
        for name, array in arrays.items():
            writer.save(name, array)
        return writer.publish(config, {}, Summary(numbers=numbers_of(stage, arrays) | numbers), {}, code_version=0)


def random_graph(home: Path, **size: int) -> OpenedGraph:
    """Both, opened."""
    return random_graph_artifacts(home, **size).open()


def link_graph_artifacts(home: Path, num_nodes: int = 300, num_edges: int = 1500, relations: int = 0) -> GraphArtifacts:
    """A graph whose edges are predicted, with their reverses, and its features: most edges join nodes of one of six groups."""
    rng = np.random.default_rng(7)
    groups = rng.integers(0, 6, num_nodes)
    pairs = rng.integers(0, num_nodes, (8 * num_edges, 2))
    pairs = pairs[
        (pairs[:, 0] != pairs[:, 1]) & ((groups[pairs[:, 0]] == groups[pairs[:, 1]]) | (rng.random(len(pairs)) < 0.02))
    ]
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    pairs = pairs[rng.permutation(len(pairs))[:num_edges]]
    kinds = rng.integers(0, max(1, relations), len(pairs)).astype(np.uint8)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], kinds))
    pairs, kinds, reverse_of = pairs[order].astype(np.int32), kinds[order], tuple(range(max(1, relations)))
    triples, relation = Triples(num_nodes=num_nodes, reverse_of=reverse_of), kinds if relations else None
    split = split_edges(triples, *pairs.T, relation, seed=1, train_ratio=0.8, valid_ratio=0.1)
    own, types = pairs[split == TRAIN], np.tile(kinds[split == TRAIN], 2)
    src, dst = np.concatenate([own, own[:, ::-1]]).T
    order = np.lexsort((src, types, dst))
    degree = np.bincount(dst, minlength=num_nodes)
    arrays = {
        "indptr": np.concatenate([[0], np.cumsum(degree)]).astype(np.int64),
        "indices": src[order].astype(np.int32),
        "in_degree": degree.astype(np.int32),
        "out_degree": np.bincount(src, minlength=num_nodes).astype(np.int32),
        "labels": np.full(num_nodes, -1, np.int32),
        "link_ends": pairs,
        "link_split": split,
    }
    arrays |= {f"{each}_ids": np.empty(0, np.int32) for each in ("train", "valid", "test")}
    arrays |= {"edge_types": types[order], "link_relation": kinds} if relations else {}
    numbers: dict[str, Any] = {
        "num_nodes": num_nodes,
        "num_edges": len(src),
        "class_names": [],
        "reverse_of": reverse_of,
        "predicted": reverse_of,
    }
    numbers["num_links"] = len(pairs)
    numbers |= {f"num_{part}_links": int((split == place).sum()) for place, part in enumerate(PARTS)}
    numbers |= {"edge_types": [f"relation {number}" for number in range(relations)]} if relations else {}
    config = {"nodes": num_nodes, "edges": num_edges, "relations": relations, "task": "links"}
    if LABELS in OF_LABEL:  # the label of an edge follows from the groups of its ends
        found = groups[pairs].sum(axis=1) % 3
        arrays["link_labels"] = (
            found.astype(np.int32) if LABELS == "edge_classes" else (found + 5.0).astype(np.float32)[:, None]
        )
        numbers["class_names"] = list("abc") if LABELS == "edge_classes" else ["n"]
        config["task"] = LABELS
    graph = _published(home, "graph", config, arrays, numbers)
    rows = (rng.normal(size=(num_nodes, 12)) + 1.5 * np.eye(6, 12)[groups]).astype(np.float32)
    pages = np.zeros(-(-rows.nbytes // PAGE_BYTES) * PAGE_BYTES, np.uint8)
    pages[: rows.nbytes] = rows.reshape(-1).view(np.uint8)
    config = {"nodes": num_nodes, "width": 12, "links": True}
    arrays = {"rows": rows, "page_digests": page_digests(pages)}
    return GraphArtifacts(graph, _published(home, "features", config, arrays, {"num_rows": num_nodes}))
