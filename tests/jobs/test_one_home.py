"""`--home` is the one home of a command: nothing is written into another, and the process goes on with its own."""

import os
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.storage.files import digests
from graphmill.assets.storage.files.digests import CACHE_NAME
from graphmill.assets.storage.names.home import home_folder, one_home
from graphmill.jobs.cli import main
from graphmill.trainers.__main__ import main as train

TEXT = """
[graph]
source = "npz"
path = "raw.npz"

[sampling]
fanouts = [2, 2]
batch_size = 16

[[train]]
name = "sage"
model = "sage"
hidden = 4
epochs = 1
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline over raw data whose digest is remembered, and a current folder without a home."""
    monkeypatch.delenv("GRAPHMILL_HOME", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    raw = tmp_path / "raw.npz"
    np.savez(raw, edge_index=np.zeros((2, 9), int), y=np.arange(300) % 3, x=np.zeros((300, 1000), np.float32))
    monkeypatch.setattr(digests, "SETTLED_NS", 0)  # the file is new
    (tmp_path / "small.toml").write_text(TEXT)
    return tmp_path / "small.toml"


def test_digests_of_raw_files_are_remembered_in_the_home_that_is_named(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = recipe.parent / "home"
    main(["--home", str(home), "status", str(recipe)])
    assert "to be built" in capsys.readouterr().out
    assert [path.name for path in home.iterdir()] == [CACHE_NAME] and not list(Path.cwd().iterdir())
    assert "GRAPHMILL_HOME" not in os.environ


def test_a_training_alone_uses_the_home_that_is_named(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = recipe.parent / "home"
    assert train([str(recipe), "sage", "--home", str(home)]) == 1  # nothing is built
    assert "graphmill build" in capsys.readouterr().err
    assert (home / CACHE_NAME).exists() and not list(Path.cwd().iterdir())


def test_a_process_goes_on_with_its_own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path / "own"))
    with pytest.raises(KeyError), one_home(tmp_path / "named"):
        assert home_folder() == tmp_path / "named"
        raise KeyError
    with one_home(None):
        assert home_folder() == tmp_path / "own"
    assert home_folder() == tmp_path / "own"
