"""The schedule and the refresh sensor, tick by tick on a real history and a real store."""

import shutil
import sys

import dagster as dg
import numpy as np
import pytest

from graphmill.assets.definitions import Surroundings
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.steps import Versions, preprocessing_steps
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import build_defs
from graphmill.jobs.operations.difference import (
    BROWSER_JOB,
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    MOMENT_SECONDS,
    PIPELINE_TAG,
    find_difference,
)
from graphmill.jobs.runs.pinned import listed_in_ui
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import recipe

pytestmark = pytest.mark.first

SCHEDULE = '\n[schedule]\ncron = "0 3 * * *"\nrefresh = true\npriority = -3\n'

TRAIN = recipe({"name": "sage", "layers": 1, "epochs": 1}, sampling={"fanouts": [2], "batch_size": 64})


class Days:
    """A pipeline, its store and its history; the daemon's part is played by hand."""

    def __init__(self, folder, monkeypatch):
        monkeypatch.setenv("GRAPHMILL_HOME", str(folder / "home"))
        monkeypatch.setenv("DAGSTER_HOME", str(folder / "home"))
        self.folder, self.store, self.now = folder, Store(folder / "home"), 0.0
        random = np.random.default_rng(0)
        monkeypatch.setattr("graphmill.jobs.operations.difference.time", lambda: self.now)
        self.raw = folder / "mine.npz"
        self.write_raw(random.integers(0, 60, (2, 400)))
        self.path = folder / "mine.toml"
        self.edit()

    def write_raw(self, edges):
        split = np.split(np.random.default_rng(1).permutation(60), [30, 45])
        np.savez(
            self.raw,
            edge_index=edges,
            x=np.random.default_rng(2).random((60, 4), np.float32),
            y=np.arange(60) % 3,
            **dict(zip(("train", "val", "test"), split, strict=True)),
        )

    def edit(self, policy="degree", schedule=SCHEDULE, train=""):
        graph = {"source": "npz", "path": str(self.raw)}
        self.path.write_text(recipe(graph=graph, hotness={"policy": policy}) + schedule + train)

    def definitions(self):
        pipeline = load_pipeline(self.path, TrainTable)
        return pipeline, build_defs([pipeline], Surroundings(store=self.store))

    def tick(self, instance, kind="sensor", definitions=None):
        """Evaluates the sensor or the schedule as the daemon does, of definitions that were just loaded unless they are given."""
        definitions = definitions or self.definitions()[1]
        repository = definitions.get_repository_def()
        if kind == "sensor":
            (sensor,) = definitions.sensors
            context = dg.build_sensor_context(instance=instance, repository_def=repository)
            tick = sensor.evaluate_tick(context)
        else:
            (schedule,) = definitions.schedules
            context = dg.build_schedule_context(instance=instance, repository_def=repository)
            tick = schedule.evaluate_tick(context)
        return tick.run_requests[0] if tick.run_requests else dg.SkipReason(tick.skip_message)

    def carry_out(self, instance, request, succeed=True):
        """Runs what a tick asked for, as the daemon's run does."""
        _, definitions = self.definitions()
        result = definitions.resolve_job_def("mine__all").execute_in_process(
            instance=instance, asset_selection=request.asset_selection, tags=dict(request.tags), raise_on_error=False
        )
        assert result.success == succeed
        self.now = instance.get_run_record_by_id(result.run_id).end_time
        return result


@pytest.fixture
def days(tmp_path, monkeypatch):
    return Days(tmp_path, monkeypatch)


def names(request):
    return [key.path[-1] for key in request.asset_selection]


@pytest.mark.parametrize("earlier, later", [("sensor", "schedule"), ("schedule", "sensor")])
def test_of_two_ticks_in_one_second_one_starts_a_run(days, earlier, later):
    loaded = days.definitions()[1]
    with dg.instance_for_test() as instance:
        asked = days.tick(instance, earlier, loaded)
        assert names(asked) == ["graph", "features", "hotness"]
        assert "asked for a run of mine a moment ago" in days.tick(instance, later, loaded).skip_message
        # A run that could not be started is asked for again: by the same one at any time, by the other one later.
        assert days.tick(instance, earlier, loaded).run_key == asked.run_key
        days.now += MOMENT_SECONDS
        assert days.tick(instance, later, loaded).run_key == asked.run_key


def test_a_run_that_appears_while_a_tick_compares_is_the_only_one(days, monkeypatch):
    loaded = days.definitions()[1]
    with dg.instance_for_test() as instance:

        def compare(*args):
            found = find_difference(*args)
            instance.create_run_for_job(loaded.resolve_job_def("mine__all"), tags={PIPELINE_TAG: "mine"})
            return found

        monkeypatch.setattr("graphmill.jobs.operations.difference.find_difference", compare)
        assert "is on its way" in days.tick(instance, "schedule", loaded).skip_message


def test_a_sensor_asks_for_what_differs_and_for_nothing_else(days):
    with dg.instance_for_test() as instance:
        first = days.tick(instance)
        assert names(first) == ["graph", "features", "hotness"]
        assert first.tags["dagster/priority"] == "-3" and "not built here yet: " in first.tags["graphmill/why"]
        days.carry_out(instance, first)
        for kind in ("sensor", "schedule"):
            assert "as its file and its data ask for" in days.tick(instance, kind).skip_message

        # Only what an edit of the file decides.
        days.edit(policy="pagerank")
        edited = days.tick(instance)
        assert names(edited) == ["hotness"] and edited.run_key != first.run_key
        days.carry_out(instance, edited)

        # Undone: the old models are asked for again, and reused.
        days.edit()
        undone = days.tick(instance)
        assert names(undone) == ["hotness"] and undone.run_key not in (first.run_key, edited.run_key)
        result = days.carry_out(instance, undone)
        reused = [each.materialization.metadata["reused"].value for each in materializations(result)]
        assert reused == [True]

        # Done again after it was undone: not the difference that was made up before.
        days.edit(policy="pagerank")
        again = days.tick(instance)
        assert again.run_key not in (first.run_key, edited.run_key, undone.run_key)
        days.carry_out(instance, again)

        # Other bytes outside.
        days.write_raw(np.random.default_rng(5).integers(0, 60, (2, 400)))
        assert names(days.tick(instance)) == ["graph", "features", "hotness"]
        days.carry_out(instance, days.tick(instance))
        assert "as its file" in days.tick(instance).skip_message

        # An artifact that is gone, of one that is materialised in the wanted version.
        (ranking,) = [
            each for each in days.store.artifacts() if each.stage == "hotness" and each.version == wanted(days)
        ]
        shutil.rmtree(ranking.path)
        missing = days.tick(instance)
        assert names(missing) == ["hotness"] and missing.tags["graphmill/why"] == "missing from the store: hotness"
        days.carry_out(instance, missing)
        assert "as its file" in days.tick(instance).skip_message


def materializations(result):
    return [event.step_materialization_data for event in result.get_asset_materialization_events()]


def wanted(days):
    """Returns the version of the ranking that the file asks for now."""
    pipeline, _ = days.definitions()
    return next(Versions().only(step) for step in preprocessing_steps(pipeline) if step.name == "hotness")


def test_a_failed_run_is_tried_again_later_each_time(days, monkeypatch):
    import graphmill.assets.definitions

    with dg.instance_for_test() as instance:
        whole = graphmill.assets.definitions.materialize_together

        def broken(*arguments, **options):
            raise OSError("the disk is on fire")

        monkeypatch.setattr(graphmill.assets.definitions, "materialize_together", broken)
        keys, waits = set(), []
        for _ in range(4):
            request = days.tick(instance)
            assert isinstance(request, dg.RunRequest) and request.run_key not in keys
            keys.add(request.run_key)
            days.carry_out(instance, request, succeed=False)
            failed = days.now
            assert "did not make up the difference" in days.tick(instance).skip_message
            # A schedule's times are far apart: it tries each time.
            assert isinstance(days.tick(instance, "schedule"), dg.RunRequest)
            wait = FIRST_WAIT_SECONDS
            while isinstance(skipped := days.tick(instance), dg.SkipReason):
                assert "did not make up the difference" in skipped.skip_message and wait <= 2 * LONGEST_WAIT_SECONDS
                days.now, wait = failed + wait, wait * 2
            waits.append(days.now - failed)
        assert waits == [FIRST_WAIT_SECONDS * 2**number for number in range(4)]
        monkeypatch.setattr(graphmill.assets.definitions, "materialize_together", whole)
        days.carry_out(instance, days.tick(instance))
        assert "as its file" in days.tick(instance).skip_message


def test_a_run_that_is_on_its_way_is_waited_for(days):
    with dg.instance_for_test() as instance:
        _, definitions = days.definitions()
        job = definitions.resolve_job_def("mine__preprocess")
        with listed_in_ui(instance, job.name):
            run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.QUEUED, tags=dict(job.tags))
        for kind in ("sensor", "schedule"):
            assert f"run {run.run_id[:8]} of mine is on its way" in days.tick(instance, kind).skip_message


def browser_run(days, instance, pipeline="mine"):
    """Starts a run as "Materialize all" on a page of assets does, and leaves it unfinished."""
    path = days.folder / f"{pipeline}.toml"
    path.write_text(days.path.read_text())
    definitions = build_defs([load_pipeline(path, TrainTable)], Surroundings(store=days.store))
    job = definitions.resolve_implicit_global_asset_job_def()
    assert job.name == BROWSER_JOB
    with listed_in_ui(instance, job.name):
        return instance.create_run_for_job(
            job, status=dg.DagsterRunStatus.STARTED, asset_selection=frozenset({dg.AssetKey([pipeline, "graph"])})
        )


@pytest.mark.parametrize("kind", ["sensor", "schedule"])
def test_a_run_that_was_started_on_a_page_of_assets_is_waited_for(days, kind):
    with dg.instance_for_test() as instance:
        other = browser_run(days, instance, "other")
        assert names(days.tick(instance, kind)) == ["graph", "features", "hotness"]
        instance.delete_run(other.run_id)
        run = browser_run(days, instance)
        assert f"run {run.run_id[:8]} of mine is on its way" in days.tick(instance, kind).skip_message


def test_raw_data_that_are_missing_are_no_failed_tick(days):
    with dg.instance_for_test() as instance:
        days.raw.unlink()
        for kind in ("sensor", "schedule"):
            assert "no such file" in days.tick(instance, kind).skip_message


def test_a_job_that_only_trains_waits_for_its_data(days):
    with dg.instance_for_test() as instance:
        days.edit(schedule='\n[schedule]\ncron = "@daily"\njob = "train"\nrefresh = true\n', train=TRAIN)
        skipped = days.tick(instance)
        assert "graphmill build" in skipped.skip_message and "does not have" in skipped.skip_message
        _, definitions = days.definitions()
        assert definitions.resolve_job_def("mine__preprocess").execute_in_process(instance=instance).success
        assert names(days.tick(instance)) == ["sage"]


def test_definitions_have_what_the_table_asks_for(days):
    for schedule, statuses in (
        ("", {}),
        ('\n[schedule]\ncron = "@daily"\n', {"mine__schedule": "RUNNING"}),
        ('\n[schedule]\ncron = "@daily"\nenabled = false\n', {"mine__schedule": "STOPPED"}),
        ("\n[schedule]\nrefresh = true\n", {"mine__refresh": "RUNNING"}),
        (
            '\n[schedule]\nrefresh = true\nenabled = false\nwebhook = "HOOK"\n',
            {"mine__refresh": "STOPPED", "mine__tell_failures": "RUNNING"},
        ),
    ):
        days.edit(schedule=schedule)
        _, definitions = days.definitions()
        found = [*definitions.schedules, *definitions.sensors]
        assert {each.name: each.default_status.value for each in found} == statuses
    days.edit(schedule='\n[schedule]\ncron = "30 2 * * 1"\ntimezone = "Asia/Tokyo"\njob = "preprocess"\n')
    (schedule,) = days.definitions()[1].schedules
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 2 * * 1", "Asia/Tokyo")
    assert schedule.job.name == "mine__preprocess"


def test_a_schedule_enters_no_version(days):
    from graphmill.jobs.runs.training import training_steps

    def versions():
        pipeline, _ = days.definitions()
        data = preprocessing_steps(pipeline)
        return [Versions().of(step) for step in [*data, *training_steps(pipeline, data)]]

    before = versions()
    days.edit(schedule="")
    assert versions() == before


TELLER = "import os, sys; open(sys.argv[1], 'a').write(os.environ['GRAPHMILL_RUN'] + ' ' + sys.stdin.read())"


def test_a_failed_run_is_told_of(days, monkeypatch):
    """The sensor as the daemon calls it: with the event of a run that failed."""
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    told, bodies = days.folder / "told", []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(500 if "broken" in self.path else 200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    Thread(target=server.serve_forever, daemon=True).start()
    command = f"on_failure = ['{sys.executable}', '-c', \"{TELLER}\", '{told}']\n"
    days.edit(schedule=f'\n[schedule]\ncron = "@daily"\nwebhook = "HOOK"\n{command}')
    monkeypatch.setenv("HOOK", f"http://127.0.0.1:{server.server_port}/secret")
    days.raw.unlink()
    with dg.instance_for_test() as instance:
        _, definitions = days.definitions()
        (sensor,) = definitions.sensors
        result = definitions.resolve_job_def("mine__all").execute_in_process(instance=instance, raise_on_error=False)
        assert not result.success
        context = dg.build_run_status_sensor_context(
            sensor_name=sensor.name,
            dagster_instance=instance,
            dagster_run=result.dagster_run,
            dagster_event=result.get_run_failure_event(),
        ).for_run_failure()
        sensor(context)
        assert told.read_text().startswith(result.run_id) and "no such file" in told.read_text()
        (body,) = bodies
        assert '"pipeline": "mine"' in body and "mine.npz: no such file" in body
        # What cannot be told fails the tick, and the address stays out of its message.
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{server.server_port}/broken")
        with pytest.raises(Exception, match="webhook could not be told: HTTPError 500") as raised:
            sensor(context)
        assert "/broken" not in str(raised.value)
        monkeypatch.delenv("HOOK")
        with pytest.raises(Exception, match="holds no http address"):
            sensor(context)
    server.shutdown()


def test_a_run_that_fails_on_a_page_of_assets_is_told_of(days, monkeypatch):
    """The sensor as the daemon calls it: it looks for runs that failed since its last look."""
    told = days.folder / "told"
    command = f"on_failure = ['{sys.executable}', '-c', \"{TELLER}\", '{told}']\n"
    days.edit(schedule=f'\n[schedule]\ncron = "@daily"\n{command}')
    with dg.instance_for_test() as instance:
        definitions = days.definitions()[1]
        (sensor,) = definitions.sensors
        cursor = None

        def look():
            nonlocal cursor
            repository = definitions.get_repository_def()
            context = dg.build_sensor_context(instance=instance, repository_def=repository, cursor=cursor)
            tick = sensor.evaluate_tick(context)
            cursor = tick.cursor

        look()
        of_others = browser_run(days, instance, "other")
        instance.report_run_failed(of_others)
        look()
        assert not told.exists()
        run = browser_run(days, instance)
        instance.report_run_failed(run, "the step failed")
        look()
        assert told.read_text().count("graphmill: ") == 1
        assert told.read_text().startswith(f"{run.run_id} graphmill: {BROWSER_JOB} of mine failed")
