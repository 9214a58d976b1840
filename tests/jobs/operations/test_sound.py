"""What `validate` and `run` refuse beyond the text of a file: ranks that do not divide the parts, and users' own models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.storage.names.home import ROOT
from graphmill.jobs.commands.options import Asked
from graphmill.jobs.commands.pipelines.checked import load_checked
from graphmill.jobs.operations.sound import require_sound
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests import forks
from tests.laws.asked import MODULE, Ask, pipeline_text, write_beside

COUNTING = Ask(keys={"model": f"{MODULE}:counting"}, sampling={"fanouts": [4, 4]})


def parsed(folder: Path, trainer: str, ask: Ask) -> Pipeline:
    write_beside(folder)
    (folder / "mine.toml").write_text(text := pipeline_text(trainer, ask))
    return parse_pipeline(folder / "mine.toml", text.encode(), TrainTable)


@pytest.mark.parametrize("trainer", ["distributed", "fresh-distributed", "fullgraph"])
def test_ranks_divide_the_parts_and_the_command_says_how_many(tmp_path: Path, trainer: str) -> None:
    pipeline = parsed(tmp_path, trainer, Ask(own={"ranks": 3}))
    line = 1 + pipeline.text.splitlines().index("ranks = 3")
    with pytest.raises(InputError, match=rf"mine\.toml:{line}: ranks = 3 does not divide \[partitions\] parts = 2"):
        require_sound(pipeline)
    require_sound(pipeline, ranks=2)
    require_sound(pipeline, names=["another"])
    with pytest.raises(InputError, match=rf"mine\.toml:{line}: --ranks 5 does not divide"):
        require_sound(pipeline, ranks=5)


def test_devices_are_a_multiple_of_the_ranks(tmp_path: Path) -> None:
    pipeline = parsed(tmp_path, "fullgraph", Ask(own={"devices": 1}))
    line = 1 + pipeline.text.splitlines().index("devices = 1")
    require_sound(pipeline)
    with pytest.raises(InputError, match=rf"mine\.toml:{line}: devices = 1 is not a multiple of --ranks 2"):
        require_sound(pipeline, ranks=2)
    with pytest.raises(InputError, match=rf"mine\.toml:{line}: devices = 1 is not a multiple of ranks = 2"):
        parsed(tmp_path, "fullgraph", Ask(own={"devices": 1, "ranks": 2}))


def run_in_fork(command: list[str], order: str) -> subprocess.CompletedProcess[str]:
    """Stands for a process that makes models: it runs in a fork of one that has imported torch."""
    return forks.run(command[1:], cwd=ROOT, imports=forks.TRAININGS, input=order)


@pytest.mark.parametrize(
    ("trainer", "model", "own", "problem"),
    [
        ("factored", "counting", {}, "has buffers, but .* on replicas"),
        ("fullgraph", "counting", {}, "has buffers, but .* in chunks would change them"),
        ("fullgraph", "counting", {"mode": "device"}, ""),
        ("distributed", "counting", {}, "has buffers, but .* with several parts"),
        ("fullgraph", "layers", {}, ""),
        ("fullgraph", "absent", {}, "has no absent"),
    ],
)
def test_own_models_are_made_once_and_refused_at_their_line(
    tmp_path: Path, trainer: str, model: str, own: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphmill.jobs.operations.sound.run_child", run_in_fork)
    pipeline = parsed(tmp_path, trainer, Ask(keys={"model": f"{MODULE}:{model}"}, own=own))
    if not problem:
        return require_sound(pipeline)
    line = 1 + pipeline.text.splitlines().index(f'model = "{MODULE}:{model}"')
    with pytest.raises(InputError, match=rf"mine\.toml:{line}: .*{problem}"):
        require_sound(pipeline)
    return None


def test_own_models_are_made_in_a_process_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    pipeline = parsed(tmp_path, "fullgraph", Ask(keys={"model": f"{MODULE}:counting"}))
    with pytest.raises(InputError, match=r"mine\.toml:\d+: .*has buffers"):
        require_sound(pipeline)
    assert MODULE not in sys.modules


def test_what_a_trainer_refuses_is_told_before_tables_without_an_effect_on_it(tmp_path: Path) -> None:
    """The model of a file with other mistakes is made, too."""
    with pytest.raises(InputError, match="has no effect"):
        parsed(tmp_path, "fullgraph", COUNTING)
    with pytest.raises(InputError) as refused:
        load_checked(Asked(name=str(tmp_path / "mine.toml")), tmp_path / "home")
    message = str(refused.value)
    assert 0 < message.index("has buffers, but") < message.index("[sampling] has no effect")
