"""Models whose own code has changed since: `status` names the file, and the leaderboard keeps them with a mark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.results.leaderboard import leaderboard_table, remarks
from graphmill.jobs.commands.results.status import pipeline_states
from graphmill.jobs.commands.results.tuned import with_older
from graphmill.jobs.launch import Launch, launch
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import recipe, sbm

CODE = """
from torch import nn

WIDTH = 4


class Net(nn.Module):
    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.first, self.last = nn.Linear(in_width, WIDTH), nn.Linear(WIDTH, num_classes)

    def forward(self, x, edge_index):
        return self.last(self.first(x))
"""
TABLES: dict[str, Any] = {"graph": sbm(), "sampling": {"fanouts": [3, 3], "batch_size": 64}}


def written(folder: Path, code: str) -> Pipeline:
    """The pipeline with two models of a module, and one of graphmill."""
    (folder / "older_source.py").write_text(code)
    own = {"name": "own", "model": "older_source:Net", "hidden": 8, "epochs": 1}
    text = recipe(own, {"name": "sage", "hidden": 8, "epochs": 1}, **TABLES)
    (folder / "mine.toml").write_text(text)
    return load_pipeline(folder / "mine.toml", TrainTable)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, quick_launches: None) -> Path:
    """A folder with the pipeline and the home in which it is trained."""
    folder = tmp_path_factory.mktemp("older")
    launch(Launch(pipeline=written(folder, CODE), home=folder / "home", report=lambda line: None))
    return folder


def reasons(pipeline: Pipeline, home: Path) -> dict[str, list[str]]:
    return {state.step: [*state.reasons] for state in pipeline_states(pipeline, home) if state.artifact is None}


def test_a_comment_and_another_class_leave_everything_there(folder: Path) -> None:
    pipeline = written(folder, f"# mine\n{CODE}\n\nclass Other(Net):\n    pass\n")
    assert reasons(pipeline, folder / "home") == {}
    assert [entry.older for entry in with_older(pipeline, folder / "home")] == [False, False]


def test_an_edit_of_what_is_used_is_told_with_its_file_and_marked(folder: Path) -> None:
    pipeline, home = written(folder, CODE.replace("WIDTH = 4", "WIDTH = 5")), folder / "home"
    assert reasons(pipeline, home) == {"own": [f"other source of older_source:Net, {folder / 'older_source.py'}"]}
    entries = with_older(pipeline, home)
    assert {entry.table.name: entry.older for entry in entries} == {"own": True, "sage": False}
    rows = {row[0]: row[-1] for row in leaderboard_table("mine", entries).rows}
    assert rows["own"].endswith(", older source") and "older" not in rows["sage"]
    assert any(line.startswith("Older source (own): ") for line in remarks(entries))
    found = CliRunner().invoke(graphmill, ["--home", str(home), "leaderboard", str(pipeline.path), "--json"])
    listed = {row["name"]: row["older_source"] for row in json.loads(found.stdout)["rows"]}
    assert listed == {"own": True, "sage": False}


def test_a_model_trained_anew_stands_beside_the_older_one(folder: Path, tmp_path: Path, quick_launches: None) -> None:
    home = tmp_path / "home"
    shutil.copytree(folder / "home", home)
    pipeline = written(folder, CODE.replace("self.last(self.first(x))", "self.last(self.first(x).relu())"))
    launch(Launch(pipeline=pipeline, home=home, report=lambda line: None))
    assert [(entry.table.name, entry.older) for entry in with_older(pipeline, home)] == [
        ("own", False),
        ("sage", False),
        ("own", True),
    ]


def test_without_any_model_the_command_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no trained model of mine"):
        with_older(written(folder, CODE), tmp_path)
