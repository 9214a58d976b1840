"""An exact inference that was killed goes on from the rows that it kept, with the same bits; damaged rows are computed again."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.graph.read import Graph
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.kept import KeptLayers
from graphmill.trainers.models.build import build_model
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.rows.source import MappedSource
from tests.trainers.graphs import random_graph
from tests.trainers.runs import content, train_small

KEY = b"k" * 16
MODELS: list[dict[str, Any]] = [
    {"model": "sage", "layers": 3},
    {"model": "gcn", "layers": 2, "hidden": 48, "residual": True},
    {"model": "gin", "layers": 3, "input": "linear", "head": "linear", "jk": "cat"},
    {"model": "gat", "layers": 2, "heads": 2, "head": "linear", "jk": "max"},
    {"model": "sage", "layers": 2, "aggregator": "max"},
]
KILLED = """
import os, signal
from pathlib import Path
from graphmill.trainers.inference import gathered, kept
from tests.trainers.runs import train_small

gathered.TILE_ROWS, kept.FIRST_SECONDS, kept.SAVING_SHARE = (64, 64), 0, 0
rounds, save = [], kept.KeptLayers.save_if_due

def save_and_die(self):
    save(self)
    rounds.append(1)
    if len(rounds) == {rounds}:
        os.kill(os.getpid(), signal.SIGKILL)

kept.KeptLayers.save_if_due = save_and_die
train_small(Path({home!r}), eval="exact")
"""


class Killed(Exception):
    """Ends an inference."""


class Dying(KeptLayers):
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
    monkeypatch.setattr("graphmill.trainers.inference.gathered.TILE_ROWS", (64, 64))
    monkeypatch.setattr("graphmill.trainers.inference.kept.FIRST_SECONDS", 0)
    monkeypatch.setattr("graphmill.trainers.inference.kept.SAVING_SHARE", 0)


@pytest.mark.parametrize("some", [None, 40])
@pytest.mark.parametrize("workspace", [20_000, 1 << 20])
@pytest.mark.parametrize("options", MODELS, ids=str)
def test_an_inference_that_is_killed_again_and_again_ends_with_the_same_bits(
    graph: Graph, tmp_path: Path, options: dict[str, Any], workspace: int, some: int | None
) -> None:
    model = build_model(TrainConfig(**{"hidden": 8, **options}), graph.features.width, graph.num_classes, seed=0)
    ids, draws, log = None if some is None else np.arange(some), np.random.default_rng(0), tmp_path / "log"

    def infer(kept: KeptLayers | None) -> torch.Tensor:
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
        kept = Bounds(workspace_bytes=1 << 20, threads=1, folder=tmp_path, kept=KeptLayers(tmp_path / "log", key))
        logits += [
            Inference(model, graph.topology, MappedSource(graph.features), each).exact() for each in (kept, bounds)
        ]
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[2], logits[3])


@pytest.mark.parametrize("rounds", [5, 11])
def test_a_training_that_is_killed_in_its_final_scores_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    expected = content(train_small(tmp_path / "whole", eval="exact"))
    child = subprocess.run(
        [sys.executable, "-c", KILLED.format(rounds=rounds, home=str(tmp_path / "killed"))],
        capture_output=True,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    (left,) = (tmp_path / "killed" / "checkpoints").glob("*.scores")
    taken, restored = [], KeptLayers.windows

    def windows(self: KeptLayers, name: str) -> Any:
        for each in restored(self, name):
            taken.append(name)
            yield each

    monkeypatch.setattr(KeptLayers, "windows", windows)
    assert content(train_small(tmp_path / "killed", resume=True, eval="exact")) == expected
    assert taken and not left.exists()
