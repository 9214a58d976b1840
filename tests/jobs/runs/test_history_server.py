"""A history on a database server: what is not installed, not set or gone is one message."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError, ProgrammingError

from graphmill.jobs import command as cli
from graphmill.jobs import launch as launching
from graphmill.jobs.launch import Launch, launch
from graphmill.jobs.runs.instance import DAGSTER_YAML, SETTINGS, HistoryError, history_error, open_instance
from graphmill.kernels.errors import InputError
from tests.recipes import load_tiny

ROOT = Path(__file__).parents[3]
GONE = "server closed the connection unexpectedly\n\tThis probably means the server terminated abnormally"


class DriverError(Exception):
    """Stands for an error of psycopg2."""


class DagsterPostgresException(Exception):
    """Stands for the error of dagster-postgres of the same name."""


def edited(home: Path, storage: object) -> None:
    home.mkdir(exist_ok=True)
    (home / SETTINGS).write_text(f"{DAGSTER_YAML}\n{yaml.safe_dump({'storage': storage})}")


def test_a_server_that_is_gone_is_one_line(tmp_path: Path) -> None:
    lost = OperationalError("SELECT 1", {}, DriverError(GONE))
    tried = DagsterPostgresException("too many retries for DB connection")
    tried.__cause__ = lost
    for error in (lost, tried):
        said = history_error(error, tmp_path)
        assert (
            isinstance(said, HistoryError)
            and "\n" not in said.problem
            and "server closed the connection" in said.problem
        )
        assert "start the database server" in said.remedy and str(tmp_path / SETTINGS) in said.remedy


def test_a_defect_stays_one(tmp_path: Path) -> None:
    assert history_error(ProgrammingError("SELECT x", {}, DriverError("column x does not exist")), tmp_path) is None
    assert history_error(KeyError("x"), tmp_path) is None


def test_a_variable_that_is_not_set_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_HISTORY", raising=False)
    edited(tmp_path, {"sqlite": {"base_dir": {"env": "MY_HISTORY"}}})
    with pytest.raises(InputError) as caught:
        open_instance(tmp_path)
    assert (
        caught.value.problem == f"{tmp_path / SETTINGS} asks for the environment variable MY_HISTORY, which is not set"
    )
    assert caught.value.remedy.startswith("set it: export MY_HISTORY=postgresql+psycopg2://")
    monkeypatch.setenv("MY_HISTORY", str(tmp_path / "history"))
    with open_instance(tmp_path) as instance:
        assert instance.get_runs_count() == 0


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dagster_postgres", None)  # an import of it fails, installed or not
    edited(tmp_path, {"postgres": {"postgres_url": "postgresql+psycopg2://localhost/x"}})
    with pytest.raises(
        InputError, match=r"package dagster_postgres is not installed(?s:.*)pip install -e \"\.\[postgres\]\""
    ):
        open_instance(tmp_path)


def test_the_extra_and_the_image_hold_sqlalchemy_below_2_1() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(each.startswith("sqlalchemy") and each.endswith("<2.1") for each in extras["postgres"])
    assert "[postgres," in (ROOT / "deploy" / "Dockerfile").read_text()


def test_tries_to_reach_a_server_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    logging.warning("Retrying failed database connection: %s", GONE)  # as dagster-postgres does
    logging.warning("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]


def test_a_server_that_dies_in_a_run_ends_it_with_the_checkpoint_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHMILL_HOME", "unset-by-the-test")
    monkeypatch.setenv("DAGSTER_HOME", "unset-by-the-test")
    monkeypatch.setattr(launching, "waiting_run", lambda path, version: launching_waiting)
    launching_waiting = "a checkpoint of epoch 3 waits for --resume"
    lines: list[str] = []

    def die(connection, cursor, statement, *_) -> None:
        if lines:
            raise OperationalError(statement, {}, DriverError(GONE))

    event.listen(Engine, "before_cursor_execute", die)
    try:
        with pytest.raises(InputError) as caught:
            launch(Launch(pipeline=load_tiny(tmp_path), home=tmp_path / "home", report=lines.append))
    finally:
        event.remove(Engine, "before_cursor_execute", die)
    said = str(caught.value)
    assert "server closed the connection" in said and "Traceback" not in said and "[SQL" not in said
    assert "sage: a checkpoint of epoch 3 waits for --resume" in said and "checkpoints/" in said


SERVER = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), None)
NEEDED = ("dagster_postgres", "psycopg2")


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Path, list[str]]]:
    """The folder of a Postgres server, and the command that stops it at once, for the last test."""
    if SERVER is None or not all(find_spec(name) for name in NEEDED):
        pytest.skip("needs Debian's postgresql and the extra postgres")
    user = [] if subprocess.check_output(["id", "-u"]).strip() != b"0" else ["runuser", "-u", "postgres", "--"]
    folder = Path(subprocess.check_output([*user, "mktemp", "-d"], text=True).strip())
    control = [*user, str(SERVER / "pg_ctl"), "-D", str(folder / "data"), "-w"]
    try:
        subprocess.run(
            [*user, str(SERVER / "initdb"), "--no-sync", "-A", "trust", "-U", "me", "-D", str(folder / "data")],
            check=True,
        )
        options = f"-c listen_addresses= -c fsync=off -k {folder}"
        subprocess.run([*control, "-o", options, "-l", str(folder / "log"), "start"], check=True)
        yield folder, [*control, "-m", "immediate", "stop"]
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(running: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose history is an empty database of the server."""
    home, name = tmp_path / "home", f"history_{time.time_ns()}"
    for variable in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
        monkeypatch.setenv(variable, str(home))
    command = [str(SERVER / "createdb"), "-h", str(running[0]), "-U", "me", name]
    subprocess.run(command, check=True)
    monkeypatch.setenv("GRAPHMILL_POSTGRES_URL", f"postgresql+psycopg2://me@/{name}?host={running[0]}")
    edited(home, {"postgres": {"postgres_url": {"env": "GRAPHMILL_POSTGRES_URL"}}})
    return home


ASKED_BY_THE_UI = """
query Runs($limit: Int!, $filter: RunsFilter) {
  runsOrError(limit: $limit, filter: $filter) {
    ... on Runs {
      count
      results { runId status jobName startTime endTime tags { key value } stats { ... on RunStatsSnapshot { stepsSucceeded } } }
    }
  }
  assetRecordsOrError(limit: 100) { ... on AssetRecordConnection { assets { key { path } } } }
}
"""
"""What the lists of runs and of assets ask of the history."""


def asked_by_the_ui(home: Path, **variables: object) -> dict:
    """The answer of Dagster's schema, without a server and without a code location."""
    from dagster._core.workspace.context import WorkspaceProcessContext
    from dagster._core.workspace.load_target import EmptyWorkspaceTarget
    from dagster_graphql.schema import create_schema

    with open_instance(home) as instance, WorkspaceProcessContext(instance, EmptyWorkspaceTarget()) as process:
        context = process.create_request_context()
        found = create_schema().execute(
            ASKED_BY_THE_UI, context_value=context, variable_values={"limit": 100, **variables}
        )
    assert not found.errors, found.errors
    return found.data


def cancel_itself(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the next build of a graph be cancelled from outside while it works."""
    from graphmill.assets.graph.stage import GraphStage
    from graphmill.jobs.runs import children as cancellation

    def build_from(self, opened, building) -> None:
        with open_instance(home) as instance:
            instance.report_run_canceling(instance.get_runs()[0])
        building.progress.start("endless", None, "turns")
        while True:
            building.progress.advance(1)

    monkeypatch.setattr(cancellation, "CANCEL_POLL_SECONDS", 0.0)
    monkeypatch.setattr(GraphStage, "build_from", build_from)


FEW = 5
"""Runs of the fast form, none of which trains: a training imports torch."""


def run_many(home: Path, folder: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tiny pipeline so many times; returns the status that each run has to end with, the oldest first.

    The first of many trains. Then come runs that reuse, every third with other settings; at last one whose data is missing, and one that is
    cancelled.
    """
    (folder / "other").mkdir()
    first = load_tiny(folder, tables=("sage",))
    selection = "all" if count > FEW else "preprocess"
    launch(Launch(pipeline=first, selection=selection, home=home, report=lambda line: None))
    for number in range(count - 3):
        changed = {"nodes": f"300 -> {310 + number}"} if number % 3 == 2 else {}
        pipeline = load_tiny(folder / "other", tables=("sage",), **changed)
        launch(Launch(pipeline=pipeline, selection="preprocess", home=home, report=lambda line: None))
    absent = load_tiny(folder / "other", tables=("sage",), nodes="300 -> 401")
    with pytest.raises(InputError, match="build it first"):
        launch(Launch(pipeline=absent, selection="train", home=home, report=lambda line: None))
    with monkeypatch.context() as patch:
        cancel_itself(home, patch)
        with pytest.raises(KeyboardInterrupt):
            launch(Launch(pipeline=absent, selection="preprocess", home=home, report=lambda line: None))
    return ["SUCCESS"] * (count - 2) + ["FAILURE", "CANCELED"]


@pytest.mark.parametrize("count", [FEW, pytest.param(20, marks=pytest.mark.slow("a history of 20 runs on a server"))])
@pytest.mark.usefixtures("quick_launches")
def test_a_history_of_many_runs_on_a_server(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Runs that built, reused, failed and were cancelled: the lists of the UI, what is materialised, and forgetting old runs."""
    home = database
    ended = run_many(home, tmp_path, count, monkeypatch)
    found = asked_by_the_ui(home)
    runs = found["runsOrError"]
    assert [run["status"] for run in reversed(runs["results"])] == ended and runs["count"] == count
    assert all(run["endTime"] >= run["startTime"] for run in runs["results"])
    assert runs["results"][-1]["stats"]["stepsSucceeded"] >= 1, runs["results"][-1]
    tags = {(tag["key"], tag["value"]) for run in runs["results"] for tag in run["tags"]}
    assert ("graphmill/launched_from", "command line") in tags
    assets = {"/".join(each["key"]["path"]) for each in found["assetRecordsOrError"]["assets"]}
    assert {"tiny/graph", "tiny/features", *(["tiny/sage"] if count > FEW else [])} <= assets
    failed = asked_by_the_ui(home, filter={"statuses": ["FAILURE"]})["runsOrError"]
    assert [run["jobName"] for run in failed["results"]] == ["tiny__train"]
    last = [run["runId"] for run in runs["results"] if run["status"] == "SUCCESS"]
    # The last one is that of the data, the first one that of the model.
    assert_forgets(home, count, {last[0], last[-1]} if count > FEW else {last[0]}, monkeypatch)
    assert not (home / "history").exists() or not list((home / "history").rglob("*.db")), "the history is on the server"


def assert_forgets(home: Path, count: int, kept: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """prune-runs removes all but the last run of each asset: that which trained, and the last one that built or reused data."""
    monkeypatch.setattr("graphmill.jobs.commands.store.prune_runs.parse_age", lambda text: -60.0)
    run = CliRunner().invoke
    shown = run(cli.graphmill, ["prune-runs", "--dry-run"])
    gone = count - len(kept)
    assert f"{gone} runs to remove" in shown.output, shown.output
    assert "CANCELED" in shown.output and "FAILURE" in shown.output
    assert f"removed {gone} runs" in run(cli.graphmill, ["prune-runs", "--yes"]).output
    with open_instance(home) as instance:
        assert {each.run_id for each in instance.get_runs()} == kept
        data = [dg.AssetKey(["tiny", name]) for name in ("graph", "features")]
        assert all(instance.fetch_materializations(key, limit=1).records for key in data)


def test_a_server_that_stops_between_two_runs_is_one_message(
    database: Path, running: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """The last test of the server."""
    order = Launch(pipeline=load_tiny(tmp_path), selection="preprocess", home=database, report=lambda line: None)
    launch(order)
    with open_instance(database) as instance:
        assert instance.get_runs_count() == 1
    subprocess.run(running[1], check=True)
    with pytest.raises(InputError, match=r"the history of runs in .* cannot be used"):
        launch(order)
