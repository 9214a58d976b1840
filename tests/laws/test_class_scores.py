"""Every trainer stores the scores by class of its final answers, and they are those of scikit-learn's report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphmill.assets.graph.read import open_graph
from graphmill.trainers.recipe.techniques import TECHNIQUES, find_technique
from graphmill.trainers.record.class_scores import ClassCounts, count_classes, read_scores
from tests.laws.trainings import KEPT, Case, Recipe
from tests.trainers.record.report import report


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("case"), Recipe(table={"metric": "f1_macro"}))


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("trainer", sorted(TECHNIQUES))
def test_every_trainer_scores_classes(case: Case, monkeypatch: pytest.MonkeyPatch, trainer: str, world: int) -> None:
    """Its counts are compared with the logits from which it says to have made them, and with its metric."""
    if world > 1 and not find_technique(trainer).by_parts:
        pytest.skip("trains in one process")
    scored: list[tuple[np.ndarray, np.ndarray]] = []

    def recorded(logits: np.ndarray, labels: np.ndarray) -> ClassCounts:
        scored.append((logits.copy(), np.array(labels)))
        return count_classes(logits, labels)

    monkeypatch.setattr("graphmill.trainers.tasks.classes.count_classes", recorded)
    how: dict[str, Any] = {"settings": KEPT if trainer.startswith("fresh") else None}
    how |= {"accumulate": 1} if find_technique(trainer).whole_graph else {}
    model = case.by_ranks(world, trainer, **how) if world > 1 else case.train(trainer, **how)
    scores, graph = read_scores(model), open_graph(case.graph.graph)
    assert scores is not None and list(scores.classes) == list(graph.class_names) and len(scored) == 3
    for (split, counts), (logits, labels) in zip(
        scores.splits.items(), scored_in_order(scored, scores.splits), strict=True
    ):
        assert np.array_equal(labels, graph.labels[np.array(getattr(graph, f"{split}_ids"))])
        expected = report(labels.tolist(), logits.argmax(1).tolist(), graph.num_classes)
        for name in ("precision", "recall", "f1", "support"):
            assert getattr(counts, name).tolist() == pytest.approx(
                [each[name] for each in expected["classes"]], abs=1e-14
            )
        assert counts.matrix(np.arange(graph.num_classes)).tolist() == expected["matrix"]
        assert model.summary["numbers"][f"{split}_f1_macro"] == pytest.approx(expected["f1_macro"], abs=1e-14)


def scored_in_order(scored: list[Any], splits: Any) -> list[Any]:
    """The recorded logits in the order of the splits of a file, which is that of the alphabet; they were made train, valid, test."""
    made = dict(zip(("train", "valid", "test"), scored, strict=True))
    return [made[split] for split in splits]
