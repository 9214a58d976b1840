"""A step on edges has the loss and gradients of DGL's edge sampler and of PyG's layers, by dot product, on the same edges and negatives."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.link_sampler import LinkSampler
from graphmill.kernels.links.negatives import DrawnNegatives, uniform_candidates
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Topology
from graphmill.trainers.models.layer import LayeredModel, initialise
from graphmill.trainers.models.layers.finish import LayerOptions
from graphmill.trainers.models.layers.sage import SageLayer
from graphmill.trainers.models.links.heads import DotHead
from graphmill.trainers.models.links.losses import LinkLoss, PairLoss
from graphmill.trainers.models.masks import StepRandom

NODES, COLUMNS, KEY = 40, 6, BatchKey(0, 1, 2)
DGL_NAMES = {"own.weight": "fc_self.weight", "own.bias": "fc_self.bias", "neighbours.weight": "fc_neigh.weight"}
PYG_NAMES = {"own.weight": "lin_r.weight", "own.bias": "lin_l.bias", "neighbours.weight": "lin_l.weight"}
"""Our name of a layer's parameter -> that of the library."""


def undirected():
    """A graph with every edge in both directions."""
    source, target = np.random.default_rng(1).integers(0, NODES, (2, 110)).astype(np.int32)
    made = build_csc(source, target, NODES, undirected=True, duplicates="merge", self_loops="drop")
    return Topology(indptr=made.indptr, indices=made.indices, in_degree=made.in_degree, out_degree=made.out_degree)


def mean_loss(name, positive, negative):
    """The mean losses as DGL's examples and torch have them."""
    if name == "binary":
        labels = torch.cat([torch.ones_like(positive), torch.zeros_like(negative.reshape(-1))])
        return functional.binary_cross_entropy_with_logits(torch.cat([positive, negative.reshape(-1)]), labels)
    between = positive[:, None] - negative
    return -functional.logsigmoid(between).mean() if name == "bpr" else (1 - between).clamp(min=0).mean()


def dgl_scores(edges, chosen, x, layers):
    """(float[p], float[p, k] scores of edges and negatives by DGL, its layers, our names of their parameters -> its names).

    No block, edge or place of ours is in it.
    """
    dgl = pytest.importorskip("dgl")
    source, target = edges.source, edges.target
    others = edges.negatives.draw(KEY, chosen, source[chosen], target[chosen], None)
    number = {(int(u), int(v)): e for e, (u, v) in enumerate(zip(source, target, strict=True))}
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl.dataloading.MultiLayerFullNeighborSampler(2),
        exclude="reverse_id",
        reverse_eids=torch.tensor([number[int(v), int(u)] for u, v in zip(source, target, strict=True)]),
        negative_sampler=lambda graph, eids: tuple(torch.from_numpy(e.reshape(-1).astype(np.int64)) for e in others),
    )
    ends = tuple(torch.from_numpy(each.astype(np.int64)) for each in (source, target))
    graph = dgl.graph(ends, num_nodes=NODES)
    inputs, *pairs, blocks = sampler.sample(graph, torch.from_numpy(chosen))
    h, twins = x[inputs], []
    for layer, (own, block) in enumerate(zip(layers, blocks, strict=True)):
        twin = dgl.nn.SAGEConv(own.own.in_features, own.own.out_features, "mean").double()
        twin.load_state_dict({theirs: own.get_parameter(mine).detach() for mine, theirs in DGL_NAMES.items()})
        h = twin(block, h) if layer else twin(block, h).relu()
        twins.append(twin)
    (a, b), (c, d) = (each.edges(order="eid") for each in pairs)
    return (h[a] * h[b]).sum(dim=1), (h[c] * h[d]).sum(dim=1).view(len(chosen), -1), twins, DGL_NAMES


def pyg_scores(edges, chosen, x, layers):
    """The same by PyG, whose layers pass messages over the whole graph without the chosen edges and their reverses."""
    nn = pytest.importorskip("torch_geometric.nn")
    source, target = (each.astype(np.int64) for each in (edges.source, edges.target))
    others = edges.negatives.draw(KEY, chosen, edges.source[chosen], edges.target[chosen], None)
    gone = {*zip(source[chosen], target[chosen], strict=True)} | {*zip(target[chosen], source[chosen], strict=True)}
    kept = [pair for pair in zip(source, target, strict=True) if pair not in gone]
    assert len(kept) <= len(source) - len(chosen)
    edge_index, h, twins = torch.from_numpy(np.array(kept).T.copy()), x, []
    for layer, own in enumerate(layers):
        twin = nn.SAGEConv(own.own.in_features, own.own.out_features, aggr="mean").double()
        twin.load_state_dict({theirs: own.get_parameter(mine).detach() for mine, theirs in PYG_NAMES.items()})
        h = twin(h, edge_index) if layer else twin(h, edge_index).relu()
        twins.append(twin)
    a, b, c, d = (
        torch.from_numpy(np.asarray(each).astype(np.int64)) for each in (source[chosen], target[chosen], *others)
    )
    return (h[a] * h[b]).sum(dim=-1), (h[c] * h[d]).sum(dim=-1), twins, PYG_NAMES


@pytest.mark.parametrize("library", [dgl_scores, pyg_scores])
@pytest.mark.parametrize("name", ["binary", "bpr", "margin"])
def test_a_step_is_that_of_the_library(name, library):
    topology = undirected()
    target = np.repeat(np.arange(NODES, dtype=np.int32), np.diff(topology.indptr))
    negatives = DrawnNegatives(seed=1, per_positive=3, candidates={"target": [uniform_candidates(0, NODES)]})
    edges = EdgeSeeds(source=topology.indices, target=target, negatives=negatives)
    chosen = np.random.default_rng(2).permutation(len(target))[:16]
    model = LayeredModel([SageLayer(COLUMNS, 8, LayerOptions()), SageLayer(8, 5, LayerOptions(last=True))])
    initialise(model, 1)
    model.double()
    x = torch.randn(NODES, COLUMNS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    sampler = LinkSampler(Sampler(topology, (-1, -1), seed=1), edges)
    blocks, links = sampler.sample(KEY, chosen, transpose=model.transpose), edges.batch(KEY, chosen)
    rows = model(blocks, x[blocks[0].src_ids], StepRandom(1))
    loss = PairLoss(DotHead(), LinkLoss(name))(rows, torch.from_numpy(links.scored)) / len(chosen)
    loss.backward()

    positive, negative, twins, names = library(edges, chosen, x, model.layers)
    expected = mean_loss(name, positive, negative)
    expected.backward()
    assert abs(loss.item() - expected.item()) < 1e-10
    for own, twin in zip(model.layers, twins, strict=True):
        for mine, theirs in names.items():
            torch.testing.assert_close(
                own.get_parameter(mine).grad, twin.get_parameter(theirs).grad, rtol=0, atol=1e-10
            )
