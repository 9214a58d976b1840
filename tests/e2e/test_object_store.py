"""From an empty object store: a run in one home, predictions in another, with nothing shared on a disk."""

import numpy as np
import pytest

from assets.storage.store import Store
from tests.e2e.commands import graphmill
from tests.object_store import new_bucket, served
from tests.recipes import PACKED, recipe

SMALL = {"layers": 2, "hidden": 4, "epochs": 2}
RECIPE = recipe(
    {"name": "disk", "trainer": "disk"} | SMALL,
    graph={"source": "npz", "path": "raw/graph.npz"},
    sampling={"fanouts": [3, 3], "batch_size": 32, "reuse": 1},
    **PACKED,
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with raw files and a pipeline, and an empty object store."""
    random = np.random.default_rng(0)
    edges, x, y = random.integers(0, 200, (2, 1500)), random.random((200, 40), np.float32), random.integers(0, 3, 200)
    (tmp_path / "raw").mkdir()
    np.savez(tmp_path / "raw" / "graph.npz", edge_index=edges, x=x, y=y)
    (tmp_path / "mine.toml").write_text(RECIPE)
    with served() as endpoint:
        for name, value in new_bucket(endpoint).items():
            monkeypatch.setenv(name, value)
        yield tmp_path


def test_another_home_without_the_raw_files_predicts_the_same_bytes(folder):
    one, other, recipe = folder / "one", folder / "other", str(folder / "mine.toml")
    done = graphmill("run", recipe, home=one)
    assert done.returncode == 0, done.stdout + done.stderr
    done = graphmill("predict", recipe, "disk", "--out", str(folder / "one.parquet"), home=one)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "raw").rename(folder / "elsewhere")
    done = graphmill("status", recipe, home=other)
    assert "everything is there" in done.stdout and not (other / "store").exists(), done.stdout + done.stderr
    done = graphmill("predict", recipe, "disk", "--out", str(folder / "other.parquet"), home=other)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "one.parquet").read_bytes() == (folder / "other.parquet").read_bytes()
    fetched = {path.parent.name for path in Store(other).folders()}
    assert fetched == {"graph", "features", "model"}, "what is not read is not fetched"
