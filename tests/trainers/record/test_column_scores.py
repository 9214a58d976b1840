"""Scores by label and by target: those of scikit-learn, stored and read back, and together for several models."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphmill.kernels.errors import InputError
from graphmill.trainers.record.class_scores import read_scores
from graphmill.trainers.record.column_scores import (
    SCORES,
    ColumnScores,
    error_score,
    joined_columns,
    label_score,
    read_columns,
    scores_by_label,
    scores_by_target,
)

sklearn = pytest.importorskip("sklearn.metrics")


def model_of(text: str) -> Any:
    return SimpleNamespace(files={"scores.json": {}}, content_of=lambda name: text.encode(), label="model/x")


def drawn(kind: str, seed: int) -> ColumnScores:
    """Scores of drawn answers with gaps; the last label is that of no node."""
    rng = np.random.default_rng(seed)
    logits, gaps = np.round(rng.normal(size=(90, 4)), 1), rng.random((90, 4)) < 0.2
    if kind == "multilabel":
        labels = (rng.random((90, 4)) < [0.1, 0.5, 0.9, 0]).astype(np.int8)
        labels[:2, :3] = [[1] * 3, [0] * 3]
        found = scores_by_label(logits, np.where(gaps, np.int8(-1), labels))
    else:
        numbers = (logits + rng.normal(size=(90, 4))) * [1, 100, 1e-3, 1]
        found = scores_by_target(logits, np.where(gaps | (np.arange(4) == 3), np.nan, numbers).astype(np.float32))
    return ColumnScores(kind=kind, names=list("abcd"), splits={"train": found, "test": found})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
def test_each_label_has_the_scores_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, logits = (rng.random((70, 3)) < [0.2, 0.5, 0.8]).astype(np.int8), np.round(rng.normal(size=(70, 3)), 1)
    labels[:2] = [[1] * 3, [0] * 3]
    known, given = rng.random((70, 3)) < 0.8, logits > 0
    known[:2] = True
    found = scores_by_label(logits, np.where(known, labels, np.int8(-1)))
    for place in range(3):
        rows = known[:, place]
        had, answers, scores = labels[rows, place], given[rows, place], logits[rows, place]
        theirs = {
            "precision": sklearn.precision_score(had, answers, zero_division=0),
            "recall": sklearn.recall_score(had, answers, zero_division=0),
            "f1": sklearn.f1_score(had, answers, zero_division=0),
            "average_precision": sklearn.average_precision_score(had, scores),
            "roc_auc": sklearn.roc_auc_score(had, scores),
        }
        assert set(theirs) == set(found.scores) == set(SCORES["multilabel"])
        for name, value in theirs.items():
            assert found.scores[name][0, place] == pytest.approx(value, abs=1e-12), name
        assert (found.nodes[place], found.known[place]) == (had.sum(), rows.sum())
    for metric, name in (("f1_macro", "f1"), ("roc_auc", "roc_auc"), ("average_precision", "average_precision")):
        whole = label_score(metric, logits, np.where(known, labels, np.int8(-1)))
        assert found.over_columns()[name] == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_each_target_has_the_scores_of_scikit_learn_in_its_unit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers = rng.normal(size=(60, 3)) * [1, 1000, 1e-3]
    numbers = (answers * (1 + rng.normal(size=(60, 3)))).astype(np.float32)
    known = rng.random((60, 3)) < 0.7
    labels = np.where(known, numbers, np.float32("nan"))
    found = scores_by_target(answers, labels)
    for place in range(3):
        rows = known[:, place]
        had, given = numbers[rows, place].astype(np.float64), answers[rows, place]
        theirs = {
            "r2": sklearn.r2_score(had, given),
            "mean_absolute_error": sklearn.mean_absolute_error(had, given),
            "root_mean_squared_error": float(np.sqrt(sklearn.mean_squared_error(had, given))),
        }
        assert set(theirs) == set(found.scores) == set(SCORES["regression"])
        for name, value in theirs.items():
            assert found.scores[name][0, place] == pytest.approx(value, rel=1e-9), name
        assert found.nodes[place] == found.known[place] == rows.sum()
    assert found.over_columns()["mean_absolute_error"] == pytest.approx(
        -error_score("neg_mean_absolute_error", answers, labels)  # type: ignore[operator]
    )


@pytest.mark.parametrize("kind", SCORES)
def test_scores_are_read_as_they_were_stored(kind: str) -> None:
    scores = drawn(kind, 0)
    model = model_of(scores.text())
    found = read_columns(model)
    assert found is not None and (found.kind, found.names, list(found.splits)) == (
        kind,
        list("abcd"),
        ["test", "train"],
    )
    assert found.text() == scores.text() and found.shown_split == "test" and read_scores(model) is None
    assert [*found.splits["test"].scores] == [*SCORES[kind]]
    for name, values in scores.splits["test"].scores.items():
        np.testing.assert_array_equal(found.splits["test"].scores[name], values)
    undefined = "roc_auc" if kind == "multilabel" else "r2"
    assert np.isnan(found.splits["test"].scores[undefined][0, 3]) and "NaN" not in scores.text()


@pytest.mark.parametrize("kind", SCORES)
def test_several_models_have_the_mean_of_their_scores(kind: str) -> None:
    each = [drawn(kind, seed) for seed in range(3)]
    joined = joined_columns([model_of(scores.text()) for scores in each])
    assert joined is not None
    for name, values in joined.splits["test"].means().items():
        rows = np.concatenate([scores.splits["test"].scores[name] for scores in each])
        np.testing.assert_allclose(values[:3], rows[:, :3].mean(axis=0), rtol=1e-12)
    other = drawn(kind, 0)
    other = ColumnScores(kind=other.kind, names=list("abce"), splits=other.splits)
    assert joined_columns([model_of(each[0].text()), model_of(other.text())]) is None
    none: Any = SimpleNamespace(files={}, label="model/y")
    assert joined_columns([model_of(each[0].text()), none]) is None and joined_columns([]) is None


@pytest.mark.parametrize("kind", SCORES)
def test_a_damaged_file_is_refused(kind: str) -> None:
    text = drawn(kind, 0).text()
    for damage in ({"names": ["a"]}, {"splits": {"test": {}}}, {"splits": {"other": {}}}, {"names": 3}):
        with pytest.raises(InputError, match=r"scores.json of model/x says nothing sound"):
            read_columns(model_of(json.dumps(json.loads(text) | damage)))
