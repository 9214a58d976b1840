"""From an empty object store: a run in one home, predictions in another, with nothing shared on a disk."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.storage.store import Store
from tests.e2e.commands import graphmill
from tests.object_store import new_bucket, served
from tests.recipes import PACKED, recipe

pytestmark = pytest.mark.first

SMALL = {"layers": 2, "hidden": 4, "epochs": 2}
RAW = {"source": "npz", "path": "raw/graph.npz"}
SAMPLING = {"fanouts": [3, 3], "batch_size": 32}
ONLINE = recipe({"name": "table"} | SMALL, graph=RAW, sampling=SAMPLING)
DISK = recipe({"name": "table", "trainer": "disk"} | SMALL, graph=RAW, sampling=SAMPLING | {"reuse": 1}, **PACKED)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with raw files, and an empty object store."""
    random = np.random.default_rng(0)
    edges, x, y = random.integers(0, 200, (2, 1500)), random.random((200, 40), np.float32), random.integers(0, 3, 200)
    (tmp_path / "raw").mkdir()
    np.savez(tmp_path / "raw" / "graph.npz", edge_index=edges, x=x, y=y)
    with served() as endpoint:
        for name, value in new_bucket(endpoint).items():
            monkeypatch.setenv(name, value)
        yield tmp_path


def command(home: Path, *words: str) -> str:
    done = graphmill(*words, home=home, forked=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ONLINE, id="online"),
        pytest.param(DISK, id="disk", marks=pytest.mark.slow("parts and packed chunks that come from an object store")),
    ],
)
def test_another_home_without_the_raw_files_predicts_the_same_bytes(folder: Path, text: str) -> None:
    one, other, recipe = folder / "one", folder / "other", folder / "mine.toml"
    recipe.write_text(text)
    command(one, "run", str(recipe))
    command(one, "predict", str(recipe), "table", "--out", str(folder / "one.parquet"))
    (folder / "raw").rename(folder / "elsewhere")
    assert "everything is there" in command(other, "status", str(recipe))
    assert not (other / "store").exists(), "nothing was fetched"
    command(other, "predict", str(recipe), "table", "--out", str(folder / "other.parquet"))
    assert (folder / "one.parquet").read_bytes() == (folder / "other.parquet").read_bytes()
    assert {path.parent.name for path in Store(other).folders()} == {"graph", "features", "model"}


@pytest.mark.slow("a training from disk with artifacts that come from an object store")
def test_another_home_trains_the_same_model(folder: Path) -> None:
    one, other, recipe = folder / "one", folder / "other", folder / "mine.toml"
    recipe.write_text(DISK)
    command(one, "run", str(recipe))
    (model,) = [each for each in Store(one).artifacts() if each.stage == "model"]
    (folder / "raw").rename(folder / "elsewhere")
    command(other, "train", str(recipe), "table", "--retrain")
    found = Store(other).open("model", model.version)
    assert found.run_record() != model.run_record(), "it was trained there"
    assert found.files["weights.safetensors"] == model.files["weights.safetensors"]
    assert {path.parent.name for path in Store(other).folders()} >= {"packed_chunks.parts", "samples.parts"}
    away = [line for line in command(other, "ls").splitlines() if "ONLY IN THE OBJECT STORE" in line]
    assert any(line.startswith("budgets/") for line in away) and not any("packed_chunks" in line for line in away)
    lines = command(other, "gc", "--keep", "1", "--yes").splitlines()
    assert any(line.startswith("1 to remove") and "in s3://" in line for line in lines), "a finished run's checkpoint"
    assert any("checkpoint whose model is published" in line for line in lines) and lines[-1].startswith("freed ")
