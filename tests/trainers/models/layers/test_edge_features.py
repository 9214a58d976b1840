"""Layers with features of edges: forward and gradients equal those of PyG and DGL in float64, on sampled, whole and pruned blocks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmill.kernels.blocks.pyg_blocks import to_pyg
from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block, Stream
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.batches.edge_rows import place_edges
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from tests.trainers.graphs import random_topology
from tests.trainers.models.layers.edge_formulas import by_hand, edges_of

RELATIONS, WIDTH, EDGE_WIDTH, CLASSES = 3, 5, 6, 4
TOPOLOGY = replace(
    random_topology(90, 900, seed=2, relations=RELATIONS), edge_ids=np.random.default_rng(3).integers(0, 500, 900)
)
"""Several edges share an id, as an edge and its reverse do."""
MASKS = StepRandom(0, training=False)
TABLE = torch.randn(500, EDGE_WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"model": "gcn"},
    "mean": {"model": "sage"},
    "sum": {"model": "sage", "aggregator": "sum"},
    "max": {"model": "sage", "aggregator": "max"},
    "mean with self": {"model": "sage", "aggregator": "gcn"},
    "gin": {"model": "gin"},
    "gat": {"model": "gat", "heads": 3},
    "rgcn": {"model": "rgcn"},
    "bases": {"model": "rgcn", "bases": 2},
    "rgat": {"model": "rgat", "heads": 2},
}


def layer_of(name: str) -> Any:
    """A layer that gives logits, in float64, with drawn values."""
    config = TrainConfig(layers=1, hidden=6, dropout=0.0, edge_features=True, **MODELS[name])
    model = build_model(config, WIDTH, CLASSES, 3, RELATIONS, None, EDGE_WIDTH)
    assert isinstance(model, LayeredModel)
    torch.manual_seed(4)
    for parameter in model.double().parameters():
        parameter.data.normal_()
    return model.layers[0]


def block_of(kind: str, layer: Any) -> Block:
    """A block with rows of edges and the weights that a layer asks for; "pruned" lacks the edges of every third row."""
    sampler = Sampler(TOPOLOGY, (4 if kind == "sampled" else -1,), seed=1)
    seeds = np.arange(30, dtype=np.int32)
    (block,) = sampler.sample(BatchKey(Stream.TRAIN, 0, 0), seeds, transpose="all", edge_ids=True)
    attach_weights((block,), TOPOLOGY, layer.edge_weight)
    edge_ids = place_edges((block,))
    block.edge_rows = TABLE[torch.from_numpy(edge_ids)]
    if kind == "pruned":
        end = np.where(np.arange(block.num_dst) % 3 == 1, block.start, block.end).astype(np.int32)
        block = transpose(replace(block, end=end))
    return block


def without_loops(block: Block) -> Block:
    """The block without edges from a node to itself, which PyG takes out before it adds its own."""
    assert block.edge_id is not None and block.edge_place is not None
    dst = np.searchsorted(block.end, np.arange(len(block.indices)), side="right")
    kept = block.indices != dst
    ends = np.cumsum([(kept[a:b]).sum() for a, b in zip(block.start, block.end, strict=True)]).astype(np.int32)
    alive = np.concatenate([np.arange(a, b) for a, b in zip(block.start, block.end, strict=True)])
    places = alive[kept[alive]]
    by_edge = {name: getattr(block, name)[places] for name in ("indices", "edge_id", "edge_place", "edge_type")}
    start = np.concatenate([np.zeros(1, np.int32), ends[:-1]]).astype(np.int32)
    return transpose(replace(block, start=start, end=ends, **by_edge))


def run(function: Any, x: Tensor, parameters: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The output of a function of x, and the gradients of x and of parameters."""
    x = x.clone().requires_grad_()
    out = function(x)
    seed = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view_as(out)
    return out.detach(), list(torch.autograd.grad((out * seed).sum(), [x, *parameters]))


def ours(layer: Any, block: Block, x: Tensor) -> Any:
    """The layer's output as a function of x."""
    masks = MASKS.layer(1, block.dst_ids)
    return lambda h: layer.update(layer.aggregate(block, h, masks), h[: block.num_dst], masks)


def x_of(block: Block) -> Tensor:
    return torch.randn(block.num_src, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def same(found: tuple[Tensor, list[Tensor]], expected: tuple[Tensor, list[Tensor]]) -> None:
    for mine, theirs in zip([found[0], *found[1]], [expected[0], *expected[1]], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["sampled", "whole", "pruned"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_layer_equals_the_formula(name: str, kind: str) -> None:
    layer = layer_of(name)
    block = block_of(kind, layer)
    parameters = [each for each in layer.parameters() if each.requires_grad]
    x = x_of(block)
    same(run(ours(layer, block, x), x, parameters), run(by_hand(name, layer, block, TABLE), x, parameters))


@pytest.mark.parametrize("kind", ["sampled", "whole", "pruned"])
def test_gat_equals_pyg(kind: str) -> None:
    nn_pyg = pytest.importorskip("torch_geometric.nn")
    layer = layer_of("gat")
    block = without_loops(block_of(kind, layer))
    heads, depth = layer.heads, layer.depth
    theirs = nn_pyg.GATConv(WIDTH, depth, heads, concat=False, edge_dim=EDGE_WIDTH).double()
    torch.manual_seed(6)
    with torch.no_grad():
        theirs.att_edge.normal_(), theirs.lin_edge.weight.normal_()
        theirs.lin.weight.copy_(layer.projection.weight)
        theirs.att_src.copy_(layer.left[None]), theirs.att_dst.copy_(layer.right[None])
        made = theirs.lin_edge.weight.view(heads, depth, EDGE_WIDTH)
        layer.edge.copy_((made * theirs.att_edge[0][:, :, None]).sum(1))
        theirs.bias.copy_(layer.bias.view(heads, depth).mean(0))
    src, dst, rows, _ = edges_of(block, TABLE)
    x = x_of(block)
    found = run(ours(layer, block, x), x, [layer.projection.weight, layer.left, layer.right, layer.edge])

    def pyg(h: Tensor) -> Tensor:
        """PyG gives every node a loop: the mean of its edges, as the block's own term has it."""
        out = theirs(h, torch.stack([src, dst]), rows)
        return out[: block.num_dst]

    shared = [theirs.lin.weight, theirs.att_src, theirs.att_dst, theirs.lin_edge.weight, theirs.att_edge]
    out, (of_x, of_map, of_src, of_dst, of_edges, of_vector) = run(pyg, x, shared)
    of_score = found[1][-1]  # float[H, F]: its chain to PyG's two parameters
    expected = out, [of_x, of_map, of_src[0], of_dst[0], of_score]
    same(found, expected)
    chained = theirs.att_edge.detach()[0][:, :, None] * of_score[:, None]
    torch.testing.assert_close(chained.reshape(heads * depth, -1), of_edges, rtol=1e-10, atol=1e-10)
    chained = (made.detach() * of_score[:, None]).sum(2)
    torch.testing.assert_close(chained[None], of_vector, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("library", ["pyg", "dgl"])
def test_gin_equals_gineconv(library: str) -> None:
    layer = layer_of("gin")
    block = replace(block_of("whole", layer), weight=None)
    src, dst, rows, _ = edges_of(block, TABLE)
    x, parameters = x_of(block), [*layer.mlp.parameters(), layer.eps]
    if library == "pyg":
        theirs: Any = pytest.importorskip("torch_geometric.nn").GINEConv(layer.mlp, train_eps=True, edge_dim=EDGE_WIDTH)
        theirs.lin, theirs.eps = layer.edges, layer.eps
        other, parameters = (
            lambda h: theirs(h, torch.stack([src, dst]), rows)[: block.num_dst],
            [*parameters, *layer.edges.parameters()],
        )
    else:
        dgl = pytest.importorskip("dgl")
        theirs = dgl.nn.GINEConv(layer.mlp, learn_eps=True).double()
        theirs.eps = layer.eps
        graph = dgl.graph((src, dst), num_nodes=block.num_src)
        other, parameters = (
            lambda h: theirs(graph, h, layer.edges(rows))[: block.num_dst],
            [*parameters, *layer.edges.parameters()],
        )
    same(run(ours(layer, block, x), x, parameters), run(other, x, parameters))


def test_rgcn_with_rows_of_zeros_equals_pyg() -> None:
    nn_pyg = pytest.importorskip("torch_geometric.nn")
    layer = layer_of("rgcn")
    block = block_of("whole", layer)
    src, dst, rows, place = edges_of(block, TABLE)
    assert block.edge_type is not None
    kind = torch.from_numpy(block.edge_type).long()[place]
    theirs = nn_pyg.RGCNConv((EDGE_WIDTH + WIDTH, WIDTH), CLASSES, RELATIONS, aggr="mean").double()
    with torch.no_grad():
        theirs.weight.copy_(torch.stack([each.T for each in layer.matrices]))
        theirs.root.copy_(layer.own.weight.T), theirs.bias.copy_(layer.own.bias)

    def pyg(h: Tensor) -> Tensor:
        """Messages as sources: one for each edge, the sender's row with the edge's row beside it."""
        messages = torch.cat([h[src], rows], dim=1)
        edges = torch.stack([torch.arange(len(src)), dst])
        return theirs((messages, h[: block.num_dst]), edges, kind)

    x = x_of(block)
    found = run(ours(layer, block, x), x, [*layer.matrices])
    out, (of_x, of_weight) = run(pyg, x, [theirs.weight])
    same(found, (out, [of_x, *(each.T for each in of_weight)]))


@pytest.mark.parametrize("kind", ["sampled", "pruned"])
@pytest.mark.parametrize("name", ["mean", "sum"])
def test_one_product_for_own_rows_and_messages(name: str, kind: str) -> None:
    """What a sampled block is trained by equals its two halves."""
    layer = layer_of(name)
    assert layer.joins_own
    block = block_of(kind, layer)
    x, masks, parameters = x_of(block), MASKS.layer(1, block.dst_ids), [*layer.parameters()]
    joined = run(lambda h: layer.forward_block(block, h, masks), x, parameters)
    same(joined, run(ours(layer, block, x), x, parameters))


@pytest.mark.parametrize("name", ["mean", "gin"])
def test_rows_beside_change_no_bit_of_a_row(name: str) -> None:
    """What a row of messages sums to depends on the row alone, so an exact evaluation may take any ranges of rows."""
    layer = layer_of(name)
    block = block_of("whole", layer)
    x = x_of(block)
    masks = MASKS.layer(1, block.dst_ids)
    expected = layer.aggregate(block, x, masks)
    for low, high in ((0, 7), (7, 30)):
        part = replace(block, num_dst=high - low, start=block.start[low:high], end=block.end[low:high])
        assert torch.equal(layer.aggregate(part, x, masks), expected[low:high])


def test_blocks_without_rows_are_refused() -> None:
    for name in MODELS:
        layer = layer_of(name)
        block = replace(block_of("sampled", layer), edge_rows=None, edge_place=None)
        with pytest.raises(InputError, match="features of edges"):
            layer.aggregate(block, x_of(block), MASKS.layer(1, block.dst_ids))


def test_a_block_without_edges_has_zeros() -> None:
    for name in MODELS:
        layer = layer_of(name)
        block = block_of("whole", layer)
        empty = transpose(replace(block, end=block.start.copy()))
        out, grads = run(ours(layer, empty, x_of(empty)), x_of(empty), [])
        assert torch.isfinite(out).all() and all(torch.isfinite(each).all() for each in grads)


@pytest.mark.parametrize("kind", ["sampled", "pruned"])
def test_blocks_of_pyg_have_the_rows_of_their_edges(kind: str) -> None:
    block = block_of(kind, layer_of("mean"))
    src, dst, rows, _ = edges_of(block, TABLE)
    made = to_pyg(block)
    assert torch.equal(made.edge_index, torch.stack([src, dst])) and torch.equal(made.edge_attr, rows)


def test_transformer_convolution_reads_them_as_pyg_has_them() -> None:
    """The score q . (k + W e) of a convolution of PyG over a block equals the one over the plain edges, with its gradients."""
    nn_pyg = pytest.importorskip("torch_geometric.nn")
    block = block_of("sampled", layer_of("mean"))
    src, dst, rows, _ = edges_of(block, TABLE)
    theirs, x = nn_pyg.TransformerConv(WIDTH, CLASSES, 2, edge_dim=EDGE_WIDTH).double(), x_of(block)
    made, parameters = to_pyg(block), [*theirs.parameters()]
    size = made.size[1]
    found = run(lambda h: theirs((h, h[:size]), made.edge_index, made.edge_attr), x, parameters)
    expected = run(lambda h: theirs((h, h[:size]), torch.stack([src, dst]), rows), x, parameters)
    same(found, expected)


def test_places_name_each_edge_id_once() -> None:
    """Blocks of a batch share the rows of edges: each id once, whatever blocks and directions it is in."""
    sampler = Sampler(TOPOLOGY, (5, 5), seed=1)
    blocks = sampler.sample(BatchKey(Stream.TRAIN, 0, 0), np.arange(9, dtype=np.int32), edge_ids=True)
    edge_ids = place_edges(blocks)
    assert (np.diff(edge_ids) > 0).all()
    drawn = np.concatenate([block.edge_id for block in blocks])
    assert len(edge_ids) == len(set(drawn.tolist())) < len(drawn), "the graph has edges with one id"
    for block in blocks:
        assert block.edge_place is not None
        np.testing.assert_array_equal(edge_ids[block.edge_place], block.edge_id)
