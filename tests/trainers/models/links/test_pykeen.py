"""Exact filtered ranks are those of PyKEEN's evaluator, on the knowledge graphs that its package ships."""

import numpy as np
import pytest
import torch

from graphmill.kernels.links.triples import KnownEdges, Triples
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
