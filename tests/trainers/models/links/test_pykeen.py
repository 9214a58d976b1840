"""Ranks are those of PyKEEN's evaluator, on the knowledge graphs that its package ships; distances are those of its models."""

import numpy as np
import pytest
import torch

from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.trainers.models.layer import initialise
from graphmill.trainers.models.links.heads import link_head
from graphmill.trainers.models.links.ranks import Pairs, link_ranks
from graphmill.trainers.record.link_scores import rank_scores

pytest.importorskip("pykeen", reason="needs PyKEEN: pip install pykeen")
COLUMNS = 8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["Nations", "Kinships", "UMLS"])
def test_ranks_are_those_of_pykeen(name):
    from pykeen import datasets
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import DistMult

    data = getattr(datasets, name)()
    model = DistMult(triples_factory=data.training, embedding_dim=COLUMNS, random_seed=0).double()
    entities, relations = (
        rows[0]._embeddings.weight for rows in (model.entity_representations, model.relation_representations)
    )
    draw = np.random.default_rng(1)
    for each in (entities, relations):  # small whole numbers: sums do not round, and scores tie
        each.data = torch.from_numpy(draw.integers(-2, 3, each.shape).astype(np.float64))
    tested = data.testing.mapped_triples
    others = [data.training.mapped_triples, data.validation.mapped_triples]
    evaluator = RankBasedEvaluator(filtered=True)
    found = evaluator.evaluate(model, tested, additional_filter_triples=others, batch_size=64, use_tqdm=False)

    num_nodes, kinds = data.num_entities, data.num_relations
    head = link_head("distmult", COLUMNS, relations=kinds).double()
    head.relation.data = relations.data
    everything = torch.cat([*others, tested]).numpy()
    triples = Triples(num_nodes=num_nodes, reverse_of=(-1,) * kinds)
    known = KnownEdges(triples, everything[:, 0], everything[:, 2], everything[:, 1])
    source, relation, target = tested.numpy().T
    ranges = {side: [(0, num_nodes)] * kinds for side in ("source", "target")}
    pairs = Pairs(source=source, target=target, relation=relation, ranges=ranges)
    ranks = {side: link_ranks(head, entities.data, pairs, known, side) for side in ("source", "target")}
    theirs = {"source": "head", "target": "tail"}
    for side, of_side in ranks.items():
        expected = found.get_metric(f"{theirs[side]}.realistic.arithmetic_mean_rank")
        assert of_side.mean() == pytest.approx(expected, rel=1e-6)
    scores = rank_scores(np.concatenate([*ranks.values()]))
    for ours, metric in (
        ("mrr", "inverse_harmonic_mean_rank"),
        ("hits@1", "hits_at_1"),
        ("hits@3", "hits_at_3"),
        ("hits@10", "hits_at_10"),
    ):
        assert scores[ours] == pytest.approx(found.get_metric(f"both.realistic.{metric}"), rel=1e-6), metric


@pytest.mark.parametrize("name", ["transe", "rotate"])
def test_distances_and_their_gradients_are_those_of_pykeen(name):
    from pykeen.nn.modules import RotatEInteraction, TransEInteraction

    head = link_head(name, COLUMNS, relations=3).double()
    initialise(head, 4)
    generator = torch.Generator().manual_seed(5)
    source, target = (torch.randn(7, COLUMNS, generator=generator, dtype=torch.float64) for _ in range(2))
    relation, rows = torch.arange(7) % 3, head.relation.detach().clone().requires_grad_()
    ours, theirs = ([each.clone().requires_grad_() for each in (source, target)] for _ in range(2))
    if name == "transe":
        scores = TransEInteraction(p=2)(theirs[0], rows[relation], theirs[1])
    else:
        ends = (torch.complex(*each.chunk(2, dim=1)) for each in theirs)
        angles = rows[relation] * head.unit
        first, second = ends
        scores = RotatEInteraction()(first, torch.polar(torch.ones_like(angles), angles), second)
    found = head(*ours, relation)
    torch.testing.assert_close(found, scores, rtol=0, atol=1e-12)
    found.square().sum().backward()
    scores.square().sum().backward()
    for mine, other in zip([*ours, head.relation], [*theirs, rows], strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=1e-10)
