"""Scores by label and by target as `leaderboard --by`, `show`, the report and the web UI print them: those of the stored file."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.results.by_class import class_board
from graphmill.jobs.commands.results.leaderboard import entry_of
from graphmill.jobs.figures.class_scores import cell, column_metadata, column_table
from graphmill.jobs.report.changes import ReportChanges
from graphmill.jobs.report.facts import read_facts
from graphmill.jobs.report.page import report_page
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.column_scores import read_columns
from graphmill.trainers.run import train_table
from tests.assets.sources.own_data import build_config
from tests.recipes import recipe, sbm

SHOWN = {"multilabel": ("f1", "f1_macro", "F1 by label"), "regression": ("r2", "r2", "R2 by target")}


@pytest.fixture(scope="module", params=["multilabel", "regression"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A table with two seeds."""
    folder, kind = tmp_path_factory.mktemp("columns"), request.param
    table = {"name": "gcn", "model": "gcn", "hidden": 8, "epochs": 2, "seeds": [1, 2]}
    graph = sbm(nodes=600, edges=3000, features=8, classes=4)
    text = recipe(table, graph=graph, task={"kind": kind}, sampling={"fanouts": [5, 5], "batch_size": 100})
    (folder / "mine.toml").write_text(text)
    pipeline, store = load_pipeline(folder / "mine.toml", TrainTable), Store(folder / "home")
    built = build_config(store.home, pipeline.graph, threads=1)
    assert pipeline.sampling is not None
    models = train_table(store, built.inputs, pipeline.train[0], pipeline.sampling, 0, report=lambda line: None)
    assert len(models) == 2
    entries = [entry_of(pipeline, pipeline.train[0], models)]
    return SimpleNamespace(kind=kind, home=store.home, path=folder / "mine.toml", pipeline=pipeline, entries=entries)


def printed(home: SimpleNamespace, *arguments: str) -> str:
    found = CliRunner().invoke(graphmill, ["--home", str(home.home), *arguments], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_the_stored_scores_are_those_of_the_summary(home: SimpleNamespace) -> None:
    score, metric, _ = SHOWN[home.kind]
    for model in home.entries[0].models:
        scores = read_columns(model)
        assert scores is not None and scores.kind == home.kind and set(scores.splits) == {"train", "valid", "test"}
        for split, counts in scores.splits.items():
            means, numbers = counts.over_columns(), model.summary["numbers"]
            assert means[score] == pytest.approx(numbers[f"{split}_{metric}"], abs=1e-12)
            if home.kind == "regression":
                assert means["mean_absolute_error"] == pytest.approx(numbers[f"{split}_mae"], rel=1e-12)
                assert means["root_mean_squared_error"] == pytest.approx(numbers[f"{split}_rmse"], rel=1e-12)


def test_a_row_for_each_column_and_a_cell_for_each_table(home: SimpleNamespace) -> None:
    table = class_board("mine", home.entries)
    _, metric, title = SHOWN[home.kind]
    assert (
        table.title == f"mine: {title}, test"
        and table.columns[2:] == ["gcn"]
        and len(table.rows) == (5 if home.kind == "multilabel" else 2)
    )
    values = [model.summary["numbers"][f"test_{metric}"] for model in home.entries[0].models]
    assert table.rows[-1][0] == "mean" and table.rows[-1][2].startswith(f"{100 * sum(values) / 2:.2f} ± ")
    word = title.split()[-1]
    text = printed(home, "leaderboard", str(home.path), "--by", word)
    assert text.startswith(f"{table.title}\n") and all(row[2] in text for row in table.rows)
    (row,) = json.loads(printed(home, "leaderboard", str(home.path), "--by", word, "--json"))["rows"]
    assert row["seeds"] == [1, 2] and len(row["scores"]) == 2 and row["scores"][0][f"{word}s"]


def test_show_has_every_split(home: SimpleNamespace) -> None:
    word = SHOWN[home.kind][2].split()[-1]
    text = printed(home, "show", f"model/{home.entries[0].models[0].version}")
    assert all(f"scores by {word}, {split}" in text for split in ("training", "validation", "test"))
    found = json.loads(printed(home, "show", f"model/{home.entries[0].models[0].version}", "--json"))
    assert set(found[f"scores_by_{word}"]["splits"]) == {"train", "valid", "test"}


def test_the_page_and_the_report_have_the_table(home: SimpleNamespace) -> None:
    word, models = SHOWN[home.kind][2].split()[-1], home.entries[0].models
    (text,) = (each.value for each in column_metadata(models).values())
    assert f"**scores by {word}, test**, mean of 2 models" in text and "| mean |" in text
    page = report_page(read_facts(home.pipeline, home.home), ReportChanges())
    assert f"Scores by {word}</h2>" in page and f"gcn: scores by {word}, test" in page
    assert ("in the unit of each target" in page) == (home.kind == "regression")


@pytest.mark.parametrize(("score", "text"), [("f1", "12.35"), ("r2", "12.35"), ("mean_absolute_error", "0.1235")])
def test_a_share_is_in_percent_and_an_error_in_its_unit(score: str, text: str) -> None:
    assert cell(score, 0.12345678) == text and cell(score, float("nan")) == "-"


def test_models_without_such_scores_are_named(home: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.jobs.commands.results.by_class.read_columns", lambda model: None)
    with pytest.raises(InputError, match="no model of mine has scores by class, label or target"):
        class_board("mine", home.entries)


def test_of_many_labels_those_with_the_most_nodes_are_shown(
    home: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores: Any = read_columns(home.entries[0].models[0])
    monkeypatch.setattr("graphmill.jobs.figures.class_scores.MOST_ROWS", 1)
    table = column_table(scores)
    most = max(range(len(scores.names)), key=lambda place: scores.splits["test"].nodes[place])
    assert [row[0] for row in table.rows] == [scores.names[most], "mean"]
