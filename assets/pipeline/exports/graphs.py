"""A stored graph as a graph of DGL or as data of PyG, with features, labels and splits.

Both libraries hold the whole graph in memory, features included, and use ids of 64 bits. Memory: 8 bytes per edge for DGL and 16 for PyG,
beside the features.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from assets.features.read import open_features, require_nodes
from assets.graph.read import Graph, open_graph
from assets.storage.artifact import Artifact
from kernels.arrays import widen
from kernels.errors import InputError
from kernels.types import Array

SPLITS = ("train", "valid", "test")


def to_pyg(graph: Artifact, features: Artifact | None = None) -> Any:
    """Returns a graph as `torch_geometric.data.Data`.

    It has edge_index int64[2, E] from row 0 to row 1, in the order of targets; y int64[N], -1 unknown; train_mask, val_mask and test_mask
    bool[N]; edge_weight if the graph has weights; x float32[N, F] with features, zeros for nodes without.

    Args:
        graph, features: artifacts of these stages.

    Raises:
        InputError: PyG is not installed, or an artifact is of another stage.
    """
    try:
        from torch_geometric.data import Data  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(f"PyG cannot be imported: {error}", 'pip install -e ".[pyg]"') from error
    import torch

    opened = open_graph(graph)
    targets = np.repeat(np.arange(opened.topology.num_nodes), np.diff(opened.topology.indptr))
    sources = np.asarray(opened.topology.indices, np.int64)
    values = {"edge_index": torch.from_numpy(np.stack([sources, targets]))}
    masks = dict(zip(("train_mask", "val_mask", "test_mask"), _masks(opened).values(), strict=True))
    values |= {name: torch.from_numpy(each) for name, each in {"y": _labels(opened), **masks}.items()}
    if opened.topology.weights is not None:
        values["edge_weight"] = torch.from_numpy(np.array(opened.topology.weights))
    if features is not None:
        values["x"] = torch.from_numpy(_rows(features, opened))
    return Data(**values, num_nodes=opened.topology.num_nodes)


def to_dgl(graph: Artifact, features: Artifact | None = None) -> Any:
    """Returns a graph as a `dgl.DGLGraph`.

    `ndata` has label int64[N], -1 unknown; train_mask, valid_mask and test_mask bool[N]; and feat float32[N, F] with features, zeros for
    nodes without. `edata` has weight if the graph has weights.

    Args:
        graph, features: artifacts of these stages.

    Raises:
        InputError: DGL is not installed, or an artifact is of another stage.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        import dgl
    except ImportError as error:
        raise InputError(f"DGL cannot be imported: {error}", 'pip install -e ".[dgl]" on Python 3.11') from error
    import torch

    opened = open_graph(graph)
    indptr = torch.from_numpy(np.array(opened.topology.indptr, np.int64))
    indices = torch.from_numpy(np.array(opened.topology.indices, np.int64))
    made = dgl.graph(("csc", (indptr, indices, torch.arange(len(indices)))), num_nodes=opened.topology.num_nodes)
    made.ndata["label"] = torch.from_numpy(_labels(opened))
    for split, mask in _masks(opened).items():
        made.ndata[f"{split}_mask"] = torch.from_numpy(mask)
    if opened.topology.weights is not None:
        made.edata["weight"] = torch.from_numpy(np.array(opened.topology.weights))
    if features is not None:
        made.ndata["feat"] = torch.from_numpy(_rows(features, opened))
    return made


def _labels(graph: Graph) -> Array:
    return np.asarray(graph.labels, np.int64).copy()


def _masks(graph: Graph) -> dict[str, Array]:
    masks = {}
    for split in SPLITS:
        masks[split] = np.zeros(graph.topology.num_nodes, bool)
        masks[split][np.asarray(getattr(graph, f"{split}_ids"))] = True
    return masks


def _rows(features: Artifact, graph: Graph) -> Array:
    """Returns f32[N, F], the row of every node, after comparing all of them with their digests."""
    features.file("rows.npy")
    opened = open_features(features)
    require_nodes(opened, graph.topology.num_nodes, "the graph")
    rows = opened.rows_of(np.arange(opened.num_nodes))
    found = np.zeros((opened.num_nodes, opened.width), np.float32)
    found[rows >= 0] = widen(np.array(opened.open()[rows[rows >= 0]]))
    return found
