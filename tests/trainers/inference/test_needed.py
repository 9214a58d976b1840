"""Exact inference of some nodes: the bits of all nodes' inference, for the nodes and edges that a plain walk counts."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.config import Neighbours
from graphmill.assets.sampling.drawing import Drawing
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Topology
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.needed import find_needed
from graphmill.trainers.inference.spilled import SpilledFile
from graphmill.trainers.models.build import build_model
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.rows.source import MappedSource
from tests.kernels.graphs import topologies
from tests.trainers.graphs import random_graph


def walked(topology: Topology, wanted: set[int], layers: int) -> list[set[int]]:
    """The sets by the definition: below a layer, its nodes and all their in-neighbours."""
    sets = [wanted]
    for _ in range(layers):
        rows = (topology.indices[topology.indptr[v] : topology.indptr[v + 1]] for v in sets[0])
        sets.insert(0, sets[0].union(*(row.tolist() for row in rows)))
    return sets


def topology_of(indptr: np.ndarray, indices: np.ndarray) -> Topology:
    in_degree = np.diff(indptr).astype(np.int32)
    out_degree = np.bincount(indices, minlength=len(in_degree)).astype(np.int32)
    return Topology(indptr=indptr, indices=indices, in_degree=in_degree, out_degree=out_degree)


@settings(max_examples=100, deadline=None)
@given(topologies(), st.integers(0, 3), st.integers(1, 4000), st.data())
def test_the_sets_are_those_of_a_walk_at_any_memory(topology, layers, memory_bytes, data):
    nodes = st.integers(0, topology.num_nodes - 1)
    wanted = np.array(data.draw(st.lists(nodes, unique=True)), topology.indices.dtype)
    sampler = Sampler(topology, [-1], seed=0)
    needed = find_needed(sampler, topology.indptr, wanted, layers, memory_bytes)
    expected = walked(topology, set(wanted.tolist()), layers)
    everyone, degrees = np.arange(topology.num_nodes), np.diff(topology.indptr)
    for level, members in enumerate(expected):
        assert set(everyone[needed.holds(level, everyone)].tolist()) == members
        assert needed.num_nodes[level] == len(members)
        flags = np.isin(everyone, list(members))
        for low, high in ((0, topology.num_nodes), (topology.num_nodes // 3, topology.num_nodes // 2)):
            assert needed.flags(level, low, high).tolist() == flags[low:high].tolist()
        assert needed.places(level, everyone).tolist() == (np.cumsum(flags) - flags).tolist()
    assert needed.num_edges == tuple(int(degrees[list(members)].sum()) for members in expected[1:])


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return random_graph(tmp_path_factory.mktemp("home"))


MODELS: list[dict[str, Any]] = [
    {"model": "sage", "layers": 3},
    {"model": "gcn", "layers": 2, "norm": "batch", "residual": True},
    {"model": "gin", "layers": 2, "input": "linear", "head": "linear", "jk": "cat"},
    {"model": "gat", "layers": 2, "heads": 2},
    {"model": "gat", "layers": 3, "heads": 2, "residual": True, "head": "linear", "jk": "max"},
]


@pytest.mark.parametrize("workspace_bytes", [1, 20_000, 2**30])
@pytest.mark.parametrize("options", MODELS, ids=str)
def test_some_nodes_get_the_bits_that_all_nodes_give_them(graph, tmp_path, options, workspace_bytes):
    config = TrainConfig(**{"hidden": 8, **options})
    model = build_model(config, graph.features.width, graph.num_classes, seed=0)
    bounds = Bounds(workspace_bytes=workspace_bytes, threads=2, folder=tmp_path)
    inference = Inference(model, graph.topology, MappedSource(graph.features), bounds)
    whole, draws = inference.exact(), np.random.default_rng(0)
    for some in ([0], [399, 3, 3], [200], draws.permutation(400)[:30], draws.permutation(400)[:190]):
        assert torch.equal(inference.exact(np.array(some)), whole[torch.from_numpy(np.array(some))])


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_files_hold_the_rows_of_needed_nodes_alone(graph, tmp_path, monkeypatch, options):
    config, sizes, made = TrainConfig(**{"hidden": 8, **options}), [], SpilledFile.__init__
    model = build_model(config, graph.features.width, graph.num_classes, seed=0)
    monkeypatch.setattr(
        SpilledFile,
        "__init__",
        lambda self, num_bytes, folder: sizes.append(num_bytes) or made(self, num_bytes, folder),
    )
    bounds = Bounds(workspace_bytes=1, threads=2, folder=tmp_path)
    inference = Inference(model, graph.topology, MappedSource(graph.features), bounds)
    needed = inference.needed(np.array([0]))
    assert needed is not None
    inference.exact()
    whole = sizes.copy()
    sizes.clear()
    inference.exact(np.array([0]), needed)
    rows = {count / 400 for count in needed.num_nodes}
    assert len(sizes) == len(whole) and min(rows) < 0.1
    assert all(size / before in rows for size, before in zip(sizes, whole, strict=True))


def test_neighbours_by_walks_reach_what_the_walks_visit(graph):
    config = TrainConfig(model="pinsage", layers=2, hidden=8)
    model = build_model(config, graph.features.width, graph.num_classes, seed=0)
    drawing = Drawing(neighbours=Neighbours(method="random_walk", fanouts=(3, 3)))
    inference = Inference(
        model, graph.topology, MappedSource(graph.features), Bounds(workspace_bytes=50_000, threads=1, drawing=drawing)
    )
    some = np.array([7, 311])
    assert torch.equal(inference.exact(some), inference.exact()[torch.from_numpy(some)])


class OnesFor:
    """Rows of ones for any node, and the nodes that were read."""

    width, dtype, row_bytes, slotted, tiered, collective = 4, "float32", 16, False, False, False

    def __init__(self) -> None:
        self.read: list[int] = []

    def gather(self, batch: Any, out: torch.Tensor, ledger: Any) -> None:
        self.read += batch.input_ids.tolist()
        out[:] = 1


def test_rows_that_no_wanted_node_reads_are_not_read():
    """A path on which node i + 1 leads to node i: two layers above node 500 read the features of 500, 501 and 502."""
    indptr = np.minimum(np.arange(1001), 999)
    topology = topology_of(indptr, np.arange(1, 1000, dtype=np.int32))
    model = build_model(TrainConfig(model="sage", layers=2, hidden=8), 4, 3, seed=0)
    source, bounds = OnesFor(), Bounds(workspace_bytes=1 << 14, threads=1)
    inference = Inference(model, topology, source, bounds)
    needed = inference.needed(np.array([500]))
    assert needed is not None and inference.needed(np.arange(500)) is None and inference.needed(np.arange(0)) is None
    inference.exact(np.array([500]), needed)
    assert sorted(source.read) == [500, 501, 502]
    assert needed.num_nodes == (3, 2, 1) and needed.num_edges == (2, 1)
