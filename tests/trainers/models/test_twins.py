"""Each layer equals its twin in dgl.nn, forward and gradients, on sampled blocks and on the full graph."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.kernels.blocks.dgl_blocks import to_dgl
from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.types import Block, Topology
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.gat import GatLayer
from graphmill.trainers.models.layers.gcn import GcnLayer
from graphmill.trainers.models.layers.gin import GinLayer
from graphmill.trainers.models.layers.sage import SageGcnLayer, SageLayer, SageMaxLayer
from graphmill.trainers.models.masks import StepRandom
from tests.trainers.graphs import random_topology
from tests.trainers.models.test_models import blocks_of, small_model

dgl = pytest.importorskip("dgl")
OPTIONS = LayerOptions(last=True)
TOPOLOGY = random_topology(num_nodes=80, num_edges=500, seed=6)


def full_block(topology: Topology, model: LayeredModel) -> Block:
    """The whole graph as one block: every node is destination and source."""
    (block,) = blocks_of(topology, np.arange(topology.num_nodes), model, fanouts=(-1,))
    return block


def sampled_block(topology: Topology, model: LayeredModel) -> Block:
    """A block whose rows are cut down to three edges."""
    (block,) = blocks_of(topology, np.arange(0, 60, 2), model, fanouts=(3,))
    assert (block.end - block.start).max() == 3 < topology.in_degree.max()
    return block


def with_own_edges(block: Block) -> Any:
    """The DGL block with an edge from every destination to itself, after its own edges; weights included."""
    graph = to_dgl(block)
    own = torch.arange(block.num_dst)
    src, dst = graph.edges(order="eid")
    made = dgl.create_block(
        (torch.cat([src, own]), torch.cat([dst, own])), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst
    )
    if "weight" in graph.edata:
        made.edata["weight"] = torch.cat([graph.edata["weight"], graph.dstdata["self_weight"]]).double()
    return made


class SageTwin:
    def __init__(self, layer: SageLayer, in_width: int, out_width: int):
        self.module = dgl.nn.SAGEConv(in_width, out_width, "mean").double()
        pairs = {
            "fc_self.weight": layer.own.weight,
            "fc_self.bias": layer.own.bias,
            "fc_neigh.weight": layer.neighbours.weight,
        }
        self.module.load_state_dict({name: value.detach() for name, value in pairs.items()})
        self.pairs = {name: (value, dict(self.module.named_parameters())[name]) for name, value in pairs.items()}

    def __call__(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        return self.module(to_dgl(block), x)


class GcnTwin:
    def __init__(self, layer: GcnLayer, in_width: int, out_width: int):
        self.module = dgl.nn.GraphConv(in_width, out_width, norm="none").double()
        self.module.load_state_dict({"weight": layer.linear.weight.detach().T, "bias": layer.linear.bias.detach()})
        self.pairs = {
            "weight": (layer.linear.weight, self.module.weight),
            "bias": (layer.linear.bias, self.module.bias),
        }

    def __call__(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        graph = with_own_edges(block)
        return self.module(graph, (x, x[: block.num_dst]), edge_weight=graph.edata["weight"])


class GatTwin:
    def __init__(self, layer: GatLayer, in_width: int, out_width: int):
        self.module = dgl.nn.GATConv(in_width, layer.depth, layer.heads).double()
        self.average = layer.average
        pairs = {"attn_l": layer.left, "attn_r": layer.right, "fc.weight": layer.projection.weight, "bias": layer.bias}
        known = dict(self.module.named_parameters())
        self.module.load_state_dict({name: value.detach().view(known[name].shape) for name, value in pairs.items()})
        self.pairs = {name: (value, known[name]) for name, value in pairs.items()}

    def __call__(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        out = self.module(with_own_edges(block), (x, x[: block.num_dst]))
        return out.mean(dim=1) if self.average else out.flatten(1)


class GinTwin:
    def __init__(self, layer: GinLayer, in_width: int, out_width: int):
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(in_width, out_width), torch.nn.ReLU(), torch.nn.Linear(out_width, out_width)
        ).double()
        self.mlp.load_state_dict(layer.mlp.state_dict())
        self.module = dgl.nn.GINConv(self.mlp, "sum", init_eps=float(layer.eps.detach()), learn_eps=True).double()
        self.module.eps.data.copy_(layer.eps.data)  # its own initial value is rounded to float32
        self.pairs = {"eps": (layer.eps, self.module.eps)}
        self.pairs |= {n: (a, b) for (n, a), b in zip(layer.mlp.named_parameters(), self.mlp.parameters(), strict=True)}

    def __call__(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        graph = to_dgl(block)
        weight = None if block.weight is None else graph.edata["weight"].double()
        return self.module(graph, (x, x[: block.num_dst]), edge_weight=weight)


class SageGcnTwin:
    def __init__(self, layer: SageGcnLayer, in_width: int, out_width: int):
        self.module = dgl.nn.SAGEConv(in_width, out_width, "gcn").double()
        pairs = {"fc_neigh.weight": layer.linear.weight, "bias": layer.linear.bias}
        self.module.load_state_dict({name: value.detach() for name, value in pairs.items()})
        self.pairs = {name: (value, dict(self.module.named_parameters())[name]) for name, value in pairs.items()}

    def __call__(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        return self.module(to_dgl(block), (x, x[: block.num_dst]))


class SageMaxTwin:
    """DGL's own reduction between two maps; its module of the name has another map inside the maximum."""

    def __init__(self, layer: SageMaxLayer, in_width: int, out_width: int):
        twin = copy.deepcopy(layer)
        self.own, self.neighbours = twin.own, twin.neighbours
        self.pairs = {
            "own": (layer.own.weight, self.own.weight),
            "bias": (layer.own.bias, self.own.bias),
            "neighbours": (layer.neighbours.weight, self.neighbours.weight),
        }

    def __call__(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        graph = to_dgl(block)
        graph.srcdata["h"] = x
        graph.update_all(dgl.function.copy_u("h", "m"), dgl.function.max("m", "a"))
        return self.own(x[: block.num_dst]) + self.neighbours(graph.dstdata["a"])


CASES = [
    (SageGcnLayer, SageGcnTwin, OPTIONS),
    (SageMaxLayer, SageMaxTwin, OPTIONS),
    (SageLayer, SageTwin, OPTIONS),
    (GcnLayer, GcnTwin, OPTIONS),
    (GinLayer, GinTwin, OPTIONS),
    (GatLayer, GatTwin, OPTIONS),
    (GatLayer, GatTwin, LayerOptions(last=True, heads=3)),
    (GatLayer, GatTwin, LayerOptions(last=False, heads=4)),
]


@pytest.mark.parametrize("make_block", [full_block, sampled_block])
@pytest.mark.parametrize(("kind", "twin_kind", "options"), CASES)
def test_layer_equals_its_twin_in_dgl(kind: Any, twin_kind: Any, options: LayerOptions, make_block: Any) -> None:
    torch.manual_seed(3)
    layer = kind(7, 8, options).double()
    for parameter in layer.parameters():
        parameter.data.normal_()
    layer.finish = torch.nn.Identity()
    layer.finish.forward = lambda h, h_dst, rng, bias=0: h + bias  # the convolution alone
    block, twin = make_block(TOPOLOGY, LayeredModel([layer])), twin_kind(layer, 7, 8)
    x = torch.randn(block.num_src, 7, dtype=torch.float64)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    rng = StepRandom(0).layer(1, block.dst_ids)
    out = layer.update(layer.aggregate(block, ours, rng), ours[: block.num_dst], rng)
    expected = twin(block, theirs)
    # Shares of a mean with the node itself are float32, as all weights of edges.
    near = 1e-6 if kind is SageGcnLayer else 1e-9
    torch.testing.assert_close(out, expected, rtol=near, atol=near)
    grad = torch.randn_like(out)
    out.backward(grad)
    expected.backward(grad)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=near, atol=near)
    for name, (mine, other) in twin.pairs.items():
        own = mine.grad.T if name == "weight" else mine.grad  # DGL's GraphConv holds it the other way round
        torch.testing.assert_close(own.reshape(other.grad.shape), other.grad, rtol=near, atol=near, msg=name)


def test_a_plain_gin_block_is_summed_like_dgls() -> None:
    """Without weights on the block the sum is the plain one, on a sampled block too."""
    model = small_model("sage")
    block = sampled_block(TOPOLOGY, model)
    assert block.weight is None
    layer = GinLayer(7, 8, OPTIONS).double()
    x = torch.randn(block.num_src, 7, dtype=torch.float64)
    rng = StepRandom(0).layer(1, block.dst_ids)
    out = layer.update(layer.aggregate(block, x, rng), x[: block.num_dst], rng)
    torch.testing.assert_close(out, GinTwin(layer, 7, 8)(block, x), rtol=1e-9, atol=1e-9)


def test_relations_are_handed_over() -> None:
    types = np.arange(TOPOLOGY.num_edges).astype(np.uint8) % 7
    topology = replace(TOPOLOGY, edge_types=types)
    block = sampled_block(topology, LayeredModel([SageLayer(5, 4, OPTIONS)]))
    assert block.edge_type is not None and len(set(block.edge_type.tolist())) > 3
    assert to_dgl(block).edata["edge_type"].tolist() == block.edge_type.tolist()


def test_removed_edges_are_not_handed_over() -> None:
    (block,) = blocks_of(TOPOLOGY, np.arange(20), small_model("gcn"), fanouts=(4,))
    end = block.end.copy()
    end[3] = block.start[3]
    pruned = Block(**{name: getattr(block, name) for name in block.__dataclass_fields__} | {"end": end})
    graph = to_dgl(transpose(pruned))
    assert graph.num_edges() == pruned.num_edges < block.num_edges
    assert graph.in_degrees().tolist() == (end - block.start).tolist()
    src, dst = graph.edges(order="eid")
    expected = [(s, i) for i in range(20) for s in block.indices[block.start[i] : end[i]]]
    assert list(zip(src.tolist(), dst.tolist(), strict=True)) == expected
