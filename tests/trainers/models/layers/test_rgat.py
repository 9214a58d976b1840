"""Attention per relation: the layers of DGL in float64, pairs of relations and sources, and equal results however edges come."""

from typing import Any

import numpy as np
import pytest
import torch

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Block
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.layers.rgat import RgatLayer, relation_pairs
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from tests.trainers.models.layers.test_rgcn import MASKS, RELATIONS, edges, pruned, sampled, shuffled, weighed

CHANGES: list[Any] = [lambda block: block, shuffled, pruned]


def layer(heads: int, out: int = 4, last: bool = True, dropout: float = 0.0) -> RgatLayer:
    """A layer with initial values and attention vectors that are not zero, in float64."""
    config = TrainConfig(model="rgat", layers=1, hidden=out, heads=heads, dropout=0.0, attention_dropout=dropout)
    config = config if last else TrainConfig(**{**vars(config), "head": "linear"})
    model = build_model(config, 7, out, 3, RELATIONS)
    assert isinstance(model, LayeredModel)
    (found,) = model.double().layers
    assert isinstance(found, RgatLayer)
    with torch.no_grad():
        draw = torch.Generator().manual_seed(5)
        for each in (found.left, found.right, found.own.bias):
            each.copy_(torch.randn(each.shape, generator=draw))
    return found


def outcome(made: RgatLayer, block: Block, masks: StepRandom = MASKS) -> tuple[torch.Tensor, dict[str, Any]]:
    """The aggregate and own term, and the gradients of rows and parameters."""
    x = torch.randn(block.num_src, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    rng = masks.layer(1, block.dst_ids)
    agg = made.aggregate(block, x, rng)
    out = made.own(x[: block.num_dst]) + (agg.view(len(agg), made.heads, -1).mean(1) if made.average else agg)
    weighed(out).backward()
    return out.detach(), {"x": x.grad, **{name: each.grad for name, each in made.named_parameters()}}


def theirs(made: RgatLayer, block: Block) -> tuple[torch.Tensor, dict[str, Any]]:
    """The same by DGL: a GATConv for each relation, added up, and a linear map of the own row."""
    dgl = pytest.importorskip("dgl")
    x = torch.randn(block.num_src, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    listed, total, convs = edges(block), torch.zeros((), dtype=torch.float64), []
    for relation in range(RELATIONS):
        chosen = [(src, dst) for dst, kind, src in listed if kind == relation]
        graph = dgl.create_block(
            tuple(torch.tensor(ends) for ends in zip(*chosen, strict=True)), block.num_src, block.num_dst
        )
        conv = dgl.nn.GATConv((7, 7), made.depth, made.heads, bias=False, allow_zero_in_degree=True).double()
        with torch.no_grad():
            conv.fc_src.weight.copy_(made.matrices[relation])
            conv.fc_dst.weight = conv.fc_src.weight
            conv.attn_l.copy_(made.left[relation].view(1, made.heads, made.depth))
            conv.attn_r.copy_(made.right[relation].view(1, made.heads, made.depth))
        total = total + conv(graph, (x, x[: block.num_dst]))
        convs.append(conv)
    out = made.own(x[: block.num_dst]) + (total.mean(1) if made.average else total.flatten(1))
    made.zero_grad()
    weighed(out).backward()
    found: dict[str, Any] = {"x": x.grad, "own.weight": made.own.weight.grad, "own.bias": made.own.bias.grad}
    found |= {f"matrices.{i}": conv.fc_src.weight.grad for i, conv in enumerate(convs)}
    for name, theirs in (("left", "attn_l"), ("right", "attn_r")):
        found[name] = torch.stack([getattr(conv, theirs).grad.flatten() for conv in convs])
    return out.detach(), found


@pytest.mark.parametrize("change", CHANGES, ids=["sorted", "mixed", "pruned"])
@pytest.mark.parametrize(("heads", "last"), [(1, True), (3, True), (2, False)])
def test_it_is_a_sum_of_attentions_of_dgl(change: Any, heads: int, last: bool) -> None:
    made = layer(heads, last=last)
    ours = outcome(made, change(sampled()))
    ours = ours[0], {name: grad.clone() for name, grad in ours[1].items()}
    expected = theirs(made, change(sampled()))
    torch.testing.assert_close(ours[0], expected[0], rtol=1e-10, atol=1e-10)
    assert ours[1].keys() == expected[1].keys()
    for name, grad in expected[1].items():
        torch.testing.assert_close(ours[1][name], grad, rtol=1e-9, atol=1e-10, msg=name)


@pytest.mark.parametrize("change", CHANGES, ids=["sorted", "mixed", "pruned"])
def test_pairs_hold_each_edge_once(change: Any) -> None:
    block = change(sampled())
    pairs = relation_pairs(block)
    runs = pairs.runs
    relations, of_pair = np.repeat(runs.relations, runs.counts), np.repeat(runs.relations, pairs.counts)
    found = []
    for run, dst in enumerate(np.asarray(runs.joined.t_dst).tolist()):
        for e in range(pairs.block.start[run], pairs.block.end[run]):
            pair = pairs.block.indices[e]
            assert of_pair[pair] == relations[run]
            found.append((dst, int(relations[run]), int(pairs.picked.indices[pair])))
    assert sorted(found) == edges(block)
    assert len(set(zip(of_pair.tolist(), pairs.picked.indices.tolist(), strict=True))) == pairs.picked.num_dst
    assert relation_pairs(block) is pairs


def test_attention_that_is_dropped_is_keyed_by_the_ends_of_an_edge() -> None:
    """The mask does not depend on the order of edges, and evaluation draws none."""
    made, masks = layer(2, dropout=0.5), StepRandom(0, 1, 2)
    dropped, mixed = outcome(made, sampled(), masks)[0], outcome(made, shuffled(sampled()), masks)[0]
    torch.testing.assert_close(dropped, mixed, rtol=1e-10, atol=1e-10)
    whole = outcome(made, sampled())[0]
    assert not torch.allclose(dropped, whole)
    torch.testing.assert_close(whole, outcome(layer(2), sampled())[0])


def test_a_block_without_relations_is_refused() -> None:
    block = sampled()
    block.edge_type = None
    with pytest.raises(InputError, match='a block without relations, and model = "rgat"'):
        outcome(layer(1), block)
