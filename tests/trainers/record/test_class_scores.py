"""Scores by class: those of scikit-learn's report, sums of parts to the bit, and what a file of them may hold."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.trainers.record import class_scores
from graphmill.trainers.record.class_scores import BINS, ClassScores, count_classes, joined_scores, read_scores
from graphmill.trainers.record.scores import METRICS_OF, same_answer, score
from tests.trainers.record.report import calibration, report
from tests.trainers.runs import train_small

COUNTS = ("right", "support", "predicted", "pairs", "bins")


@st.composite
def answered(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of a few nodes, with ties, classes that no node has, and ones that no node was given."""
    num_classes, num_nodes = draw(st.integers(2, 6)), draw(st.integers(1, 40))
    values = st.lists(st.integers(-4, 4), min_size=num_classes, max_size=num_classes)
    logits = draw(st.lists(values, min_size=num_nodes, max_size=num_nodes))
    labels = draw(st.lists(st.integers(0, num_classes - 1), min_size=num_nodes, max_size=num_nodes))
    scale = draw(st.sampled_from([1.0, 0.37, 5.0]))
    return (scale * np.array(logits)).astype(draw(st.sampled_from(["f4", "f8"]))), np.array(labels, np.int32)


@given(answered())
def test_scores_are_those_of_the_definitions(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = drawn
    counts, expected = (
        count_classes(logits, labels),
        report(labels.tolist(), logits.argmax(1).tolist(), logits.shape[1]),
    )
    for name in ("precision", "recall", "f1", "support"):
        assert getattr(counts, name).tolist() == pytest.approx([each[name] for each in expected["classes"]], abs=1e-15)
    assert counts.matrix(np.arange(logits.shape[1])).tolist() == expected["matrix"]
    for metric in METRICS_OF["classes"]:
        if metric != "roc_auc":
            assert score(metric, logits, labels) == pytest.approx(expected[metric], abs=1e-14), metric
            assert counts.score(metric) == score(metric, logits, labels)
    for average in ("macro", "micro", "weighted"):
        assert counts.mean(counts.recall, average) == pytest.approx(expected[f"recall_{average}"], abs=1e-14)


@given(answered(), st.data())
def test_counts_of_parts_add_up_to_the_bit(drawn: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    logits, labels = drawn
    cuts = sorted(data.draw(st.lists(st.integers(0, len(labels)), max_size=3)))
    parts = list(zip([0, *cuts], [*cuts, len(labels)], strict=True))
    whole = count_classes(logits, labels)
    for order in (parts, parts[::-1]):
        found = [count_classes(logits[low:high], labels[low:high]) for low, high in order]
        total = sum(found[1:], found[0])
        assert all(np.array_equal(getattr(total, name), getattr(whole, name)) for name in COUNTS)


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    logits, labels = rng.standard_normal((500, 7)).astype(np.float32), rng.integers(0, 7, 500)
    whole = count_classes(logits, labels)
    monkeypatch.setattr(class_scores, "BLOCK_VALUES", 20)
    assert all(np.array_equal(getattr(count_classes(logits, labels), name), getattr(whole, name)) for name in COUNTS)


def test_calibration_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 4, 3000)
    logits = 2 * rng.standard_normal((3000, 4)) + 3 * np.eye(4)[labels]
    power = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = power / power.sum(1, keepdims=True)
    counts = count_classes(logits, labels)
    assert counts.calibration_error == pytest.approx(calibration(probabilities, labels, BINS), abs=1e-9)
    assert counts.confidence == pytest.approx(probabilities.max(1).mean(), abs=1e-9)
    points = counts.reliability()
    assert 1 < len(points) <= BINS and (np.diff(points[:, 0]) > 0).all() and counts.bins[0].sum() == 3000
    sure = count_classes(np.array([[1e9, 0.0], [np.nan, 0.0]]), np.array([0, 1]))
    assert sure.bins[0].tolist() == [1, *[0] * (BINS - 2), 1] and sure.calibration_error == 0.0


def test_one_answer_for_all_nodes_is_counted_without_making_it() -> None:
    labels = np.array([2, 0, 2, 1, 2])
    largest, totals = same_answer(labels, 4)
    logits = np.tile(np.eye(4)[2], (5, 1))
    assert largest == 2 and all(
        totals.score(each) == score(each, logits, labels) for each in METRICS_OF["classes"] if each != "roc_auc"
    )


def test_a_file_is_read_as_it_was_written_and_keeps_the_largest_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    counts = count_classes(rng.standard_normal((400, 5)), rng.integers(0, 5, 400))
    read = scores_of(text_of(counts))
    assert read is not None and all(np.array_equal(getattr(read.splits["test"], n), getattr(counts, n)) for n in COUNTS)
    monkeypatch.setattr(class_scores, "MOST_PAIRS", 3)
    fewer = scores_of(text_of(counts))
    assert fewer is not None and len(fewer.splits["test"].pairs) == 3
    assert fewer.splits["test"].pairs[:, 2].min() >= np.sort(counts.pairs[:, 2])[-3]
    assert np.array_equal(fewer.splits["test"].f1, counts.f1)


def text_of(counts: Any) -> str:
    return ClassScores(classes=list("abcde"), splits={"test": counts}).text()


def scores_of(text: str) -> ClassScores | None:
    model: Any = SimpleNamespace(files={"scores.json": {}}, content_of=lambda name: text.encode(), label="model/x")
    return read_scores(model)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("support", [1]),
        ("support", [1, 2, 3, 4, -5]),
        ("pairs", [[5, 0, 1]]),
        ("pairs", [[1, 2]]),
        ("bins", [[0] * BINS] * 2),
        ("right", "many"),
    ],
)
def test_counts_that_cannot_be_are_refused(key: str, value: Any) -> None:
    found = json.loads(text_of(count_classes(np.eye(5), np.arange(5))))
    found["splits"]["test"][key] = value
    with pytest.raises(InputError, match=r"scores.json of model/x says nothing sound"):
        scores_of(json.dumps(found))


def test_another_task_and_an_older_model_have_no_scores_by_class() -> None:
    assert scores_of(json.dumps({"kind": "values", "splits": {}})) is None
    older: Any = SimpleNamespace(files={})
    assert read_scores(older) is None and joined_scores([older]) is None


def test_a_training_may_maximise_any_metric(tmp_path: Path) -> None:
    """The score of the kept epoch, of each metric, is that of the stored counts."""
    for metric in METRICS_OF["classes"]:
        model = train_small(tmp_path, metric=metric)
        numbers, scores = model.summary["numbers"], read_scores(model)
        assert scores is not None and set(scores.splits) == {"train", "valid", "test"}
        rows = [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]
        assert max(row["valid"] for row in rows) == pytest.approx(numbers[f"valid_{metric}"], abs=1e-12)
        for split, counts in scores.splits.items():
            assert counts.accuracy == numbers[f"{split}_accuracy"]
            if metric != "roc_auc":
                assert counts.score(metric) == numbers[f"{split}_{metric}"]


LABELS = "203121210323001220320002300313003110201113303112332213332003"
ANSWERS = "103121213324000220330043203313343120101414303114342210304033"
SAID = """
0 0.7857142857142857 0.6470588235294118 0.7096774193548387 17
1 0.8333333333333334 0.7692307692307693 0.8 13
2 0.7777777777777778 0.5384615384615384 0.6363636363636364 13
3 0.6470588235294118 0.6470588235294118 0.6470588235294118 17
4 0.0 0.0 0.0 0
macro 0.6087768440709617 0.5203619909502263 0.5586199758495773 60
weighted 0.755026455026455 0.65 0.6956207233626588 60
"""


def test_a_report_is_that_of_scikit_learn() -> None:
    """What `classification_report(labels, answers, output_dict=True, zero_division=0)` of scikit-learn 1.9.1 returned; 4 is no label."""
    labels, answers = (np.array([int(each) for each in text]) for text in (LABELS, ANSWERS))
    counts = count_classes(np.eye(5)[answers], labels)
    for name, *expected in map(str.split, SAID.strip().splitlines()):
        values, place = (counts.precision, counts.recall, counts.f1), int(name) if name.isdigit() else None
        found = [counts.mean(each, name) if place is None else each[place] for each in values]
        nodes = counts.support.sum() if place is None else counts.support[place]
        assert [*found, nodes] == pytest.approx([float(each) for each in expected], abs=1e-15), name
