"""Which pipeline files the web UI shows: own ones, and shipped ones that ran."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from graphmill.assets.definitions import Surroundings
from graphmill.assets.pipeline.file import SHIPPED, load_pipeline, pipeline_files
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import build_defs
from graphmill.jobs.operations import reload
from graphmill.jobs.operations.reload import UI_VARIABLE
from graphmill.jobs.runs.instance import open_instance
from graphmill.jobs.runs.shown import DEMO, VARIABLE, pipelines_that_ran, shown_files
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import write_tiny


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and a folder of pipelines without one."""
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path / "mine"))
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "home"


def shown() -> set[str]:
    return {path.stem for path in shown_files()}


def test_own_pipelines_and_shipped_ones_that_ran(home: Path) -> None:
    assert shown() == {DEMO}, "a newcomer has one to press"
    assert not home.exists(), "looking writes nothing"
    write_tiny(home.parent / "mine", "own")
    assert shown() == {"own"}
    with open_instance(home) as instance:
        assert shown() == {"own"}
        instance.report_runless_asset_event(dg.AssetMaterialization(["sbm", "graph"]))
        instance.report_runless_asset_event(dg.AssetMaterialization(["cora", "trial", "graph"]))
        instance.report_runless_asset_event(dg.AssetMaterialization(["strange", "graph"]))
    assert pipelines_that_ran(home) == {"sbm", "cora", "strange"}
    assert shown() == {"own", "sbm", "cora"}
    (home.parent / "mine" / "own.toml").unlink()
    assert shown() == {"sbm", "cora"}


def test_assets_of_trials_say_what_they_are(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(home.parent / "mine", "own")
    monkeypatch.setenv(UI_VARIABLE, "http://127.0.0.1:1")
    monkeypatch.setattr(reload, "ask_later", lambda address: None)
    (before,) = build_defs().sensors or ()
    assert isinstance(before, dg.SensorDefinition)
    trials = [["own", "trial", name] for name in ("graph", "raw", "sage", "sage-hidden-4", "a/b")]
    with open_instance(home) as instance:
        for key in [*trials, ["gone", "trial", "graph"], ["own", "graph"]]:
            instance.report_runless_asset_event(dg.AssetMaterialization(key))
        with dg.build_sensor_context(instance=instance) as context:
            noticed = before(context)
        graph = build_defs().get_repository_def().asset_graph
        nameless = [key for key in instance.get_asset_keys() if not graph.has(key) or not graph.get(key).description]
    assert isinstance(noticed, dg.SensorResult) and noticed.skip_reason is not None
    assert "new: gone/trial/graph, own/trial/" in (noticed.skip_reason.skip_message or "")
    assert nameless == []
    for key in map(dg.AssetKey, trials):
        trial = graph.get(key)
        assert trial.group_name == "own_trials" and not trial.is_materializable
        first = (trial.description or "").splitlines()[0]
        assert (
            first == f"A trial: `{key.path[-1]}` of pipeline `own` with other keys than its file has, set by `--set`."
        )


def test_a_shipped_pipeline_appears_with_its_first_run_even_if_that_fails(home: Path, tmp_path: Path) -> None:
    pipeline = load_pipeline("sbm", TrainTable)
    job = build_defs([pipeline], Surroundings(store=Store(home))).resolve_job_def("sbm__train")
    with open_instance(home) as instance:
        assert not job.execute_in_process(instance=instance, raise_on_error=False).success, "its data are not there"
    assert shown() == {"sbm"}


def test_an_own_file_of_a_shipped_name_takes_its_place(home: Path) -> None:
    path = write_tiny(home.parent / "mine", "sbm")
    assert list(shown_files()) == [path]


def test_all_or_none_on_request(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(home.parent / "mine", "own")
    monkeypatch.setenv(VARIABLE, "0")
    assert shown() == {"own"}
    monkeypatch.setenv(VARIABLE, "1")
    assert set(shown_files()) == set(pipeline_files().values()) and shown() > {"own", "sbm", "cora", DEMO}
    monkeypatch.setenv(VARIABLE, "no")
    with pytest.raises(InputError, match="GRAPHMILL_EXAMPLES is 'no'"):
        shown_files()


def test_a_history_that_cannot_be_read_hides_no_own_pipeline(home: Path) -> None:
    write_tiny(home.parent / "mine", "own")
    with open_instance(home):
        pass
    settings = (home / "dagster.yaml").read_text()
    (home / "dagster.yaml").write_text("storage: [")
    assert shown() == {"own"}
    (home / "dagster.yaml").write_text(settings)
    (home / "history" / "runs" / "index.db").write_bytes(b"this is not a database" * 100)
    assert shown() == {"own"}


def test_a_shipped_file_in_a_folder_has_both_names(home: Path) -> None:
    with open_instance(home) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(["published-cora", "graph"]))
    assert list(shown_files()) == [SHIPPED / "published" / "cora.toml"]


def test_shipped_files_are_named_as_they_are_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`shown_files` compares names of assets, which begin with a pipeline's own name, with names of files."""
    monkeypatch.setenv("GRAPHMILL_TEST_DATA", str(tmp_path))
    for name, path in pipeline_files().items():
        assert load_pipeline(path, TrainTable).name == name.replace("/", "-")
