"""R-GCN: runs of relations, the layers of DGL and PyG in float64, and equal results however its edges come."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block, Stream
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.relations import relation_runs
from graphmill.trainers.models.layers.rgcn import RgcnLayer
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from tests.trainers.graphs import random_topology

RELATIONS = 5
BASES = (0, 2)
MASKS = StepRandom(0, training=False)


def sampled(fanout: int = 6, num_seeds: int = 40) -> Block:
    """A block of a graph with relations, with its transpose."""
    sampler = Sampler(random_topology(120, 1500, seed=2, relations=RELATIONS), (fanout,), seed=1)
    (block,) = sampler.sample(BatchKey(Stream.TRAIN, 0, 0), np.arange(num_seeds, dtype=np.int32), transpose="all")
    return block


def shuffled(block: Block) -> Block:
    """The same edges in another order inside each row, so that relations are mixed."""
    order = np.concatenate(
        [
            np.random.default_rng(i).permutation(np.arange(a, b))
            for i, (a, b) in enumerate(zip(block.start, block.end, strict=True))
        ]
    )
    assert block.edge_type is not None
    return transpose(replace(block, indices=block.indices[order], edge_type=block.edge_type[order]))


def pruned(block: Block) -> Block:
    """The block without the edges of every third row."""
    end = np.where(np.arange(block.num_dst) % 3 == 1, block.start, block.end).astype(np.int32)
    return transpose(replace(block, end=end))


def edges(block: Block) -> list[tuple[int, int, int]]:
    """(destination, relation, source) of each edge, in ascending order."""
    assert block.edge_type is not None
    return sorted(
        (i, int(block.edge_type[e]), int(block.indices[e]))
        for i in range(block.num_dst)
        for e in range(block.start[i], block.end[i])
    )


def layer(bases: int, width: int = 7, out: int = 4) -> RgcnLayer:
    """A layer that gives logits, with initial values, in float64."""
    config = TrainConfig(model="rgcn", layers=1, bases=bases, dropout=0.0)
    model = build_model(config, width, out, 3, RELATIONS)
    assert isinstance(model, LayeredModel)
    (found,) = model.double().layers
    assert isinstance(found, RgcnLayer)
    return found


def outcome(made: RgcnLayer, block: Block) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The layer's result, and the gradients of rows and parameters."""
    x = torch.randn(block.num_src, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    out = made.update(
        made.aggregate(block, x, MASKS.layer(1, block.dst_ids)), x[: block.num_dst], MASKS.layer(1, block.dst_ids)
    )
    weighed(out).backward()
    found: dict[str, Any] = {"x": x.grad, **{name: each.grad for name, each in made.named_parameters()}}
    return out.detach(), found


def weighed(out: torch.Tensor) -> torch.Tensor:
    """A sum in which every value has a weight of its own."""
    return (out * torch.linspace(0.5, 2, out.numel(), dtype=out.dtype).view_as(out)).sum()


@pytest.mark.parametrize("change", [lambda block: block, shuffled, pruned], ids=["sorted", "mixed", "pruned"])
def test_runs_hold_each_edge_once_under_its_destination_and_relation(change: Any) -> None:
    block = change(sampled())
    runs = relation_runs(block)
    relations = np.repeat(runs.relations, runs.counts).tolist()
    found = [
        (dst, relation, int(runs.block.indices[e]))
        for run, (relation, dst) in enumerate(zip(relations, runs.joined.t_dst, strict=True))
        for e in range(runs.block.start[run], runs.block.end[run])
    ]
    assert sorted(found) == edges(block)
    assert len(set(zip(relations, runs.joined.t_dst.tolist(), strict=True))) == runs.block.num_dst
    joined = [
        (i, int(runs.joined.indices[e]))
        for i in range(block.num_dst)
        for e in range(runs.joined.start[i], runs.joined.end[i])
    ]
    assert joined == [
        (int(i), run) for i, run in sorted(zip(runs.joined.t_dst.tolist(), range(len(relations)), strict=True))
    ]
    assert relation_runs(block) is runs


@pytest.mark.parametrize("bases", BASES)
def test_it_is_the_layer_of_pyg(bases: int) -> None:
    conv = pytest.importorskip("torch_geometric.nn").RGCNConv
    block, ours = sampled(), layer(bases)
    theirs = conv((7, 7), 4, RELATIONS, num_bases=bases or None, aggr="mean").double()
    with torch.no_grad():
        theirs.weight.copy_(torch.stack([each.T for each in ours.matrices]))
        theirs.root.copy_(ours.own.weight.T)
        theirs.bias.copy_(ours.own.bias)
        if ours.coefficients is not None:
            theirs.comp.copy_(ours.coefficients)
    out, grads = outcome(ours, block)
    x = torch.randn(block.num_src, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    rows = np.repeat(np.arange(block.num_dst), block.end - block.start)
    assert block.edge_type is not None
    pairs = torch.from_numpy(np.stack([block.indices, rows]).astype(np.int64))
    expected = theirs((x, x[: block.num_dst]), pairs, torch.from_numpy(block.edge_type.astype(np.int64)))
    weighed(expected).backward()
    torch.testing.assert_close(out, expected.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(grads["x"], x.grad, rtol=1e-10, atol=1e-10)
    matrices = torch.stack([grads[f"matrices.{k}"].T for k in range(len(ours.matrices))])
    torch.testing.assert_close(matrices, theirs.weight.grad, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(grads["own.weight"].T, theirs.root.grad, rtol=1e-10, atol=1e-10)
    if bases:
        torch.testing.assert_close(grads["coefficients"], theirs.comp.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("bases", BASES)
def test_it_is_the_layer_of_dgl(bases: int) -> None:
    dgl = pytest.importorskip("dgl")
    block, ours = sampled(), layer(bases)
    assert block.edge_type is not None
    rows = np.repeat(np.arange(block.num_dst), block.end - block.start)
    graph = dgl.graph((torch.from_numpy(block.indices).long(), torch.from_numpy(rows)), num_nodes=block.num_src)
    theirs = dgl.nn.pytorch.RelGraphConv(7, 4, RELATIONS, "basis" if bases else None, bases or None).double()
    with torch.no_grad():
        theirs.linear_r.W.copy_(torch.stack([each.T for each in ours.matrices]))
        if bases:
            theirs.linear_r.coeff.copy_(ours.coefficients)
        theirs.loop_weight.copy_(ours.own.weight.T)
        theirs.h_bias.copy_(ours.own.bias)
    counts: dict[tuple[int, int], int] = {}
    for i, relation, _ in edges(block):
        counts[i, relation] = counts.get((i, relation), 0) + 1
    norms = [1 / counts[i, int(r)] for i, r in zip(rows.tolist(), block.edge_type, strict=True)]
    out, grads = outcome(ours, block)
    x = torch.randn(block.num_src, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    kinds = torch.from_numpy(block.edge_type.astype(np.int64))
    expected = theirs(graph, x, kinds, torch.tensor(norms, dtype=torch.float64)[:, None])[: block.num_dst]
    weighed(expected).backward()
    torch.testing.assert_close(out, expected.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(grads["x"], x.grad, rtol=1e-10, atol=1e-10)
    matrices = torch.stack([grads[f"matrices.{k}"].T for k in range(len(ours.matrices))])
    torch.testing.assert_close(matrices, theirs.linear_r.W.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("bases", BASES)
@pytest.mark.parametrize("change", [shuffled, pruned], ids=["mixed", "pruned"])
def test_gradients_hold_for_edges_in_any_order_and_rows_without_any(bases: int, change: Any) -> None:
    block, made = change(sampled(num_seeds=9)), layer(bases)
    x = torch.randn(block.num_src, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: made.aggregate(block, rows, MASKS.layer(1, block.dst_ids)), (x,))


def test_shares_weigh_the_mean_of_each_relation() -> None:
    block, made = sampled(), layer(0)
    rng = np.random.default_rng(0)
    share = rng.random(len(block.indices)).astype(np.float32)
    weighted = relation_runs(replace(block, share=share)).block
    assert weighted.weight is not None
    for i in range(weighted.num_dst):
        part = share[weighted.start[i] : weighted.end[i]]
        np.testing.assert_allclose(weighted.weight[weighted.start[i] : weighted.end[i]], part / part.sum(), rtol=1e-6)
    equal = replace(block, share=np.full(len(block.indices), 0.25, np.float32))
    x = torch.randn(block.num_src, 7, dtype=torch.float64)
    masks = MASKS.layer(1, block.dst_ids)
    torch.testing.assert_close(made.aggregate(equal, x, masks), made.aggregate(block, x, masks), rtol=1e-6, atol=1e-6)


def test_a_graph_without_relations_is_refused() -> None:
    with pytest.raises(InputError, match="the edges of the graph have no relations"):
        build_model(TrainConfig(model="rgcn"), 5, 3, 0)
    with pytest.raises(InputError, match="a block without relations"):
        block = replace(sampled(), edge_type=None)
        layer(0).aggregate(block, torch.zeros(block.num_src, 7, dtype=torch.float64), MASKS.layer(1, block.dst_ids))
