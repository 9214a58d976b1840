"""Own modules `forward(x, edge_index)`, as in PyG's tutorials: PyG's own numbers on the same graphs, in float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import Tensor

from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.storage.names.user_code import Reference, load_reference
from graphmill.kernels.blocks.pyg_blocks import to_subgraph
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block, Topology
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.own import OwnModule, form_of
from graphmill.trainers.models.own_limits import model_problems
from graphmill.trainers.recipe.config import TrainConfig, TrainTable
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import MemorySource, RowIds
from graphmill.trainers.techniques.fullgraph.settings import FullGraphSettings
from tests.assets.packed_chunks.packed import build_packed
from tests.recipes import recipe, sbm
from tests.trainers.graphs import attributed, random_graph, random_topology
from tests.trainers.inference.infer import infer_exact
from tests.trainers.models.test_own import written
from tests.trainers.runs import content, train_packed, train_small, train_whole

pytest.importorskip("torch_geometric")

TUTORIALS = """
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN, GAT, GATConv, GCNConv, GraphSAGE, MessagePassing, SAGEConv
from torch_geometric.utils import degree

class Planetoid(torch.nn.Module):
    # "Introduction by example": forward(data).
    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(in_width, 16), GCNConv(16, num_classes)
    def forward(self, data):
        x, edge_index = data.x, data.edge_index
        x = F.relu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.5, training=self.training)
        return F.log_softmax(self.conv2(x, edge_index), dim=1)

class Attention(torch.nn.Module):
    # Colab "Graph attention": heads side by side, elu.
    def __init__(self, in_channels, hidden_channels, out_channels):
        super().__init__()
        self.conv1 = GATConv(in_channels, hidden_channels, heads=2)
        self.conv2 = GATConv(2 * hidden_channels, out_channels)
    def forward(self, x, edge_index):
        return self.conv2(F.elu(self.conv1(x, edge_index)), edge_index)

class Written(MessagePassing):
    # "Creating message passing networks": a convolution of one's own, with weights of edges.
    def __init__(self, in_width, out_width):
        super().__init__(aggr="add")
        self.lin = torch.nn.Linear(in_width, out_width)
    def forward(self, x, edge_index, edge_weight=None):
        counts = degree(edge_index[1], x.size(0), dtype=x.dtype).clamp(min=1)
        weight = torch.ones_like(edge_index[0]) if edge_weight is None else edge_weight
        return self.propagate(edge_index, x=self.lin(x), scale=weight / counts[edge_index[1]])
    def message(self, x_j, scale):
        return scale.to(x_j.dtype)[:, None] * x_j

class ByHand(torch.nn.Module):
    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.first, self.last, self.norm = Written(in_width, 8), Written(8, num_classes), torch.nn.BatchNorm1d(8)
    def forward(self, x, edge_index, edge_weight=None):
        return self.last(self.norm(self.first(x, edge_index, edge_weight)).relu(), edge_index, edge_weight)

class Cached(Planetoid):
    def __init__(self, in_width, num_classes, config):
        super().__init__(in_width, num_classes, config)
        self.conv1 = GCNConv(in_width, 16, cached=True)

class Typed(ByHand):
    def forward(self, x, edge_index, edge_type, edge_weight):
        return super().forward(x, edge_index[:, edge_type > 0], edge_weight[edge_type > 0])
"""
NAMED = ("torch_geometric.nn:GCN", "torch_geometric.nn:GraphSAGE", "torch_geometric.nn:GAT")
MODELS = (*NAMED, "tutorials:Planetoid", "tutorials:Attention", "tutorials:ByHand")
CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
TRAINED: dict[str, Any] = {"dtype": "float64", "dropout": 0.0, "optimizer": "sgd", "epochs": 2, "eval_every": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `TUTORIALS`, in a module that Python loads once."""
    return written(tmp_path_factory.mktemp("tutorials"), "tutorials", TUTORIALS)


def reference(name: str, folder: Path) -> Reference:
    return Reference(name, folder)


def model_of(name: str, folder: Path, width: int, num_classes: int, seed: int = 0) -> OwnModule:
    """The model in float64, without dropout where it has the key."""
    config = TrainConfig(model=reference(name, folder), hidden=8, dropout=0.0, dtype="float64")
    model = build_model(config, width, num_classes, seed)
    assert isinstance(model, OwnModule) and model.takes_graph
    return model


def pyg_logits(model: OwnModule, x: Tensor, edge_index: Tensor, **attributes: Tensor) -> Tensor:
    """What the user's module computes of a graph, called as PyG's examples call it."""
    from torch_geometric.data import Data

    if model.name.endswith("Planetoid"):
        return model.inner(Data(x=x, edge_index=edge_index))
    return model.inner(x, edge_index, **attributes)


def nodes_and_edges(blocks: tuple[Block, ...]) -> tuple[list[int], list[tuple[int, int]]]:
    """The nodes of a batch and its edges by global ids, one by one: a node has those drawn where it is nearest to the seeds."""
    found, reached = [], set[int]()
    for block in reversed(blocks):
        ids = block.src_ids.tolist()
        for row in range(block.num_dst):
            if ids[row] not in reached:
                found += [(ids[each], ids[row]) for each in block.indices[block.start[row] : block.end[row]]]
        reached |= set(ids[: block.num_dst])
    return blocks[0].src_ids.tolist(), found


def drawn(topology: Topology, batch: int) -> tuple[Block, ...]:
    seeds = np.random.default_rng(batch).permutation(topology.num_nodes)[:20].astype(np.int32)
    return Sampler(topology, (4, 3), seed=3).sample(BatchKey(0, 0, batch), seeds, transpose="none")


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_node_has_the_neighbours_that_were_drawn_where_it_was_reached_first(depth: int) -> None:
    topology = random_topology(90, 700, 4, relations=3, weights=True)
    for batch in range(5):
        blocks = Sampler(topology, (4, 3, 2)[:depth], seed=3).sample(
            BatchKey(0, 0, batch), np.arange(batch, 90, 9, dtype=np.int32), transpose="none"
        )
        graph = to_subgraph(blocks)
        ids, edges = nodes_and_edges(blocks)
        assert graph.n_id.tolist() == ids and graph.num_nodes == len(ids) and graph.batch_size == 10
        assert [(ids[s], ids[d]) for s, d in graph.edge_index.T.tolist()] == edges and len(edges) > 10
        assert topology.weights is not None and topology.edge_types is not None
        for (source, destination), weight, kind in zip(edges, graph.edge_weight, graph.edge_type, strict=True):
            row = slice(topology.indptr[destination], topology.indptr[destination + 1])
            places = row.start + np.flatnonzero(topology.indices[row] == source)
            assert (weight.item(), kind.item()) in {
                (topology.weights[each], topology.edge_types[each]) for each in places
            }


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_of_batches_are_those_of_pyg(folder: Path, name: str) -> None:
    topology = random_topology(120, 900, 2)
    model = model_of(name, folder, 7, 3)
    for batch in range(3):
        blocks = drawn(topology, batch)
        ids, edges = nodes_and_edges(blocks)
        place = {node: number for number, node in enumerate(ids)}
        edge_index = torch.tensor([[place[s] for s, _ in edges], [place[d] for _, d in edges]])
        x = torch.randn(len(ids), 7, dtype=torch.float64)
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        found = model(blocks, ours, StepRandom(0, training=False))
        wanted = pyg_logits(model, theirs, edge_index)[:20]
        torch.testing.assert_close(found, wanted, **CLOSE)
        parameters = [*model.parameters()]
        gradients = [
            torch.autograd.grad(each.square().sum(), [rows, *parameters])
            for each, rows in ((found, ours), (wanted, theirs))
        ]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("workspace_bytes", [1 << 30, 1000])
def test_exact_logits_are_those_of_pyg_on_the_whole_graph(
    tmp_path: Path, folder: Path, name: str, workspace_bytes: int
) -> None:
    """Of the whole graph at once, and of batches of nodes where its messages do not fit."""
    graph = random_graph(tmp_path / "home")
    rows = MemorySource(graph.features)
    model = model_of(name, folder, graph.features.width, graph.num_classes).eval()
    x, edge_index = whole_graph(graph)
    wanted = pyg_logits(model, x, edge_index).detach()
    nodes = np.arange(0, graph.topology.num_nodes, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphmill.trainers.inference.exact._WHOLE_BATCH", 37)
        found = [infer_exact(model, graph.topology, rows, workspace_bytes, node_ids=each) for each in (None, nodes)]
    torch.testing.assert_close(found[0], wanted, **CLOSE)
    torch.testing.assert_close(found[1], wanted[nodes], **CLOSE)


def whole_graph(graph: Any) -> tuple[Tensor, Tensor]:
    """The features in float64 and the edges of a graph, as PyG has them."""
    topology = graph.topology
    x = torch.empty((topology.num_nodes, graph.features.width), dtype=torch.float64)
    MemorySource(graph.features).gather(RowIds(np.arange(topology.num_nodes)), x, Ledger())
    destinations = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    return x, torch.from_numpy(np.stack([topology.indices.astype(np.int64), destinations]))


@pytest.mark.parametrize("name", [each for each in MODELS if "Planetoid" not in each])
def test_a_training_on_the_whole_graph_is_pygs_own_loop(tmp_path: Path, folder: Path, name: str) -> None:
    model = train_whole(tmp_path / "home", mode="device", model=reference(name, folder), **TRAINED)
    graph = random_graph(tmp_path / "home")
    by_hand = model_of(name, folder, graph.features.width, graph.num_classes, seed=5)
    (x, edge_index), ids = whole_graph(graph), np.array(graph.train_ids)
    optimiser = torch.optim.SGD(by_hand.parameters(), lr=0.02)
    for _ in range(2):
        optimiser.zero_grad()
        logits = pyg_logits(by_hand.train(), x, edge_index)
        torch.nn.functional.cross_entropy(logits[ids], torch.from_numpy(graph.labels[ids]).long()).backward()
        optimiser.step()
    for key, value in load(model.file("weights.safetensors").read_bytes()).items():
        torch.testing.assert_close(value, by_hand.state_dict()[key], **CLOSE)


@pytest.mark.parametrize("name", ["torch_geometric.nn:GCN", "tutorials:ByHand"])
def test_stored_batches_and_packed_rows_train_it_to_the_bits_of_minibatch(
    tmp_path: Path, folder: Path, name: str
) -> None:
    packed = build_packed(tmp_path / "packed", epochs=2)
    model: dict[str, Any] = {"model": reference(name, folder)}
    ways: dict[str, dict[str, Any]] = {
        "disk": {"trainer": "disk"},
        "stored": {"trainer": "minibatch", "samples": "stored"},
        "online": {"trainer": "minibatch", "samplers": 3},
    }
    found = [train_packed(packed, tmp_path / way, **model, **options) for way, options in ways.items()]
    weights = {content(each)["weights.safetensors"] for each in found}
    assert len(weights) == 1


def test_weights_and_relations_are_given_where_the_signature_takes_them(tmp_path: Path, folder: Path) -> None:
    """In batches, evaluations and on the whole graph: other weights and other relations give other logits."""
    with attributed(type_columns=()):
        graph = random_graph(tmp_path / "home")
        topology = graph.topology
        assert topology.weights is not None and topology.edge_types is not None
        model = model_of("tutorials:Typed", folder, graph.features.width, graph.num_classes).eval()
        x, edge_index = whole_graph(graph)
        types, weights = (
            torch.from_numpy(topology.edge_types.astype(np.int64)),
            torch.from_numpy(np.array(topology.weights)),
        )
        wanted = model.inner(x, edge_index, edge_type=types, edge_weight=weights)
        found = infer_exact(model, topology, MemorySource(graph.features))
        torch.testing.assert_close(found, wanted, **CLOSE)
        ones = np.ones(topology.num_edges, np.float32)
        for without in (replace(topology, weights=ones), replace(topology, edge_types=topology.edge_types * 0)):
            other = infer_exact(model, without, MemorySource(graph.features))
            assert not torch.allclose(found, other)
        options = {"model": reference("tutorials:Typed", folder)}
        train_small(tmp_path / "home", epochs=1, **options)
        train_whole(tmp_path / "home", mode="device", epochs=1, **options)


@pytest.mark.parametrize(
    ("parameters", "blocks", "form"),
    [
        (["x", "edge_index"], "dgl", "subgraph"),
        (["x", "edge_index", "edge_weight", "batch"], "dgl", "subgraph"),
        (["data"], "dgl", "subgraph"),
        (["args", "kwargs"], "subgraph", "subgraph"),
        (["blocks", "x"], "dgl", "dgl"),
        (["blocks", "x"], "pyg", "pyg"),
        (["layers", "data"], "pyg", "pyg"),
    ],
)
def test_the_signature_says_whether_a_module_takes_a_graph(parameters: list[str], blocks: str, form: str) -> None:
    assert form_of(parameters, blocks, "mine") == form


def test_a_refusal_names_the_convolutions(folder: Path) -> None:
    table = {"name": "mine", "model": "tutorials:Planetoid", "trainer": "fresh"}
    text = recipe(table, graph=sbm(), sampling={"fanouts": [4, 4], "batch_size": 64}, hotness={})
    pipeline = parse_pipeline(folder / "mine.toml", text.encode(), TrainTable)
    ((_, problem),) = model_problems(pipeline)
    assert "tutorials:Planetoid (built of GCNConv) cannot be trained with a history between its layers: " in problem
    assert "weigh edges by degrees" in problem


def test_what_does_not_go_together_is_explained(folder: Path) -> None:
    def build(name: str, **options: Any) -> Any:
        return build_model(TrainConfig(model=reference(name, folder), **options), 5, 3, 0)

    with pytest.raises(InputError, match=r'forward\(data\), which takes a graph, and blocks = "pyg" gives blocks'):
        build("tutorials:Planetoid", blocks="pyg")
    with pytest.raises(InputError, match="has a GCNConv inside with cached = True, which keeps the edges of the first"):
        build("tutorials:Cached")
    build("tutorials:Cached", trainer="fullgraph", settings=FullGraphSettings(mode="device"))
    assert callable(load_reference("torch_geometric.nn:GCN"))
