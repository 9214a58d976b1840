"""A schedule scores: the two pipeline files of docs/scoring.md, tick by tick, as the daemon runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import dagster as dg
import polars
import pytest

from graphmill.assets.definitions import Surroundings
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.steps import recipe_hash
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import build_defs
from graphmill.jobs.runs.training import all_steps
from graphmill.trainers.recipe.config import TrainTable
from tests.docs.pages import ROOT, fences

FEATURES, ANSWERS = "features_are_those_of_the_training", "answers_are_those_of_the_training"


class Nights:
    """The files of the tutorial in a folder, a store and a history; the daemon's part is played by hand."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance):
        self.folder, self.store, self.instance = folder, Store(folder / "home"), instance
        for fence in fences(ROOT / "docs" / "scoring.md"):
            if fence.language in ("python", "toml"):
                path = folder / fence.text.splitlines()[0].removeprefix("# ")
                path.parent.mkdir(exist_ok=True)
                path.write_text(fence.text)
        commands = [fence.text for fence in fences(ROOT / "docs" / "scoring.md") if fence.language == "sh"]
        self.days = re.findall(r"python make_day\.py (.*)", "".join(commands))
        self.day(0)

    def day(self, number: int) -> None:
        """Writes the data of a day, by the command of the page."""
        command = [sys.executable, "make_day.py", *self.days[number].split()]
        subprocess.run(command, cwd=self.folder, check=True, timeout=300)

    def definitions(self, name: str) -> dg.Definitions:
        pipeline = load_pipeline(self.folder / "pipelines" / f"{name}.toml", TrainTable)
        return build_defs([pipeline], Surroundings(store=self.store))

    def run(self, name: str, **how: object) -> dg.ExecuteInProcessResult:
        job = self.definitions(name).resolve_job_def(f"{name}__all")
        return job.execute_in_process(instance=self.instance, **how)

    def tick(self) -> list[str] | str:
        """Evaluates the schedule and carries out its run; returns the assets that it built, or why there was no run."""
        definitions = self.definitions("nightly")
        (schedule,) = definitions.schedules
        context = dg.build_schedule_context(instance=self.instance, repository_def=definitions.get_repository_def())
        tick = schedule.evaluate_tick(context)
        if not tick.run_requests:
            return str(tick.skip_message)
        (request,) = tick.run_requests
        self.result = self.run("nightly", asset_selection=request.asset_selection, tags=dict(request.tags))
        assert self.result.success
        return sorted(key.path[-1] for key in request.asset_selection)

    def score(self) -> polars.DataFrame:
        """The predictions that the last run has materialised, found by the path on the page of the asset."""
        shown = self.shown()
        version = shown.tags["dagster/data_version"]
        assert f"score/{version[:12]}" in shown.metadata["artifacts"].value
        return polars.read_parquet(self.store.open("score", version).file("predictions.parquet"))

    def shown(self) -> dg.AssetMaterialization:
        event = self.instance.get_latest_materialization_event(dg.AssetKey(["nightly", "score"]))
        assert event is not None and event.asset_materialization is not None
        return event.asset_materialization

    def checks(self) -> dict[str, tuple[bool, dg.AssetCheckSeverity]]:
        """Returns the checks of drift of the last run."""
        found = self.result.get_asset_check_evaluations()
        return {
            each.check_name: (each.passed, each.severity) for each in found if each.check_name in (FEATURES, ANSWERS)
        }


def test_a_schedule_scores_each_day_and_tells_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path / "home"))
    with dg.instance_for_test() as instance:
        nights = Nights(tmp_path, instance)
        # Nothing to score with yet, which is no failed tick.
        nights.day(1)
        assert "fraud/sage is not trained" in str(nights.tick())
        assert nights.run("fraud").success
        # The first night.
        assert nights.tick() == ["features", "graph", "score"]
        tuesday = nights.score()
        assert len(tuesday) == 2200 and {"class", "probability", "probabilities", "label"} <= {*tuesday.columns}
        assert "as its file and its data ask for" in str(nights.tick())
        assert nights.checks() == dict.fromkeys((FEATURES, ANSWERS), (True, dg.AssetCheckSeverity.WARN))
        shown = nights.shown()
        assert shown.metadata["rows of predictions"].value == 2200 and "known accuracy (%)" in shown.metadata
        assert "dagster/column_schema" in shown.metadata
        read = {name for name in shown.tags if name.startswith("dagster/input_data_version/")}
        assert read == {
            f"dagster/input_data_version/{key}" for key in ("nightly/graph", "nightly/features", "fraud/sage")
        }
        # The second night: another graph, the model of before.
        nights.day(2)
        assert nights.tick() == ["features", "graph", "score"]
        assert len(nights.score()) == 2300 and len([*nights.store.artifacts("score")]) == 2
        # A model that is trained anew is a change; data and graph stay.
        path = tmp_path / "pipelines" / "fraud.toml"
        path.write_text(path.read_text().replace("epochs = 5", "epochs = 6"))
        assert "as its file" in str(nights.tick())  # not trained yet
        assert nights.run("fraud").success
        assert nights.tick() == ["score"]
        # All numbers are larger: warnings, and the predictions are there.
        nights.day(3)
        assert nights.tick() == ["features", "graph", "score"]
        assert nights.checks() == dict.fromkeys((FEATURES, ANSWERS), (False, dg.AssetCheckSeverity.WARN))
        assert len(nights.score()) == 2300


def test_lineage_and_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path / "home"))
    with dg.instance_for_test() as instance:
        nights = Nights(tmp_path, instance)
        definitions = nights.definitions("nightly")
        graph = definitions.resolve_asset_graph()
        score, model = dg.AssetKey(["nightly", "score"]), dg.AssetKey(["fraud", "sage"])
        assert model in graph.get(score).parent_keys
        assert {job.name for job in definitions.jobs} == {"nightly__all", "nightly__preprocess"}
        assert "nightly__score" in {node.name for node in definitions.resolve_job_def("nightly__preprocess").nodes}
        # Beside the pipeline that trains the model is the asset of that one.
        both = [load_pipeline(tmp_path / "pipelines" / f"{name}.toml", TrainTable) for name in ("fraud", "nightly")]
        joined = build_defs(both, Surroundings(store=nights.store)).resolve_asset_graph()
        assert joined.get(model).is_materializable and model in joined.get(score).parent_keys
        # The recipe is known without the store and the data: an edit of a bound marks the score alone.
        path = tmp_path / "pipelines" / "nightly.toml"
        before = {step.name: recipe_hash(step) for step in all_steps(load_pipeline(path, TrainTable))}
        path.write_text(
            path.read_text().replace("probabilities = true", "probabilities = true\nmost_class_shift = 0.2")
        )
        after = {step.name: recipe_hash(step) for step in all_steps(load_pipeline(path, TrainTable))}
        assert [name for name in before if before[name] != after[name]] == ["score"] and before.keys() == after.keys()


def test_the_command_line_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphmill.jobs.launch import Launch, launch

    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path / "home"))
    with dg.instance_for_test() as instance:
        nights = Nights(tmp_path, instance)
        nights.day(1)
        assert os.environ["GRAPHMILL_HOME"] == str(nights.store.home)
        pipelines = {
            name: load_pipeline(tmp_path / f"pipelines/{name}.toml", TrainTable) for name in ("fraud", "nightly")
        }
        launch(Launch(pipeline=pipelines["fraud"], home=nights.store.home, report=lambda line: None))
        for selection in ("preprocess", "all"):
            lines: list[str] = []
            order = Launch(
                pipeline=pipelines["nightly"], selection=selection, home=nights.store.home, report=lines.append
            )
            found = launch(order).artifacts
            assert [*found] == ["features", "graph", "score"] or {*found} == {"graph", "features", "score"}
            assert any(
                line.startswith(f"score: {'built' if selection == 'preprocess' else 'reused'}") for line in lines
            )
