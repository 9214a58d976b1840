"""Accuracy and area under the ROC curve, against their definitions; metrics that follow from counts: test_class_scores.py."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.trainers.record.scores import roc_auc, score


def pairs(scores: np.ndarray, positive: np.ndarray) -> float:
    """How often a positive row is scored above a negative one, counted pair by pair."""
    above = scores[positive][:, None] - scores[~positive][None, :]
    return float(((above > 0) + 0.5 * (above == 0)).mean())


def test_accuracy_breaks_ties_by_the_lowest_class() -> None:
    logits = np.array([[1.0, 1.0], [0.0, 2.0], [3.0, 1.0]])
    assert score("accuracy", logits, np.array([0, 1, 1])) == pytest.approx(2 / 3)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.booleans()), min_size=1, max_size=30))
def test_roc_auc_counts_pairs_ties_half(rows: list[tuple[int, int, bool]]) -> None:
    logits, labels = np.array([row[:2] for row in rows], np.float32), np.array([row[2] for row in rows])
    area = roc_auc(logits, labels.astype(np.int32))
    if labels.all() or not labels.any():
        assert area is None
    else:
        assert area == pytest.approx(pairs(logits[:, 1] - logits[:, 0], labels))


def test_more_classes_are_averaged_one_against_the_rest() -> None:
    logits = np.random.default_rng(1).standard_normal((60, 4))
    labels = np.random.default_rng(0).integers(0, 3, 60)  # class 3 has no rows
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = np.mean([pairs(shares[:, c], labels == c) for c in range(3)])
    assert roc_auc(logits, labels) == pytest.approx(expected)
    assert score("roc_auc", logits, labels) == roc_auc(logits, labels)
    assert roc_auc(logits, np.zeros(60, int)) is None
