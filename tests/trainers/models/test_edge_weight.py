"""`edge_weight = true`: every model equals dense matrices of the data's weights in float64, and DGL's layers if the meaning is the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.kernels.blocks.coefficients import gcn_weights_reference
from graphmill.kernels.blocks.dgl_blocks import to_dgl
from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block, Stream
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.models.build import build_model, require_weights
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.gat import GatLayer
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import MappedSource, RowIds
from tests.trainers import graphs
from tests.trainers.graphs import random_graph, random_topology
from tests.trainers.inference.infer import infer_exact

RELATIONS = 3
TOPOLOGY = random_topology(90, 900, seed=2, relations=RELATIONS, weights=True)
MASKS = StepRandom(0, training=False)
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"model": "gcn"},
    "mean": {"model": "sage"},
    "sum": {"model": "sage", "aggregator": "sum"},
    "mean with self": {"model": "sage", "aggregator": "gcn"},
    "gin": {"model": "gin"},
    "gat": {"model": "gat", "heads": 3},
    "rgcn": {"model": "rgcn"},
}
FANOUTS = {"sampled": 4, "whole": -1}


def layer_of(name: str) -> Any:
    """A layer that gives logits, in float64, with drawn values."""
    config = TrainConfig(layers=1, hidden=6, dropout=0.0, edge_weight=True, **MODELS[name])
    model = build_model(config, 5, 4, 3, RELATIONS)
    assert isinstance(model, LayeredModel)
    torch.manual_seed(4)
    for parameter in model.double().parameters():
        parameter.data.normal_()
    return model.layers[0]


def sampled(fanout: int) -> Block:
    """A block with the data's weights, and its transpose."""
    sampler = Sampler(TOPOLOGY, (fanout,), seed=1)
    (block,) = sampler.sample(BatchKey(Stream.TRAIN, 0, 0), np.arange(30, dtype=np.int32), transpose="all")
    return block


def pruned(block: Block) -> Block:
    """The block without the edges of every third row."""
    end = np.where(np.arange(block.num_dst) % 3 == 1, block.start, block.end).astype(np.int32)
    return transpose(replace(block, end=end))


def weighted(layer: Any, block: Block) -> Block:
    """A copy of the block with the weights that the layer asks for."""
    found = replace(block)
    attach_weights((found,), TOPOLOGY, layer.edge_weight)
    return found


def outcome(layer: Any, block: Block) -> tuple[torch.Tensor, torch.Tensor]:
    """The aggregate of drawn rows, and the gradient of these."""
    x = rows_of(block).requires_grad_()
    out = layer.aggregate(block, x, MASKS.layer(1, block.dst_ids))
    out.backward(grad_of(out))
    assert x.grad is not None
    return out.detach(), x.grad


def rows_of(block: Block) -> torch.Tensor:
    return torch.randn(block.num_src, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def grad_of(out: torch.Tensor) -> torch.Tensor:
    return torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view_as(out)


def dense_rows(name: str, block: Block, edges: range, i: int) -> list[float]:
    """The factors of a row's edges by the documented formula, in plain Python, rounded once as weights of edges are."""
    assert block.weight is not None
    data = [float(block.weight[e]) for e in edges]
    degree, taken = int(TOPOLOGY.in_degree[block.dst_ids[i]]), len(edges)
    if name == "gcn":
        plain, _ = gcn_weights_reference(block, TOPOLOGY.in_degree, TOPOLOGY.out_degree)
        return [float(np.float32(plain[e]) * np.float32(w)) for e, w in zip(edges, data, strict=True)]
    if name in ("sum", "gin"):
        return [float(np.float32(np.float32(degree / max(1, taken)) * np.float32(w))) for w in data]
    total = sum(data) + (name == "mean with self")
    return [float(np.float32(w / total)) if total else 0.0 for w in data]


def dense(name: str, block: Block, x: torch.Tensor) -> torch.Tensor:
    """The aggregate of gcn, sage and gin as a product of a dense matrix."""
    matrix = torch.zeros(block.num_dst, block.num_src, dtype=torch.float64)
    for i in range(block.num_dst):
        edges = range(block.start[i], block.end[i])
        factors = dense_rows(name, block, edges, i)
        for e, factor in zip(edges, factors, strict=True):
            matrix[i, block.indices[e]] += factor
        if name == "gcn":
            d_in, d_out = (int(each[block.dst_ids[i]]) + 1 for each in (TOPOLOGY.in_degree, TOPOLOGY.out_degree))
            matrix[i, i] += float(np.float32(1 / np.sqrt(d_in) * (1 / np.sqrt(d_out))))
        elif name == "mean with self":
            assert block.weight is not None
            matrix[i, i] += float(np.float32(1 / (1 + sum(float(block.weight[e]) for e in edges))))
    return matrix @ x


def dense_relations(layer: Any, block: Block, x: torch.Tensor) -> torch.Tensor:
    """The sum over relations of the mapped weighted means, row by row."""
    assert block.weight is not None and block.edge_type is not None
    rows = []
    for i in range(block.num_dst):
        row = torch.zeros(4, dtype=torch.float64)
        for relation in range(RELATIONS):
            edges = [e for e in range(block.start[i], block.end[i]) if block.edge_type[e] == relation]
            total = sum(float(block.weight[e]) for e in edges)
            for e in edges:
                part = float(np.float32(float(block.weight[e]) / total)) if total else 0.0
                row = row + part * layer.matrices[relation] @ x[int(block.indices[e])]
        rows.append(row)
    return torch.stack(rows)


def assert_equals(layer: Any, block: Block, raw: Block, function: Any) -> None:
    """Values and gradients of rows are those of a function of (raw block, rows)."""
    out, grad = outcome(layer, block)
    x = rows_of(block).requires_grad_()
    expected = function(raw, x)
    expected.backward(grad_of(out))
    torch.testing.assert_close(out, expected.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(grad, x.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("fanout", FANOUTS.values(), ids=list(FANOUTS))
@pytest.mark.parametrize("change", [lambda block: block, pruned], ids=["all rows", "pruned"])
@pytest.mark.parametrize("name", MODELS)
def test_layers_equal_dense_matrices_of_the_datas_weights(name: str, change: Any, fanout: int) -> None:
    layer, raw = layer_of(name), change(sampled(fanout))
    assert layer.edge_weight.startswith("data")
    if name == "gat":
        assert_equals(layer, weighted(layer, raw), raw, lambda block, x: dense_attention(layer, block, x))
    elif name == "rgcn":
        assert_equals(layer, weighted(layer, raw), raw, lambda block, x: dense_relations(layer, block, x))
    else:
        assert_equals(layer, weighted(layer, raw), raw, lambda block, x: dense(name, block, x))


def dense_attention(layer: GatLayer, block: Block, x: torch.Tensor) -> torch.Tensor:
    """Softmax attention row by row, weights after the softmax."""
    assert block.weight is not None
    z = layer.projection(x).view(-1, layer.heads, layer.depth)
    rows = []
    for i in range(block.num_dst):
        edges = list(range(block.start[i], block.end[i]))
        sources = torch.tensor([*(int(block.indices[e]) for e in edges), i])
        score = (z[sources] * layer.left).sum(2) + (z[i] * layer.right).sum(1)
        alpha = torch.softmax(torch.nn.functional.leaky_relu(score, 0.2), dim=0)
        factor = torch.tensor([*(float(block.weight[e]) for e in edges), 1.0], dtype=torch.float64)
        rows.append(((alpha * factor[:, None])[:, :, None] * z[sources]).sum(0).flatten())
    return torch.stack(rows)


@pytest.mark.parametrize("fanout", FANOUTS.values(), ids=list(FANOUTS))
def test_attention_is_dgls_with_edge_weight(fanout: int) -> None:
    dgl = pytest.importorskip("dgl")
    layer, block = layer_of("gat"), sampled(fanout)
    theirs = dgl.nn.GATConv(5, layer.depth, layer.heads, bias=False).double()
    with torch.no_grad():
        theirs.fc.weight.copy_(layer.projection.weight)
        theirs.attn_l.copy_(layer.left[None])
        theirs.attn_r.copy_(layer.right[None])
    src, dst = to_dgl(block).edges(order="eid")
    own = torch.arange(block.num_dst)
    ends = torch.cat([src, own]), torch.cat([dst, own])
    graph = dgl.create_block(ends, num_src_nodes=block.num_src, num_dst_nodes=block.num_dst)
    factor = torch.cat([torch.as_tensor(block.weight).double(), torch.ones(block.num_dst, dtype=torch.float64)])
    assert_equals(
        layer,
        weighted(layer, block),
        block,
        lambda _, x: theirs(graph, (x, x[: block.num_dst]), edge_weight=factor).flatten(1),
    )


@pytest.mark.parametrize("name", ["sum", "gin", "gcn"])
def test_sums_are_dgls_with_edge_weight(name: str) -> None:
    """On whole rows: DGL's sum of weighted messages, those of gcn with the coefficients as further factors."""
    dgl = pytest.importorskip("dgl")
    layer, block = layer_of(name), sampled(-1)
    graph = to_dgl(block)
    factor = torch.as_tensor(block.weight).double()
    if name == "gcn":
        plain, own = gcn_weights_reference(block, TOPOLOGY.in_degree, TOPOLOGY.out_degree)
        factor = torch.from_numpy(plain * np.asarray(block.weight)).double()
    conv = dgl.nn.GINConv(None, "sum").double()

    def theirs(_: Block, x: torch.Tensor) -> torch.Tensor:
        summed = conv(graph, (x, torch.zeros(block.num_dst, 5, dtype=torch.float64)), edge_weight=factor)
        return summed if name != "gcn" else summed + torch.from_numpy(own).double()[:, None] * x[: block.num_dst]

    assert_equals(layer, weighted(layer, block), block, theirs)


@pytest.mark.parametrize("workspace_bytes", [1, 40_000, 2**30])
@pytest.mark.parametrize("name", MODELS)
def test_exact_inference_counts_the_same_weights(
    name: str, workspace_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one range, in a few, and node by node: a pass over the whole graph as one block, also for some nodes alone."""
    monkeypatch.setattr(graphs, "WEIGHTS", True)
    monkeypatch.setattr(graphs, "RELATIONS", RELATIONS)
    graph = random_graph(tmp_path)
    config = TrainConfig(layers=2, hidden=6, edge_weight=True, **MODELS[name])
    model = build_model(config, graph.features.width, graph.num_classes, 0, RELATIONS)
    everyone = np.arange(graph.topology.num_nodes, dtype=np.int32)
    blocks = Sampler(graph.topology, (-1, -1), seed=0).sample(BatchKey(Stream.EVAL, 0, 0), everyone)
    attach_weights(blocks, graph.topology, model.edge_weight)
    source = MappedSource(graph.features)
    x = torch.empty(len(everyone), graph.features.width)
    source.gather(RowIds(everyone), x, Ledger())
    with torch.no_grad():
        expected = model(blocks, x, MASKS)
    logits = infer_exact(model, graph.topology, source, workspace_bytes, folder=tmp_path)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    some = np.array([17, 3, 399])
    part = infer_exact(model, graph.topology, source, workspace_bytes, node_ids=some)
    torch.testing.assert_close(part, expected[torch.from_numpy(some)], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_parameters_match_finite_differences(name: str) -> None:
    config = TrainConfig(layers=2, hidden=6, dropout=0.0, edge_weight=True, **MODELS[name])
    model = build_model(config, 5, 4, 3, RELATIONS).double()
    sampler = Sampler(TOPOLOGY, (3, 2), seed=1)
    blocks = sampler.sample(BatchKey(Stream.TRAIN, 0, 0), np.arange(3, dtype=np.int32), transpose="all")
    attach_weights(blocks, TOPOLOGY, model.edge_weight)
    x = rows_of(blocks[0])[:, :5]
    parameters = [each for each in model.parameters() if each.numel() < 40]

    def function(*values: torch.Tensor) -> torch.Tensor:
        return model(blocks, x, StepRandom(0))

    assert torch.autograd.gradcheck(function, parameters)


def test_opposite_and_absent_weights_make_means_of_0() -> None:
    for name, shift in (("mean", 0), ("rgcn", 0)):
        layer, block = layer_of(name), sampled(4)
        block.weight = np.where(np.arange(len(block.indices)) % 2, -1.7, 1.7).astype(np.float32)
        block.weight[block.start[0] : block.end[0]] = 0
        if name == "rgcn":
            block.edge_type = np.zeros(len(block.indices), np.uint8)
        out, _ = outcome(layer, weighted(layer, block))
        even = (block.end - block.start) % 2 == 0
        assert even.sum() > 2 and not out[torch.from_numpy(even)].any() and not out[shift].any()
        assert torch.isfinite(out).all()


def test_weights_that_are_equal_change_no_mean() -> None:
    for name in ("mean", "mean with self", "rgcn"):
        layer, block = layer_of(name), sampled(4)
        block.weight = np.ones(len(block.indices), np.float32)
        plain = build_model(TrainConfig(layers=1, hidden=6, **MODELS[name]), 5, 4, 3, RELATIONS).double()
        plain.layers[0].load_state_dict(layer.state_dict())
        other = weighted(plain.layers[0], block)
        torch.testing.assert_close(
            outcome(layer, weighted(layer, block)), outcome(plain.layers[0], other), rtol=1e-6, atol=1e-6
        )


def test_a_graph_without_weights_is_refused() -> None:
    bare = replace(TOPOLOGY, weights=None)
    with pytest.raises(InputError, match="the edges of the graph have none"):
        require_weights(TrainConfig(edge_weight=True), bare)
    require_weights(TrainConfig(), bare)
    with pytest.raises(InputError, match="and a block has none"):
        block = replace(sampled(3), weight=None)
        attach_weights((block,), bare, "data gcn")
