"""An inference that was killed goes on from the rows that it kept, with the same bits; damaged rows are computed again."""

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.graph.read import Graph
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.kept import RowLog
from graphmill.trainers.models.build import build_model
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.rows.source import MappedSource
from tests import forks
from tests.e2e.commands import ROOT
from tests.e2e.commands import graphmill as run_graphmill
from tests.trainers.graphs import random_graph
from tests.trainers.inference.killed import PREDICTED, PREDICTIONS, WAYS, as_often_as_possible

KEY = b"k" * 16
MODELS: list[dict[str, Any]] = [
    {"model": "sage", "layers": 3},
    {"model": "gcn", "layers": 2, "hidden": 48, "residual": True},
    {"model": "gin", "layers": 3, "input": "linear", "head": "linear", "jk": "cat"},
    {"model": "gat", "layers": 2, "heads": 2, "head": "linear", "jk": "max"},
    {"model": "sage", "layers": 2, "aggregator": "max"},
]


class Killed(Exception):
    """Ends an inference."""


class Dying(RowLog):
    """Rows that are kept in every round until the inference ends behind so many."""

    def __init__(self, path: Path, rounds: int):
        super().__init__(path, KEY)
        self.rounds = rounds

    def save_if_due(self) -> None:
        super().save_if_due()
        self.rounds -= 1
        if self.rounds < 0:
            raise Killed


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return random_graph(tmp_path_factory.mktemp("home"))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    as_often_as_possible(monkeypatch.setattr)


@pytest.mark.parametrize("some", [None, 40])
@pytest.mark.parametrize("workspace", [20_000, 1 << 20])
@pytest.mark.parametrize("options", MODELS, ids=str)
def test_an_inference_that_is_killed_again_and_again_ends_with_the_same_bits(
    graph: Graph, tmp_path: Path, options: dict[str, Any], workspace: int, some: int | None
) -> None:
    model = build_model(TrainConfig(**{"hidden": 8, **options}), graph.features.width, graph.num_classes, seed=0)
    ids, draws, log = None if some is None else np.arange(some), np.random.default_rng(0), tmp_path / "log"

    def infer(kept: RowLog | None) -> torch.Tensor:
        bounds = Bounds(workspace_bytes=workspace, threads=1, folder=tmp_path, kept=kept)
        return Inference(model, graph.topology, MappedSource(graph.features), bounds).exact(ids)

    expected, kills, found = infer(None), 0, None
    while found is None:
        try:
            found = infer(Dying(log, 3))
        except Killed:
            kills += 1
            assert kills < 60  # each goes on where the one before has ended
            if kills in (3, 6):  # what a disk or a kill in the middle of a round may leave
                damaged = bytearray(log.read_bytes())
                damaged[draws.integers(len(damaged) // 2, len(damaged))] ^= 1
                log.write_bytes(damaged[: draws.integers(len(damaged) // 2, len(damaged))] if kills == 3 else damaged)
    assert torch.equal(found, expected)
    assert kills > 1 or (workspace > 1e6 and "aggregator" in options)  # all of its nodes are one range


def test_rows_of_another_model_are_not_taken(graph: Graph, tmp_path: Path) -> None:
    models = [build_model(TrainConfig(hidden=8), graph.features.width, graph.num_classes, seed=seed) for seed in (0, 1)]
    logits = []
    for model, key in zip(models, (KEY, b"l" * 16), strict=True):
        bounds = Bounds(workspace_bytes=1 << 20, threads=1, folder=tmp_path)
        kept = Bounds(workspace_bytes=1 << 20, threads=1, folder=tmp_path, kept=RowLog(tmp_path / "log", key))
        logits += [
            Inference(model, graph.topology, MappedSource(graph.features), each).exact() for each in (kept, bounds)
        ]
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[2], logits[3])


def kill(name: str, folder: Path, rounds: int) -> None:
    """Computes in a process that is killed behind so many rounds."""
    words = ["-m", "tests.trainers.inference.killed", name, str(folder), str(rounds)]
    child = forks.run(words, cwd=ROOT, imports=forks.TRAININGS)
    assert child.returncode == -signal.SIGKILL, child.stderr


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sets whose windows are taken from a log."""
    found, restored = [], RowLog.windows

    def windows(self: RowLog, name: str) -> Any:
        for each in restored(self, name):
            found.append(name)
            yield each

    monkeypatch.setattr(RowLog, "windows", windows)
    return found


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("rounds", [6])
def test_a_training_that_is_killed_in_its_final_scores_goes_on(
    tmp_path: Path, taken: list[str], name: str, rounds: int
) -> None:
    expected = WAYS[name](tmp_path / "whole", False)
    assert not taken
    kill(name, tmp_path / "killed", rounds)
    left = tmp_path / "killed" / "checkpoints"
    assert len(list(left.glob("*.scores*"))) == 1 + name.startswith("ranks")
    assert WAYS[name](tmp_path / "killed", True) == expected
    assert taken and not list(left.glob("*.scores*"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pipeline file and the home of its trained models."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "killed.toml").write_text(PREDICTED)
    told = run_graphmill("run", str(folder / "killed.toml"), home=folder / "home", forked=True)
    assert told.returncode == 0, told.stderr
    return folder


@pytest.mark.parametrize("name", PREDICTIONS)
def test_a_prediction_that_is_killed_goes_on(models: Path, tmp_path: Path, taken: list[str], name: str) -> None:
    folders = [tmp_path / "whole", tmp_path / "killed"]
    for folder in folders:
        shutil.copytree(models, folder)
    expected = PREDICTIONS[name](folders[0], False)
    assert not taken
    kill(name, folders[1], 5)
    assert PREDICTIONS[name](folders[1], True) == expected and taken
    if name == "predict":
        assert not list(tmp_path.glob("*/.out.parquet.*"))
