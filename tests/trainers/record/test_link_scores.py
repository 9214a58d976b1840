"""Scores of links against scikit-learn and by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from graphmill.trainers.record.link_scores import pair_scores, rank_scores

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
