"""A step on edges has the loss and the gradients of DGL's edge sampler, layers and dot product on the same edges and negatives."""

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

dgl = pytest.importorskip("dgl")
NODES, COLUMNS, KEY = 40, 6, BatchKey(0, 1, 2)


def undirected():
    """A graph with every edge in both directions."""
    source, target = np.random.default_rng(1).integers(0, NODES, (2, 110)).astype(np.int32)
    made = build_csc(source, target, NODES, undirected=True, duplicates="merge", self_loops="drop")
    return Topology(indptr=made.indptr, indices=made.indices, in_degree=made.in_degree, out_degree=made.out_degree)


def dgl_loss(name, positive, negative):
    """The mean losses as DGL's examples and torch have them."""
    if name == "binary":
        labels = torch.cat([torch.ones_like(positive), torch.zeros_like(negative.reshape(-1))])
        return functional.binary_cross_entropy_with_logits(torch.cat([positive, negative.reshape(-1)]), labels)
    between = positive[:, None] - negative
    return -functional.logsigmoid(between).mean() if name == "bpr" else (1 - between).clamp(min=0).mean()


def dgl_scores(edges, chosen, x, layers):
    """(float[p], float[p, k] scores of edges and negatives by DGL, its layers): no block, edge or place of ours is in it."""
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
        weights = {"fc_self.weight": own.own.weight, "fc_self.bias": own.own.bias}
        twin.load_state_dict(weights | {"fc_neigh.weight": own.neighbours.weight})
        h = twin(block, h) if layer else twin(block, h).relu()
        twins.append(twin)
    (a, b), (c, d) = (each.edges(order="eid") for each in pairs)
    return (h[a] * h[b]).sum(dim=1), (h[c] * h[d]).sum(dim=1).view(len(chosen), -1), twins


@pytest.mark.parametrize("name", ["binary", "bpr", "margin"])
def test_a_step_is_that_of_dgl(name):
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

    positive, negative, twins = dgl_scores(edges, chosen, x, model.layers)
    expected = dgl_loss(name, positive, negative)
    expected.backward()
    assert abs(loss.item() - expected.item()) < 1e-10
    for own, twin in zip(model.layers, twins, strict=True):
        for ours, theirs in (
            (own.own.weight, twin.fc_self.weight),
            (own.own.bias, twin.fc_self.bias),
            (own.neighbours.weight, twin.fc_neigh.weight),
        ):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-10)
