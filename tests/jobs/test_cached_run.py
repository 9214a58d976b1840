"""A pipeline with a cache, from its file to the numbers in the UI: what is built, read, counted and shown."""

import json

import dagster as dg
import pytest

from graphmill.assets.budgets.measured import PLACE
from graphmill.assets.budgets.read import open_budgets
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import build_defs
from graphmill.jobs.launch import Launch, launch
from graphmill.jobs.runs.instance import open_instance
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.jobs.test_launch import _materializations, no_home  # noqa: F401
from tests.recipes import load_tiny, write_tiny

pytestmark = [pytest.mark.first, pytest.mark.usefixtures("quick_launches")]

CACHE = '[hotness]\npolicy = "degree"\n[memory]\ndevice = "20%"\nhost = "30%"\n'
ROW_BYTES = 32


@pytest.fixture
def cached(tmp_path):
    path = write_tiny(tmp_path, tables=("sage",))
    path.write_text(path.read_text() + CACHE)
    return load_pipeline(path, TrainTable)


def test_a_cached_pipeline_runs_and_says_what_moved(cached, tmp_path):
    home, lines = tmp_path / "home", []
    with pytest.raises(InputError, match=r"reads graph/.*, hotness/.*, budgets/.*which(?s:.*)graphmill build"):
        launch(Launch(pipeline=cached, selection="train", home=home, report=lines.append))
    outcome = launch(Launch(pipeline=cached, home=home, report=lines.append))
    budgets, hotness, model = (outcome.artifacts[name][0] for name in ("budgets", "hotness", "sage"))
    assert open_budgets(budgets).device_bytes == 300 * ROW_BYTES // 5 and open_budgets(budgets).automatic == ("disk",)
    read = {role: each["version"] for role, each in model.run_record()["reads"].items()}
    assert read == {"hotness": hotness.version, "budgets": budgets.version}
    record = model.run_record()["cache"]
    assert (record["device_rows"], record["host_rows"], record["simulated_peak_bytes"]) == (60, 90, None)
    counts = {
        row["name"]: row["n"]
        for row in json.loads(model.file("ledger.json").read_text())["counts"]
        if row["layer"] == 0
    }
    assert sum(counts[name] for name in ("hits_device", "hits_host", "misses")) == counts["inputs"]
    events = _materializations(home, outcome.run_id)
    shown = {name: value.value for name, value in events["tiny/sage"].metadata.items()}
    assert shown["rows from the device"] == counts["hits_device"] > 0
    for label, rows in (
        ("moved from host to device (MiB)", counts["hits_host"] + counts["misses"]),
        ("asked of mapped files (MiB)", counts["misses"]),
        ("moved within the device (MiB)", counts["hits_device"]),
    ):
        assert shown[label] == pytest.approx(rows * ROW_BYTES / 2**20, rel=1e-3), label
    assert shown["rows from the device (%)"] == pytest.approx(100 * counts["hits_device"] / counts["inputs"], rel=1e-3)
    assert shown["rows kept on the device"] == 60
    shown = {name: value.value for name, value in events["tiny/budgets"].metadata.items()}
    assert (
        shown["device (MiB)"] == pytest.approx(1920 / 2**20, rel=1e-3)
        and shown["device"] == "20% of 9.4 KiB of features = 1.9 KiB"
    )
    tags = events["tiny/sage"].tags
    assert tags["dagster/input_data_version/tiny/hotness"] == hotness.version
    with open_instance(home) as instance:
        observed = instance.all_logs(outcome.run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION)
    keys = {entry.dagster_event.event_specific_data.asset_observation.asset_key.to_user_string() for entry in observed}
    assert keys == {"tiny/measured"} and (home / PLACE).exists()


def test_a_cache_that_is_added_later_trains_nothing_anew(cached, tmp_path):
    home = tmp_path / "home"
    plain = load_tiny(tmp_path / "plain", tables=("sage",))
    models = [
        launch(Launch(pipeline=each, names=("sage",), home=home, report=lambda line: None)).artifacts["sage"][0]
        for each in (plain, cached)
    ]
    assert models[0].version == models[1].version and models[1].reused


def test_stored_batches_and_cached_rows_together_are_the_same_training(cached, tmp_path):
    path = write_tiny(tmp_path / "stored", tables=("sage",))
    path.write_text(
        path.read_text().replace('name = "sage"\n', 'name = "sage"\nsamples = "stored"\n')
        + CACHE
        + "[samples]\nepochs = 2\n"
    )
    models = [
        launch(Launch(pipeline=each, names=("sage",), home=home, report=lambda line: None)).artifacts["sage"][0]
        for each, home in ((cached, tmp_path / "a"), (load_pipeline(path, TrainTable), tmp_path / "b"))
    ]
    assert models[0].version == models[1].version and models[0].files == models[1].files


def test_assets_depend_on_what_they_read(cached, tmp_path):
    from graphmill.assets.definitions import Surroundings

    definitions = build_defs([cached], Surroundings(store=Store(tmp_path / "home")))
    specs = {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
    deps = {name: {dep.asset_key.to_user_string() for dep in spec.deps} for name, spec in specs.items()}
    assert deps["tiny/sage"] == {"tiny/graph", "tiny/features", "tiny/hotness", "tiny/budgets"}
    assert deps["tiny/budgets"] == {"tiny/features", "tiny/measured"} and deps["tiny/hotness"] == {"tiny/graph"}
    assert not (tmp_path / "home").exists(), "loading definitions measures nothing"
