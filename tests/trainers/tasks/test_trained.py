"""Trained models of other tasks than classes: near the best score that any model reaches, far above a model without edges, predicted in
the units of the data, and refused with one sentence where a key is for another kind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch

from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.sources.registry import SOURCES, config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.assets.tasks.labels import OF_LABEL, Kind
from graphmill.jobs.commands.results.leaderboard import spread
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.answers.kinds import Columns
from graphmill.trainers.inference.predict import predict_table
from graphmill.trainers.models.loss import PLAIN
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.page import headline
from graphmill.trainers.record.column_scores import error_score, in_units, label_score, standard
from graphmill.trainers.record.scores import METRICS_OF
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import Built, build_config
from tests.recipes import recipe, sbm

GRAPH = sbm(nodes=3000, edges=60_000, features=16, classes=6, p_in=0.8)
BEST = {"multilabel": ("f1_micro", "best_f1_micro"), "regression": ("r2", "best_r2")}
Trained = tuple[Kind, Pipeline, Store, Built, Artifact]


def text(kind: Kind, **keys: Any) -> str:
    table = {
        "name": "gcn",
        "model": "gcn",
        "hidden": 32,
        "epochs": 25,
        "lr": 0.01,
        "dropout": 0.0,
        "weight_decay": 0.001,
    }
    table |= {"eval_every": 5} | keys
    return recipe(table, graph=GRAPH, task={"kind": kind}, sampling={"fanouts": [15, 10], "batch_size": 256})


@pytest.fixture(scope="module", params=["multilabel", "regression"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "mine.toml").write_text(text(request.param))
    pipeline, store = load_pipeline(folder / "mine.toml", TrainTable), Store(folder / "home")
    built = build_config(store.home, pipeline.graph, threads=1)
    assert pipeline.sampling is not None
    (model,) = train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    return request.param, pipeline, store, built, model


def alone(kind: Kind, built: Built) -> float:
    """The score on test nodes of two dense layers, which see a node's own features and none of its neighbours'."""
    graph, rows = built.opened, torch.from_numpy(np.array(built.features.array("rows")))
    torch.manual_seed(0)
    last = torch.nn.Linear(32, graph.num_classes)
    model = torch.nn.Sequential(torch.nn.Linear(rows.shape[1], 32), torch.nn.ReLU(), last)
    optimiser, ids = torch.optim.Adam(model.parameters(), lr=0.01), np.array(graph.train_ids)
    labels, loss = torch.from_numpy(graph.labels[ids]), PLAIN[kind]
    for _ in range(150):
        optimiser.zero_grad()
        (loss(model(rows[ids]), labels) / len(ids)).backward()
        optimiser.step()
    found, wanted = model(rows[np.array(graph.test_ids)]).detach().numpy(), graph.labels[np.array(graph.test_ids)]
    score = label_score("f1_micro", found, wanted) if kind == "multilabel" else error_score("r2", found, wanted)
    assert score is not None
    return score


def test_a_model_reaches_the_best_score_and_one_without_edges_does_not(trained: Trained) -> None:
    kind, pipeline, _, built, model = trained
    metric, best = BEST[kind]
    assert pipeline.train[0].metric == metric  # which the file leaves out
    numbers, most = model.summary["numbers"], built.numbers[best]
    assert numbers[f"test_{metric}"] == pytest.approx(most, abs=0.02) and alone(kind, built) < most - 0.1
    checks = {check["name"]: check for check in model.summary["checks"]}
    assert all(check["passed"] for check in checks.values()), checks
    words = {"multilabel": "above .* %, what the answer", "regression": "above .* %, what the mean of 600 nodes"}
    assert re.search(words[kind], checks["score above chance"]["detail"])
    assert f"test {'micro F1' if kind == 'multilabel' else 'R2'}" in headline([model])


def test_predictions_have_the_score_of_the_model(trained: Trained, tmp_path: Path) -> None:
    kind, pipeline, store, built, model = trained
    out, graph = tmp_path / "a.parquet", built.opened
    _, rows = predict_table(store, pipeline, "gcn", out, columns=Columns(probabilities=kind == "multilabel"))
    table = polars.read_parquet(out)
    assert rows == len(table) == 3000
    test = table.filter(polars.col("split") == "test")
    if kind == "multilabel":
        given, had = (
            np.array([[name in row for name in graph.class_names] for row in test[column].to_list()])
            for column in ("labels", "label")
        )
        score = label_score("f1_micro", np.where(given, 1, -1), had.astype(np.int8))
        found = np.stack(test["probabilities"].to_list()) >= 0.5
        assert (found == given).all()
    else:
        numbers = test["prediction"].to_numpy()[:, None].astype(np.float64)
        score = error_score("r2", numbers, test["label"].to_numpy()[:, None])
        with pytest.raises(InputError, match="for classes and labels"):
            predict_table(store, pipeline, "gcn", out, columns=Columns(top=1))
    assert score == pytest.approx(model.summary["numbers"][f"test_{BEST[kind][0]}"], abs=2e-3)


def test_numbers_are_standardised_by_training_nodes_and_shown_in_their_unit(trained: Trained) -> None:
    kind, _, _, built, model = trained
    if kind == "multilabel":
        return
    mean, deviation = standard(built.opened)
    numbers = built.opened.labels[np.array(built.opened.train_ids)].astype(np.float64)
    scaled = (numbers - mean) / deviation
    assert abs(scaled.mean()) < 1e-12 and abs(scaled.std() - 1) < 1e-12
    np.testing.assert_allclose(in_units(scaled, mean, deviation), numbers, rtol=1e-12)
    found = model.summary["numbers"]
    assert 0 < found["test_mae"] < found["test_rmse"] < deviation[0]
    assert spread([-0.25], "neg_mean_absolute_error") == "-0.25" and spread([0.25], "r2") == "25.00"


REFUSED: list[tuple[Kind, dict[str, Any], str]] = [
    ("regression", {"metric": "accuracy"}, 'metric = "accuracy" is not a metric of .task. kind = "regression": give one of r2'),
    ("multilabel", {"metric": "r2"}, 'metric = "r2" is not a metric of .task. kind = "multilabel": give one of f1_micro'),
    ("classes", {"metric": "r2"}, 'metric = "r2" is not a metric of .task. kind = "classes"'),
    ("regression", {"class_weights": "balanced"}, "class_weights = 'balanced' is for .task. kind = 'classes'"),
    ("multilabel", {"label_smoothing": 0.1}, "label_smoothing = 0.1 is for .task. kind = 'classes'"),
    ("multilabel", {"error": "huber"}, "error = 'huber' is for .task. kind = 'regression'"),
    ("classes", {"pos_weight": "balanced"}, "pos_weight = 'balanced' is for .task. kind = 'multilabel'"),
    ("multilabel", {"pos_weight": [1.0, -1.0]}, "has weights that are not above 0"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "keys", "problem"), REFUSED)
def test_a_key_of_another_kind_is_refused_in_one_sentence(
    tmp_path: Path, kind: Kind, keys: dict[str, Any], problem: str
) -> None:
    (tmp_path / "mine.toml").write_text(text(kind, **keys))
    with pytest.raises(InputError, match=rf"has 1 mistake:\n.*{problem}"):
        load_pipeline(tmp_path / "mine.toml", TrainTable)


@pytest.mark.parametrize(
    ("table", "problem"),
    [('kind = "pairs"', 'kind = "pairs" is not one of'), ('kinds = "x"', "has no key kinds")],
)
def test_mistakes_of_the_table_are_told_once(tmp_path: Path, table: str, problem: str) -> None:
    (tmp_path / "mine.toml").write_text(text("regression").replace('kind = "regression"', table))
    with pytest.raises(InputError, match=rf"has 1 mistake:\n.*{problem}"):
        load_pipeline(tmp_path / "mine.toml", TrainTable)


OTHER_METRICS = [
    (kind, metric) for kind in METRICS_OF for other in METRICS_OF.values() for metric in other if metric not in METRICS_OF[kind]
]  # fmt: skip
TABLES = (
    "[graph.nodes.n]\npath = 'n.parquet'\n[graph.edges.e]\npath = 'e.parquet'\nsource_type = 'n'\ntarget_type = 'n'\n"
)


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_refuses_a_metric_of_another_kind_in_one_sentence(tmp_path: Path, source: str) -> None:
    """For a kind that the source does not give it says so in a second sentence."""
    cls = config_class(source)
    given = "".join(f"{key} = {json.dumps(value)}\n" for key, value in cls.example.items())
    given = f"[graph]\nsource = '{source}'\n" + (TABLES if source == "tables" else given)
    file = tmp_path / "mine.toml"
    for number in np.random.default_rng(len(source)).permutation(len(OTHER_METRICS))[:6]:
        kind, metric = OTHER_METRICS[number]
        sampling = "[sampling]\nfanouts = [5]\nbatch_size = 8\n"
        file.write_text(
            f"{given}{sampling}[task]\nkind = '{kind}'\n[[train]]\nname = 'x'\nlayers = 1\nmetric = '{metric}'\n"
        )
        with pytest.raises(InputError) as caught:
            load_pipeline(file, TrainTable)
        said = str(caught.value).splitlines()
        assert sum(f'metric = "{metric}" is not a metric of [task] kind = "{kind}"' in line for line in said) == 1, said
        unable = sum(f"kind = '{kind}', but source = '{source}' gives labels for" in line for line in said)
        assert (unable == 1) == (kind not in (*cls.tasks, "links")), said
        unnamed = sum("learns labels of edges: name their column" in line for line in said)
        assert unnamed == (kind in OF_LABEL and kind in cls.tasks)
        assert f"has {1 + unable + unnamed} mistake" in said[0], said
