"""Ranks among given and drawn candidates are those of OGB's evaluator, whose formulas are written out here."""

import operator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.trainers.models.layer import initialise
from graphmill.trainers.models.links import ranks as candidate_ranks
from graphmill.trainers.models.links.heads import link_head
from graphmill.trainers.models.links.ranks import Pairs, given_ranks, link_ranks, ranks_among, uniform_ranks
from graphmill.trainers.record.link_scores import rank_scores, shared_ranks, shared_scores

NODES, COLUMNS = 40, 6
HEADS = ["dot", "bilinear", "distmult", "transe", "rotate", "mlp"]
SCORES = st.integers(0, 4).map(float)


def ogb_ranks(positive, negative):
    """Mean reciprocal rank and hits at 1, 3 and 10 as `ogb/linkproppred/evaluate.py` has them, of float[n] and float[n, k]."""
    optimistic = (negative > positive[:, None]).sum(dim=1)
    pessimistic = (negative >= positive[:, None]).sum(dim=1)
    ranking = 0.5 * (optimistic + pessimistic) + 1
    found = {f"hits@{k}": (ranking <= k).double().mean().item() for k in (1, 3, 10)}
    return {"mrr": (1.0 / ranking.double()).mean().item(), **found}


def ogb_hits(positive, negative, k):
    """Hits at k as the same file has them, of float[n] and float[m]."""
    if len(negative) < k:
        return 1.0
    kth = torch.topk(negative, k)[0][-1]
    return (positive > kth).double().mean().item()


@given(st.lists(st.lists(SCORES, min_size=4, max_size=4), min_size=1))
def test_scores_of_ranks_are_those_of_ogb(scores):
    table = torch.tensor(scores, dtype=torch.float64)
    starts = np.arange(len(table) + 1) * 3
    ranks = ranks_among(table[:, 0].numpy(), table[:, 1:].reshape(-1).numpy(), starts)
    expected = ogb_ranks(table[:, 0], table[:, 1:])
    assert rank_scores(ranks, "given") == pytest.approx({f"{name}_given": value for name, value in expected.items()})


@given(st.lists(SCORES, min_size=1), st.lists(SCORES, min_size=1, max_size=120))
def test_hits_among_shared_pairs_are_those_of_ogb(positive, negative):
    found = shared_scores(shared_ranks(np.array(positive), np.array(negative)))
    pair = torch.tensor(positive), torch.tensor(negative)
    assert found == pytest.approx({f"hits@{k}_given": ogb_hits(*pair, k) for k in (10, 20, 50, 100)})


@pytest.mark.parametrize("metric", ["mrr", "hits@20"])
def test_the_formulas_are_those_of_the_installed_evaluator(metric):
    module = pytest.importorskip("ogb.linkproppred", reason="needs OGB: pip install ogb")
    draw = torch.Generator().manual_seed(1)
    positive, negative = (torch.randint(0, 9, shape, generator=draw).float() for shape in ((50,), (50, 30)))
    if metric == "mrr":
        found = module.Evaluator("ogbl-citation2").eval({"y_pred_pos": positive, "y_pred_neg": negative})
        expected = ogb_ranks(positive, negative)
        for name in expected:
            assert found[f"{name}_list"].double().mean().item() == pytest.approx(expected[name])
        return
    shared = {"y_pred_pos": positive, "y_pred_neg": negative[:, 0]}
    assert module.Evaluator("ogbl-ddi").eval(shared)["hits@20"] == ogb_hits(positive, negative[:, 0], 20)


def test_ranks_among_nothing_are_not_numbers():
    found = ranks_among(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0]), np.array([0, 1, 1, 2]))
    assert found[0] == 1.5 and np.isnan(found[1]) and found[2] == 2


def made(name, relations):
    """A head, rows and drawn pairs in float64; known edges."""
    head = link_head(name, COLUMNS, relations=relations, hidden=4)
    initialise(head, 1)
    draw = np.random.default_rng(3)
    source, target = draw.integers(0, NODES, (2, 30))
    relation = draw.integers(0, relations, 30) if relations else None
    ranges = {side: [(0, NODES)] * max(1, relations) for side in ("source", "target")}
    known = KnownEdges(Triples(num_nodes=NODES, reverse_of=tuple(range(max(1, relations)))), source, target, relation)
    rows = torch.randn(NODES, COLUMNS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return head.double(), rows, Pairs(source=source, target=target, relation=relation, ranges=ranges), known


@settings(deadline=None, max_examples=20)
@given(st.data(), st.sampled_from(HEADS), st.sampled_from(["target", "source"]), st.sampled_from([0, 3]))
def test_ranks_among_given_candidates_are_those_of_single_pairs(data, name, side, relations):
    head, rows, pairs, _ = made(name, relations)
    lists = data.draw(st.lists(st.lists(st.integers(0, NODES - 1), max_size=6), min_size=30, max_size=30))
    own = pairs.target if side == "target" else pairs.source
    lists = [[end for end in each if end != mine] for each, mine in zip(lists, own, strict=True)]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in lists])])
    ends = np.array([end for each in lists for end in each], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidate_ranks, "PAIRS_AT_ONCE", 7)
        found = given_ranks(head, rows, pairs, side, starts, ends)
    for i, candidates in enumerate(lists):
        u, v = int(pairs.source[i]), int(pairs.target[i])
        kind = None if pairs.relation is None else torch.tensor(pairs.relation[i])
        others = [(u, end) if side == "target" else (end, v) for end in candidates]
        scores = [head(rows[one], rows[other], kind).item() for one, other in [(u, v), *others]]
        above, ties = (sum(compare(each, scores[0]) for each in scores[1:]) for compare in (operator.gt, operator.eq))
        assert found[i] == 1 + above + ties / 2 if candidates else np.isnan(found[i])


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("side", ["target", "source"])
def test_drawn_candidates_are_no_known_edges_and_the_same_in_pieces(name, side, monkeypatch):
    head, rows, pairs, known = made(name, 2)
    edges, asked = np.arange(30) + 5, []
    inner = candidate_ranks.given_ranks

    def seen(head, rows, some, side, starts, ends):
        kept = some.source if side == "target" else some.target
        own, fixed = ends.reshape(-1, 12), np.repeat(kept[:, None], 12, 1)
        pair = (fixed, own) if side == "target" else (own, fixed)
        kinds = np.repeat(some.relation[:, None], 12, 1)
        assert not known.contains(*(each.reshape(-1) for each in (*pair, kinds))).any()
        asked.append(own)
        return inner(head, rows, some, side, starts, ends)

    monkeypatch.setattr(candidate_ranks, "given_ranks", seen)
    whole = uniform_ranks(head, rows, pairs, side, edges, 12, known)
    drawn = np.concatenate(asked)
    asked.clear()
    monkeypatch.setattr(candidate_ranks, "PAIRS_AT_ONCE", 50)
    assert (uniform_ranks(head, rows, pairs, side, edges, 12, known) == whole).all()
    assert len(asked) == 8 and (np.concatenate(asked) == drawn).all()
    assert len(np.unique(drawn)) == NODES and whole.min() >= 1 and whole.max() <= 13


@pytest.mark.parametrize("name", ["dot", "bilinear", "distmult", "transe", "rotate"])
@pytest.mark.parametrize("columns", [1, 7, 64, 100])
def test_equal_rows_tie(name, columns):
    columns += columns % 2 * (name == "rotate")
    head = link_head(name, columns)
    initialise(head, 1)
    row = torch.randn(1, columns, generator=torch.Generator().manual_seed(columns))
    pairs = Pairs(
        source=np.arange(9), target=np.arange(9) + 20, relation=None, ranges={"source": [(0, 60)], "target": [(0, 60)]}
    )
    known = KnownEdges(Triples(num_nodes=60), [], [])
    for count in (1, 2, 33):
        assert (
            uniform_ranks(head, row.repeat(60, 1), pairs, "target", np.arange(9), count, known) == 1 + count / 2
        ).all()


def test_all_nodes_as_candidates_have_the_exact_ranks():
    head, rows, pairs, known = made("dot", 0)
    for side in ("target", "source"):
        kept, own = (pairs.source, pairs.target) if side == "target" else (pairs.target, pairs.source)
        lists = []
        for node, end in zip(kept, own, strict=True):
            fixed, every = np.full(NODES, node), np.arange(NODES)
            out = known.contains(*((fixed, every) if side == "target" else (every, fixed)))
            lists.append(np.flatnonzero(~out & (every != end)))
        starts = np.concatenate([[0], np.cumsum([len(each) for each in lists])])
        found = given_ranks(head, rows, pairs, side, starts, np.concatenate(lists))
        assert (found == link_ranks(head, rows, pairs, known, side)).all()
