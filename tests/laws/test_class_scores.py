"""Every trainer stores the scores by class of its model, and they are those of scikit-learn on the table that `predict` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from graphmill.assets.graph.read import open_graph
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.predict import AskedPrediction, predict
from graphmill.trainers.inference.trained import PredictedData, reopened
from graphmill.trainers.recipe.config import TrainTable, model_configs
from graphmill.trainers.recipe.techniques import TECHNIQUES, find_technique
from graphmill.trainers.record.class_scores import BINS, ClassCounts, read_scores
from tests.graphs import build_graph
from tests.laws.trainings import KEPT, SAMPLING, SMALL, Case, Recipe

METRIC = {"metric": "f1_macro"}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A case whose graph is a built one, with the table of nodes that `predict` reads."""
    made = Case(tmp_path_factory.mktemp("case"), Recipe(table=METRIC))
    made.graph = build_graph(Store(made.home), config_class("sbm")(nodes=400, edges=2400, features=12, classes=4))
    return made


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("trainer", sorted(TECHNIQUES))
def test_every_trainer_scores_classes_as_scikit_learn_does(
    case: Case, tmp_path: Path, trainer: str, world: int
) -> None:
    if world > 1 and not find_technique(trainer).by_parts:
        pytest.skip("trains in one process")
    how: dict[str, Any] = {"settings": KEPT if trainer.startswith("fresh") else None}
    how |= {"accumulate": 1} if find_technique(trainer).whole_graph else {}
    model = case.by_ranks(world, trainer, **how) if world > 1 else case.train(trainer, **how)
    scores, table = read_scores(model), predicted(case, model, tmp_path / "out.parquet")
    assert scores is not None and set(scores.splits) == {"train", "valid", "test"}
    assert list(scores.classes) == list(open_graph(case.graph.graph).class_names)
    for split, counts in scores.splits.items():
        rows = table.filter(pl.col("split") == split)
        assert_those_of_scikit_learn(counts, list(scores.classes), rows)
        assert model.summary["numbers"][f"{split}_f1_macro"] == counts.score("f1_macro")


def predicted(case: Case, model: Artifact, out: Path) -> pl.DataFrame:
    """The table that `predict` writes of all nodes, classes as text."""
    (semantic,) = model_configs(TrainTable(**(SMALL | {"name": "small"} | METRIC)), SAMPLING, 5)
    bounds = Bounds(workspace_bytes=1 << 20, threads=1)
    store = Store(case.home)
    data = PredictedData(reopened(store, case.graph.inputs), case.graph.inputs)
    predict(AskedPrediction(data, model, semantic, bounds, out))
    return pl.read_parquet(out).with_columns(pl.col("class", "label").cast(pl.String))


def assert_those_of_scikit_learn(counts: ClassCounts, classes: list[str], rows: pl.DataFrame) -> None:
    """Precision, recall, F1 and nodes of each class, their means, the confusion matrix, and accuracy by probability."""
    metrics, calibration = pytest.importorskip("sklearn.metrics"), pytest.importorskip("sklearn.calibration")
    labels, answers = rows["label"].to_list(), rows["class"].to_list()
    found = metrics.precision_recall_fscore_support(labels, answers, labels=classes, zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "support"), found, strict=True):
        assert getattr(counts, name).tolist() == pytest.approx(values.tolist(), abs=1e-14), name
    for average in ("macro", "micro", "weighted"):
        means = metrics.precision_recall_fscore_support(labels, answers, average=average, zero_division=0)
        for name, mean in zip(("precision", "recall", "f1"), means, strict=False):
            assert counts.mean(getattr(counts, name), average) == pytest.approx(mean, abs=1e-14), (name, average)
    matrix = metrics.confusion_matrix(labels, answers, labels=classes)
    assert np.array_equal(counts.matrix(np.arange(len(classes))), matrix)
    right = (rows["class"] == rows["label"]).to_numpy()
    points = calibration.calibration_curve(right, rows["probability"].to_numpy(), n_bins=BINS)
    np.testing.assert_allclose(counts.reliability(), np.stack(points[::-1], axis=1), atol=1e-6)
