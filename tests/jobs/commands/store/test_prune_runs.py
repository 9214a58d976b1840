"""Old runs leave the history, and nothing that anybody still asks for."""

import os
import time

import dagster as dg
import pytest
from click.testing import CliRunner

from graphmill.assets.pipeline.shown import key_of
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.assets.storage.store import Store
from graphmill.jobs import command as cli
from graphmill.jobs.commands.store.prune_runs import find_old_runs, parse_age
from graphmill.jobs.launch import Launch, launch
from graphmill.jobs.operations.difference import last_materialized
from graphmill.jobs.runs.instance import open_instance
from graphmill.kernels.errors import InputError
from tests.recipes import load_tiny

pytestmark = pytest.mark.first


def test_the_last_run_of_each_asset_stays(tmp_path, monkeypatch):
    for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    home, pipeline = tmp_path / "home", load_tiny(tmp_path)
    order = Launch(pipeline=pipeline, selection="preprocess", home=home, report=lambda line: None)
    run_ids = [launch(order).run_id for _ in range(3)]
    before = {path.name for path in (home / "history" / "runs").iterdir()}
    assert all(f"{run_id}.db" in before for run_id in run_ids)
    with open_instance(home) as instance:
        assert find_old_runs(instance, time.time() - 3600) == [], "none ended an hour ago"
        places = {step.name: last_materialized(instance, key_of(step)) for step in preprocessing_steps(pipeline)}
        artifacts = {artifact.version for artifact in Store(home).artifacts()}
    run = CliRunner().invoke
    monkeypatch.setattr("graphmill.jobs.commands.store.prune_runs.parse_age", lambda text: -60.0)
    shown = run(cli.graphmill, ["prune-runs", "--dry-run"])
    assert "2 runs to remove" in shown.output and run_ids[2][:8] not in shown.output
    refused = run(cli.graphmill, ["prune-runs"])
    assert isinstance(refused.exception, InputError), "nobody answered"
    assert "removed 2 runs" in run(cli.graphmill, ["prune-runs", "--yes"]).output
    with open_instance(home) as instance:
        assert [each.run_id for each in instance.get_runs()] == [run_ids[2]]
        assert {
            step.name: last_materialized(instance, key_of(step)) for step in preprocessing_steps(pipeline)
        } == places
        assert all(
            instance.fetch_materializations(key, limit=9).records for key in map(key_of, preprocessing_steps(pipeline))
        )
    left = " ".join(os.listdir(home / "history" / "runs"))
    assert run_ids[2] in left and not any(run_id in left for run_id in run_ids[:2])
    assert {artifact.version for artifact in Store(home).artifacts()} == artifacts
    assert "0 runs to remove" in run(cli.graphmill, ["prune-runs", "--yes"]).output
    assert "0 runs to remove" in run(cli.graphmill, ["gc", "--runs", "30d", "--yes"]).output
    assert "Missing option '--keep'" in run(cli.graphmill, ["gc", "--yes"]).output


def test_a_run_on_its_way_stays():
    @dg.job
    def empty(): ...

    with dg.instance_for_test() as instance:
        run = instance.create_run_for_job(empty, status=dg.DagsterRunStatus.STARTED)
        assert find_old_runs(instance, time.time() + 60) == []
        instance.report_run_failed(run)
        assert [each.dagster_run.run_id for each in find_old_runs(instance, time.time() + 60)] == [run.run_id]


def test_ages():
    assert [parse_age(text) for text in ("90min", "12h", "30d", "2w", "0.5d")] == [5400, 43200, 2592000, 1209600, 43200]
    for wrong in ("30", "d", "-3d", "3 years", "1e3d"):
        with pytest.raises(InputError, match="is no age"):
            parse_age(wrong)
