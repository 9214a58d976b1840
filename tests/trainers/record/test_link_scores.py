"""Scores of links against scikit-learn and by hand."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from graphmill.trainers.record.link_scores import LISTS, list_chance, list_scores, pair_scores, rank_scores

SCORES = st.lists(st.integers(-4, 4).map(float) | st.floats(-3, 3), min_size=1, max_size=30)


@given(SCORES, SCORES)
def test_area_and_precision_are_those_of_scikit_learn(positive, negative):
    labels, scores = [1] * len(positive) + [0] * len(negative), positive + negative
    found = pair_scores(np.array(positive), np.array(negative))
    assert abs(found["auc"] - roc_auc_score(labels, scores)) < 1e-12
    assert abs(found["ap"] - average_precision_score(labels, scores)) < 1e-12


def test_scores_of_ranks_name_their_candidates():
    ranks = np.array([1.0, 2.0, 4.0, 10.5])
    assert rank_scores(ranks) == {
        "mrr": (1 + 1 / 2 + 1 / 4 + 1 / 10.5) / 4,
        "hits@1": 0.25,
        "hits@3": 0.5,
        "hits@10": 0.75,
    }
    assert [*rank_scores(ranks, "given")] == ["mrr_given", "hits@1_given", "hits@3_given", "hits@10_given"]


@st.composite
def users(draw):
    """(scores of items without ties by user, the items to find, those that are known from before); some users have nothing to find."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    count, items = draw(st.integers(1, 5)), draw(st.integers(2, 40))
    scores = np.argsort(rng.random((count, items)), axis=1).astype(float)
    kind = rng.integers(0, draw(st.integers(2, 6)), (count, items))
    kind[0, 0] = 1
    return scores, kind == 1, kind == 0


def filtered_ranks(scores, wanted, before):
    """(rank of each wanted item among those that are neither known nor wanted, ties at their mean, and its user)."""
    ranks, lists = [], []
    for user, (own, find, known) in enumerate(zip(scores, wanted, before, strict=True)):
        others = own[~find & ~known]
        ranks += [1 + (others > each).sum() + (others == each).sum() / 2 for each in own[find]]
        lists += [user] * int(find.sum())
    return np.array(ranks, float), np.array(lists)


@given(users())
def test_lists_have_the_scores_of_the_whole_order_of_each_user(drawn):
    """Recall and hits by sorting all items, gain by scikit-learn; a user without items to find enters no mean."""
    scores, wanted, before = drawn
    found = list_scores(*filtered_ranks(scores, wanted, before))
    for k in LISTS:
        recalls, gains, hits = [], [], []
        for own, find, known in zip(scores, wanted, before, strict=True):
            if not find.any():
                continue
            new = ~known
            first = find[new][np.argsort(-own[new])][:k]
            recalls.append(first.sum() / find.sum())
            hits.append(first.any())
            alone = new.sum() < 2  # which scikit-learn does not take
            gains.append(1.0 if alone else ndcg_score(find[new][None].astype(float), own[new][None], k=k))
        expected = {f"recall@{k}": np.mean(recalls), f"ndcg@{k}": np.mean(gains), f"hit@{k}": np.mean(hits)}
        for name, value in expected.items():
            assert abs(found[name] - value) < 1e-12, name


def test_equal_scores_stand_in_the_middle_of_the_list():
    scores, nothing = np.zeros((1, 41)), np.zeros((1, 41), bool)
    wanted = nothing.copy()
    wanted[0, :2] = True
    # Of 39 other items of the same score: the first one at place 20.5, the second one behind it.
    ranks, lists = filtered_ranks(scores, wanted, nothing)
    assert [*ranks] == [20.5, 20.5]
    assert {*list_scores(ranks, lists).values()} == {0.0}
    assert list_scores(ranks - 1, lists)["recall@20"] == 0.5


@settings(max_examples=20)
@given(st.integers(0, 99), st.integers(1, 30))
def test_the_chance_of_lists_is_the_mean_of_drawn_orders(seed, size):
    rng, many = np.random.default_rng(seed), 20_000
    wanted = np.zeros((many, size), bool)
    wanted[:, : rng.integers(1, size + 1)] = True
    ranks, lists = filtered_ranks(rng.random((many, size)), wanted, np.zeros_like(wanted))
    for name, found in list_scores(ranks, lists).items():
        chance = list_chance(name, lists, size)
        # Bernstein's bound for means of values in [0, 1]: a departure beyond it has a chance of 4e-9.
        spread = (2 * 20 * chance * (1 - chance) / many) ** 0.5 + 20 / (3 * many)
        assert abs(found - chance) <= spread, name
