"""A bundle that is made here trains on a machine that has neither Dagster nor the raw data, and gives the same bits."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.files.documents import seal, unseal
from graphmill.assets.storage.local.bundle import LIST, open_bundle, take_from
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.store.bundle import bundle_table
from graphmill.jobs.launch import Launch, launch
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests import forks
from tests.assets.storage.damage import flip
from tests.e2e.commands import ROOT, environment
from tests.e2e.test_bare_machine import BARE
from tests.recipes import PACKED, recipe

pytestmark = pytest.mark.first

SMALL = {"layers": 2, "hidden": 4, "epochs": 2}
RECIPE = recipe(
    {"name": "disk", "trainer": "disk"} | SMALL,
    {"name": "online"} | SMALL,
    graph={"source": "npz", "path": "${RAW_OF_THE_BUNDLE}/graph.npz"},
    sampling={"fanouts": [3, 3], "batch_size": 32, "reuse": 1},
    schedule={"cron": "@daily"},
    **PACKED,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A home in which everything is built, and bundles of its two tables."""
    folder = tmp_path_factory.mktemp("bundle")
    random = np.random.default_rng(0)
    edges, x, y = random.integers(0, 200, (2, 1500)), random.random((200, 40), np.float32), random.integers(0, 3, 200)
    np.savez(folder / "graph.npz", edge_index=edges, x=x, y=y)
    (folder / "mine.toml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
            patch.setenv(name, str(folder / "home"))
        patch.setenv("RAW_OF_THE_BUNDLE", str(folder))
        pipeline = load_pipeline(folder / "mine.toml", TrainTable)
        order = Launch(pipeline=pipeline, selection="preprocess", home=folder / "home", report=lambda line: None)
        launch(order)
        for table in ("disk", "online"):
            bundle_table(Store(folder / "home"), pipeline, table, folder / table, lambda line: None)
    return folder


def test_a_bundle_has_what_a_training_reads_and_what_that_was_built_from(made):
    stages = {table: {stage for stage, _ in open_bundle(made / table).addresses()} for table in ("disk", "online")}
    assert stages["online"] == {"graph", "features", "hotness", "budgets"}
    assert stages["disk"] >= {"graph", "features", "samples", "cache_plan", "packed_chunks", "budgets"}
    assert any(stage.endswith(".parts") for stage in stages["disk"])
    for table in stages:
        whole = Store(made / table)
        assert not whole.damaged() and all(not each.verify() for each in whole.artifacts())
        assert {path.name for path in (made / table).iterdir()} == {LIST, "store"}


def test_a_training_from_a_bundle_is_bit_equal(made, tmp_path):
    """Where only what a bare machine has can be imported, and the raw data are not."""
    moved, there = tmp_path / "moved", tmp_path / "there"
    shutil.copytree(made / "disk", moved)
    command = [sys.executable, "-c", BARE, "--from", str(moved), "--home", str(there)]
    done = subprocess.run(command, cwd=ROOT, env=environment(there), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (model,) = [each for each in Store(there).artifacts() if each.stage == "model"]
    assert model.verify() == []
    env = environment(made / "home") | {"RAW_OF_THE_BUNDLE": str(made)}
    here = ["-m", "graphmill.trainers", str(made / "mine.toml"), "disk", "--home", str(made / "home")]
    done = forks.run(here, cwd=ROOT, env=env, imports=forks.TRAININGS)
    assert done.returncode == 0, done.stderr
    (full,) = [each for each in Store(made / "home").artifacts() if each.stage == "model"]
    assert (full.version, full.files["weights.safetensors"]) == (model.version, model.files["weights.safetensors"])
    # What was read came from the bundle alone, and a second order finds it trained.
    assert {each.version for each in Store(there).artifacts()} <= {
        each.version for each in Store(made / "home").artifacts()
    }


def damaged(made, tmp_path, how):
    copy = tmp_path / "copy"
    shutil.copytree(made / "online", copy)
    rows = next((copy / "store" / "features").rglob("*.npy"))
    if how == "cut":
        with open(rows, "r+b") as file:
            file.truncate(rows.stat().st_size - 1)
    elif how == "missing":
        rows.unlink()
    elif how == "without its list":
        (copy / LIST).unlink()
    elif how == "with half a list":
        (copy / LIST).write_bytes((copy / LIST).read_bytes()[:200])
    elif how == "with another list":
        (copy / LIST).write_text((copy / LIST).read_text().replace("mine", "yours"))
    else:
        data = bytearray(rows.read_bytes())
        data[-1] ^= 1
        rows.write_bytes(data)
    return copy


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut", "cut short: store/features/"),
        ("missing", "is missing"),
        ("without its list", "no whole bundle"),
        ("with half a list", "no whole bundle"),
        ("with another list", "does not match its own digest"),
    ],
)
def test_a_truncated_bundle_is_refused(made, tmp_path, how, message):
    with pytest.raises(InputError, match=message):
        open_bundle(damaged(made, tmp_path, how))


def test_a_flipped_bit_publishes_nothing(made, tmp_path):
    store = Store(tmp_path / "there")
    with pytest.raises(InputError, match=r"features/.* is damaged"):
        take_from(open_bundle(damaged(made, tmp_path, "flipped")), store)
    assert {each.stage for each in store.artifacts()} <= {"graph", "hotness"} and not store.damaged()
    # The whole one goes on from there.
    take_from(open_bundle(made / "online"), store)
    assert {each.stage for each in store.artifacts()} == {"graph", "features", "hotness", "budgets"}
    assert all(not each.verify() for each in store.artifacts())


def test_a_folder_with_something_else_is_left_alone(made, tmp_path, monkeypatch):
    monkeypatch.setenv("RAW_OF_THE_BUNDLE", str(made))
    pipeline, store = load_pipeline(made / "mine.toml", TrainTable), Store(made / "home")
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(InputError, match="is there and is no bundle"):
        bundle_table(store, pipeline, "online", tmp_path, print)
    with pytest.raises(InputError, match="names are: disk, online"):
        bundle_table(store, pipeline, "sage", tmp_path / "new", print)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


@pytest.mark.parametrize(
    "name", ["store/../checkpoints/x", f"store/graph/../{'a' * 64}/x", f"store/graph/{'a' * 64}/../../../x", "/etc/x/y/z",
             f"store/.staging/{'a' * 64}/x", "store/graph/short/x", f"store/graph/{'a' * 64}", f"store//{'a' * 64}/x"],
)  # fmt: skip
def test_a_bundle_that_lists_files_outside_a_store_is_refused(made, tmp_path, name):
    copy = tmp_path / "copy"
    shutil.copytree(made / "online", copy)
    found = unseal(copy / LIST)
    (copy / LIST).write_bytes(seal(found | {"sizes": {**found["sizes"], name: 1}}))
    with pytest.raises(InputError, match=r"which is no file of an artifact|not the path of a file inside its folder"):
        open_bundle(copy)


def test_a_damaged_manifest_is_one_message_and_the_bundle_can_be_made_again(made, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(made / "online", copy)
    flip(next((copy / "store" / "graph").rglob("manifest.json")), 8 * 40)
    with pytest.raises(InputError, match=r"(?s)is damaged.*make it again"):
        take_from(open_bundle(copy), Store(tmp_path / "there"))
    monkeypatch.setenv("RAW_OF_THE_BUNDLE", str(made))
    bundle_table(Store(made / "home"), load_pipeline(made / "mine.toml", TrainTable), "online", copy, lambda line: None)
    take_from(open_bundle(copy), Store(tmp_path / "there"))


def test_processes_that_take_from_one_bundle_at_once_end_with_sound_artifacts(made, tmp_path):
    store, bundle = Store(tmp_path / "there"), open_bundle(made / "online")
    with ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(take_from, bundle, store) for _ in range(4)]:
            each.result()
    assert len(store.artifacts()) == len(bundle.addresses()) and all(not each.verify() for each in store.artifacts())
    assert not list((store.root / ".staging").glob("*"))
