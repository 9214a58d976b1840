"""Metrics of labels and of numbers equal scikit-learn's and torchmetrics', on drawn answers with ties, gaps and constant columns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphmill.trainers.record.column_scores import average_precision, error_score, label_score
from graphmill.trainers.record.scores import METRICS, METRICS_OF

sklearn = pytest.importorskip("sklearn.metrics")


@pytest.mark.parametrize("seed", range(20))
def test_several_labels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, columns = int(rng.integers(4, 60)), int(rng.integers(2, 6))
    labels = (rng.random((n, columns)) < rng.random(columns)).astype(np.int8)
    labels[0], labels[1] = 1, 0  # each label divides the nodes
    logits = np.round(rng.normal(size=(n, columns)), int(rng.integers(0, 3)))  # ties
    given = logits > 0
    theirs = {
        "f1_micro": sklearn.f1_score(labels, given, average="micro", zero_division=0),
        "f1_macro": sklearn.f1_score(labels, given, average="macro", zero_division=0),
        "average_precision": sklearn.average_precision_score(labels, logits, average="macro"),
        "roc_auc": sklearn.roc_auc_score(labels, logits, average="macro"),
    }
    assert theirs.keys() == set(METRICS_OF["multilabel"])
    for metric, value in theirs.items():
        assert label_score(metric, logits, labels) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, columns = int(rng.integers(2, 60)), int(rng.integers(1, 5))
    numbers = (rng.normal(size=(n, columns)) * 10.0 ** rng.integers(-3, 4, columns)).astype(np.float32)
    if seed % 3 == 0:
        numbers[:, 0] = 2.5  # a constant target
    answers = numbers + rng.normal(size=numbers.shape)
    exact = numbers.astype(np.float64)
    theirs = {
        "r2": sklearn.r2_score(exact, answers),
        "neg_mean_absolute_error": -sklearn.mean_absolute_error(exact, answers),
        "neg_root_mean_squared_error": -float(np.mean(np.sqrt(np.square(exact - answers).mean(axis=0)))),
    }
    assert theirs.keys() == set(METRICS_OF["regression"])
    for metric, value in theirs.items():
        assert error_score(metric, answers, numbers) == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_gaps_take_no_part() -> None:
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, 2, (80, 3)).astype(np.int8), rng.normal(size=(80, 3))
    numbers = rng.normal(size=(80, 3)).astype(np.float32)
    gaps = np.arange(80) % 4 == 0
    for metric in METRICS_OF["multilabel"]:
        wanted = label_score(metric, logits[~gaps], labels[~gaps])
        assert label_score(metric, logits, np.where(gaps[:, None], np.int8(-1), labels)) == pytest.approx(wanted)
    for metric in METRICS_OF["regression"]:
        wanted = error_score(metric, logits[~gaps], numbers[~gaps])
        assert error_score(metric, logits, np.where(gaps[:, None], np.float32("nan"), numbers)) == pytest.approx(wanted)


def test_what_no_node_defines_has_no_value() -> None:
    assert average_precision(np.ones(3), np.zeros(3, bool)) is None
    assert label_score("roc_auc", np.zeros((3, 2)), np.ones((3, 2), np.int8)) is None
    assert error_score("r2", np.zeros((3, 2)), np.full((3, 2), np.nan, np.float32)) is None


def test_every_metric_has_a_name_and_a_kind() -> None:
    assert set(METRICS) == {metric for metrics in METRICS_OF.values() for metric in metrics}


@pytest.mark.parametrize("seed", range(5))
def test_metrics_are_those_of_torchmetrics(seed: int) -> None:
    """Micro and macro F1, areas and average precision with gaps, and errors of numbers."""
    theirs = pytest.importorskip("torchmetrics.functional")
    rng = np.random.default_rng(seed)
    labels, logits = rng.integers(-1, 2, (60, 3)).astype(np.int8), np.round(rng.normal(size=(60, 3)), 1)
    given = torch.from_numpy(logits).sigmoid(), torch.from_numpy(labels.astype(np.int64))
    keys = {"num_labels": 3, "ignore_index": -1}
    classification = theirs.classification
    found = {
        "f1_micro": classification.multilabel_f1_score(*given, average="micro", **keys),
        "f1_macro": classification.multilabel_f1_score(*given, average="macro", **keys),
        "roc_auc": classification.multilabel_auroc(*given, average="macro", **keys),
        "average_precision": classification.multilabel_average_precision(*given, average="macro", **keys),
    }
    assert found.keys() == set(METRICS_OF["multilabel"])
    for metric, value in found.items():
        score = label_score(metric, logits, labels)
        assert score == pytest.approx(value.item(), abs=1e-6), metric
    numbers = (100 * rng.normal(size=(60, 3))).astype(np.float32)
    answers = torch.from_numpy(numbers + rng.normal(size=numbers.shape))
    exact = torch.from_numpy(numbers.astype(np.float64))
    errors = {
        "r2": theirs.r2_score(answers, exact, multioutput="uniform_average").item(),
        "neg_mean_absolute_error": -theirs.mean_absolute_error(answers, exact).item(),
        "neg_root_mean_squared_error": -theirs.mean_squared_error(answers, exact, squared=False, num_outputs=3)
        .mean()
        .item(),
    }
    assert errors.keys() == set(METRICS_OF["regression"])
    for metric, value in errors.items():
        assert error_score(metric, answers.numpy(), numbers) == pytest.approx(value, rel=1e-6), metric
