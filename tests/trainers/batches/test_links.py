"""Edges as seeds of batches and gradients: the same bits at any number of workers, and nothing that gives an edge away."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.graph.read import Graph
from graphmill.assets.samples.record import decode, encode
from graphmill.kernels.blocks.coefficients import gcn_weights
from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.link_sampler import LinkSampler
from graphmill.kernels.links.negatives import DrawnNegatives, uniform_candidates
from graphmill.kernels.links.splits import TRAIN, split_edges
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.sampling.walk import Walks, WalkSampler
from graphmill.kernels.types import BatchKey, Block, Topology
from graphmill.trainers.batches.batch import MiniBatch
from graphmill.trainers.batches.links import LinkBatching
from graphmill.trainers.batches.source import OnlineSource
from graphmill.trainers.loop.executor import BatchGradient
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import initialise
from graphmill.trainers.models.links.heads import link_head
from graphmill.trainers.models.links.losses import LinkLoss, PairLoss
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.rows.source import MemorySource
from tests.trainers.graphs import random_graph

SIZE = 64


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return random_graph(tmp_path_factory.mktemp("home"))


def split_graph(graph: Graph) -> tuple[Topology, EdgeSeeds, KnownEdges]:
    """The topology with the training edges alone, these edges as seeds, and those that are held out."""
    topology, triples = graph.topology, Triples(num_nodes=graph.topology.num_nodes)
    source = np.array(topology.indices)
    target = np.repeat(np.arange(topology.num_nodes, dtype=np.int32), np.diff(topology.indptr))
    split = split_edges(triples, source, target, seed=1, train_ratio=0.8, valid_ratio=0.1)
    held_out = KnownEdges(triples, source[split != TRAIN], target[split != TRAIN])
    everywhere = {"target": [uniform_candidates(0, topology.num_nodes)]}
    negatives = DrawnNegatives(seed=1, per_positive=2, candidates=everywhere, known=KnownEdges(triples, source, target))
    own = np.flatnonzero(split == TRAIN)[:400]
    edges = EdgeSeeds(source=source[own], target=target[own], negatives=negatives)
    ends, how = (source[split == TRAIN], target[split == TRAIN]), {"duplicates": "keep", "self_loops": "keep"}
    kept = build_csc(*ends, topology.num_nodes, undirected=False, **how)
    arrays = {name: getattr(kept, name) for name in ("indptr", "indices", "in_degree", "out_degree")}
    return Topology(**arrays), edges, held_out


def open_links(graph: Graph, workers: int = 2) -> OnlineSource:
    topology, edges, _ = split_graph(graph)
    batching = LinkBatching(
        topology=topology,
        labels=graph.labels,
        edges=edges,
        plan=EpochPlan(np.arange(len(edges.source)), SIZE, seed=1, accumulate=3),
        edge_weight="gcn",
        queue_bytes=2**22,
    )
    samplers = [LinkSampler(Sampler(topology, (4, 3), seed=1), edges) for _ in range(workers)]
    return OnlineSource(batching, MemorySource(graph.features), samplers)


def contents(batch: MiniBatch) -> list[Any]:
    """Everything a batch holds, as comparable values."""
    arrays = [batch.seeds, batch.labels, batch.x.numpy()]
    arrays += [getattr(block, field.name) for block in batch.blocks for field in fields(block)]
    head = [batch.key, batch.train_epoch, batch.position, batch.group, batch.group_seeds]
    return head + [array.tobytes() if isinstance(array, np.ndarray) else array for array in arrays]


def test_batches_are_byte_equal_at_any_number_of_workers_and_from_any_position(graph: Graph) -> None:
    runs = [[contents(batch) for batch in open_links(graph, workers).batches(2)] for workers in (1, 2, 8)]
    assert len(runs[0]) == 7
    assert runs[0] == runs[1] == runs[2]
    assert [contents(batch) for batch in open_links(graph).batches(2, 4)] == runs[0][4:]


def test_stored_batches_of_the_nodes_give_the_same_batches(graph: Graph) -> None:
    """Blocks are stored as they are drawn for the nodes of a batch; no node leaves a block with an edge, so rows that were packed fit."""
    topology, edges, _ = split_graph(graph)
    online, sampler = open_links(graph), Sampler(topology, (4, 3), seed=1)
    stored = {}
    for planned in online.batching.plan.batches(1):
        nodes = edges.batch(planned.key, planned.seeds).nodes
        stored[planned.key] = encode(planned.key, sampler.sample(planned.key, nodes, transpose="none"))

    class Stored:
        def sample(self, batch: BatchKey, seeds: Any, *, transpose: Any = "hidden") -> tuple[Block, ...]:
            record = decode(stored[batch])
            assert (record.seeds == seeds).all()
            assert transpose == "none"
            return record.blocks

    offline = OnlineSource(online.batching, online.features, [LinkSampler(Stored(), edges)])
    drawn = [contents(batch) for batch in online.batches(1)]
    assert [contents(batch) for batch in offline.batches(1)] == drawn
    for batch in online.batches(1):
        assert (batch.input_ids == decode(stored[batch.key]).blocks[0].src_ids).all()


def test_blocks_have_no_target_no_reverse_and_nothing_that_is_held_out(graph: Graph) -> None:
    topology, edges, held_out = split_graph(graph)
    seen = []
    for batch in open_links(graph).batches(0):
        nodes, own = batch.blocks[-1].dst_ids, batch.seeds
        seen += own.tolist()
        assert batch.labels.shape == (len(own), 3, 3)
        assert (batch.labels[..., 2] == 0).all()
        assert (nodes[batch.labels[:, 0, 0]] == edges.source[own]).all()
        assert (nodes[batch.labels[:, 0, 1]] == edges.target[own]).all()
        targets = KnownEdges(held_out.triples, edges.source[own], edges.target[own])
        for block in batch.blocks:
            row = np.repeat(block.dst_ids, block.end - block.start)
            ends = block.src_ids[block.indices], row
            assert not targets.contains(*ends).any()
            assert not held_out.contains(*ends).any()
            # The weights are those of the edges that are left, and so are the transposes.
            expected = gcn_weights(block, topology.in_degree, topology.out_degree)
            assert (block.weight == expected[0]).all()
            assert block is batch.blocks[0] or len(block.t_edge) == len(block.indices)
    assert sorted(seen) == [*range(400)]


def trained(graph: Graph, workers: int, start: int = 0, model: Any = None) -> Any:
    """A model after one epoch of plain gradient steps, from a position on."""
    if model is None:
        model = build_model(TrainConfig(model="gcn", layers=2, hidden=8), graph.features.width, 8, 3)
        model.link_head = link_head("bilinear", 8)
        initialise(model, 3)
    gradient = BatchGradient(model, 3, PairLoss(model.link_head, LinkLoss("binary")))
    for batch in open_links(graph, workers).batches(0, start):
        done = gradient(batch)
        if done.last:
            for parameter in model.parameters():
                parameter.data -= 0.1 * parameter.grad / done.seeds
                parameter.grad = None
    return model


def test_a_training_has_equal_bits_at_any_number_of_workers(graph: Graph) -> None:
    one, eight = (trained(graph, workers).state_dict() for workers in (1, 8))
    assert all(one[name].numpy().tobytes() == eight[name].numpy().tobytes() for name in one)
    begun = build_model(TrainConfig(model="gcn", layers=2, hidden=8), graph.features.width, 8, 3).state_dict()
    assert all((one[name] != begun[name]).any() for name in begun if begun[name].dim() > 1)


@pytest.mark.parametrize("head", ["dot", "bilinear", "distmult", "transe", "rotate", "mlp"])
@pytest.mark.parametrize("loss", ["bpr", "margin", "binary"])
@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_the_loss_of_a_batch_is_that_of_its_pairs_one_by_one(penalty: float, loss: Any, head: Any) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(9, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    places = torch.randint(0, 9, (5, 4, 3), generator=generator, dtype=torch.int32)
    places[..., 2] = torch.arange(5)[:, None] % 3
    scorer = link_head(head, 4, relations=3).double()
    initialise(scorer, 1)
    PairLoss(scorer, LinkLoss(loss), penalty)(rows, places).backward()
    found, rows.grad = rows.grad, None
    for pairs in places.tolist():
        scores = [scorer(rows[a], rows[b], torch.tensor(relation)) for a, b, relation in pairs]
        lengths = [rows[a] @ rows[a] + rows[b] @ rows[b] for a, b, _ in pairs]
        compared = LinkLoss(loss)(scores[0][None], torch.stack(scores[1:])[None])
        (compared + penalty * torch.stack(lengths).mean() / 2).backward()
    assert found is not None and rows.grad is not None
    torch.testing.assert_close(found, rows.grad, rtol=0, atol=1e-10)


def test_walks_are_refused(graph: Graph) -> None:
    sampler = WalkSampler(graph.topology, Walks(), (3,), seed=1)
    with pytest.raises(InputError, match="walks"):
        LinkSampler(sampler, split_graph(graph)[1])
