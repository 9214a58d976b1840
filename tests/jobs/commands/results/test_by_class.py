"""Scores by class as `leaderboard --by class` and `show` print them: those of the stored counts, under the names of the data."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from graphmill.assets.building.page import markdown_text
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.results.by_class import RETRAIN, class_board, print_class_board
from graphmill.jobs.commands.results.leaderboard import stored_entries
from graphmill.jobs.figures.class_scores import class_metadata, class_table, confused
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.class_scores import ClassScores, count_classes, joined_scores, read_scores
from tests.jobs.trained import trained_home

NASTY = "a|b*\x1b[31m\n<i>"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The models of `tiny` and `other`: sage and gcn, and sage with two seeds."""
    folder = tmp_path_factory.mktemp("classes")
    store = trained_home(folder)
    paths = {name: folder / "recipes" / f"{name}.toml" for name in ("tiny", "other")}
    entries = {name: stored_entries(load_pipeline(path, TrainTable), store.home) for name, path in paths.items()}
    return SimpleNamespace(folder=store.home, paths=paths, entries=entries)


def printed(home: SimpleNamespace, *arguments: str) -> str:
    found = CliRunner().invoke(graphmill, ["--home", str(home.folder), *arguments], catch_exceptions=False)
    assert found.exit_code == 0
    return found.output


def test_a_row_for_each_class_and_a_column_for_each_table(home: SimpleNamespace) -> None:
    table = class_board("tiny", home.entries["tiny"])
    (model,) = next(entry.models for entry in home.entries["tiny"] if entry.table.name == "gcn")
    scores = read_scores(model)
    assert scores is not None
    counts = scores.splits["test"]
    assert set(table.columns) == {"class", "nodes", "sage", "gcn"}
    place = table.columns.index("gcn")
    assert [row[place] for row in table.rows[: len(scores.classes)]] == [f"{100 * value:.2f}" for value in counts.f1]
    assert [int(row[1]) for row in table.rows[: len(scores.classes)]] == counts.support.tolist()
    assert [row[0] for row in table.rows[-3:]] == ["macro mean", "micro mean", "weighted mean"]
    assert table.rows[-2][place] == f"{100 * model.summary['numbers']['test_accuracy']:.2f}"
    text = printed(home, "leaderboard", str(home.paths["tiny"]), "--by", "class")
    assert text.startswith("tiny: F1 by class, test\n") and all(row[place] in text for row in table.rows)
    assert printed(home, "leaderboard", str(home.paths["tiny"]), "--by", "class", "--markdown") == table.markdown()


def test_several_seeds_are_a_mean_and_all_of_them_in_json(home: SimpleNamespace) -> None:
    table = class_board("other", home.entries["other"])
    assert all("±" in row[2] for row in table.rows[-3:])
    found = json.loads(printed(home, "leaderboard", str(home.paths["other"]), "--by", "class", "--json"))
    (row,) = found["rows"]
    assert row["seeds"] == [1, 2] and len(row["scores"]) == 2
    for each, model in zip(row["scores"], home.entries["other"][0].models, strict=True):
        assert each["splits"]["valid"]["accuracy"] == model.summary["numbers"]["valid_accuracy"]
        assert len(each["splits"]["test"]["f1"]) == len(each["classes"])


def test_show_has_every_split(home: SimpleNamespace) -> None:
    text = printed(home, "show", f"{home.paths['tiny']}/gcn")
    for split in ("training", "validation", "test"):
        assert f"scores by class, {split}" in text
    assert text.count("Expected calibration error") == 3 and "taken for" in text
    found = json.loads(printed(home, "show", f"{home.paths['tiny']}/gcn", "--json"))
    assert set(found["scores_by_class"]["splits"]) == {"train", "valid", "test"}


def test_models_of_an_earlier_version_are_named(
    home: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = next(entry.models[0].version for entry in home.entries["tiny"] if entry.table.name == "gcn")
    where = "graphmill.jobs.commands.results.by_class.read_scores"
    monkeypatch.setattr(where, lambda model: None if model.version == old else read_scores(model))
    print_class_board("tiny", home.entries["tiny"])
    assert f"gcn: {RETRAIN}" in capsys.readouterr().out
    monkeypatch.setattr(where, lambda model: None)
    with pytest.raises(InputError, match="no model of tiny has scores by class"):
        class_board("tiny", home.entries["tiny"])


def test_counts_of_several_models_are_added(home: SimpleNamespace) -> None:
    models = home.entries["other"][0].models
    joined, each = joined_scores(models), [read_scores(model) for model in models]
    assert joined is not None
    for name in ("right", "support", "predicted", "bins"):
        sums = sum(getattr(one.splits["test"], name) for one in each if one is not None)
        assert np.array_equal(getattr(joined.splits["test"], name), sums)
    text = class_metadata(models)["scores by class"].value
    assert "2 models together" in text and "| macro mean |" in text


def test_names_of_classes_are_escaped_and_many_classes_cut() -> None:
    rng = np.random.default_rng(0)
    labels = np.sort(rng.integers(0, 200, 3000))
    scores = ClassScores(
        classes=[f"{NASTY}{place}" for place in range(200)],
        splits={"test": count_classes(rng.standard_normal((3000, 200)) + 2 * np.eye(200)[labels], labels)},
    )
    table: Any = class_table(scores)
    assert len(table.rows) == 53 and "the 50 largest of 200" in table.title
    most = sorted(np.bincount(labels, minlength=200))[-50:]
    assert sorted(int(row[-1]) for row in table.rows[:50]) == most
    text = table.markdown()
    assert "\x1b" not in text and markdown_text(NASTY) in text and len(text.splitlines()) == 55
    assert all("\x1b" not in line and "\n" not in line for line in confused(scores, "test"))
