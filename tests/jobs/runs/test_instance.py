"""The home's settings, and runs that nobody carries out any more."""

import os
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster import DagsterRunStatus
from dagster._core.events import EngineEventData

from graphmill.assets.building.child import Child
from graphmill.assets.definitions import MACHINE_TAG, SEEN_TAG, _note_machine, seen_at
from graphmill.assets.storage.system.filesystem import make_folder
from graphmill.assets.storage.system.machine import here_and_now, seconds_since_boot
from graphmill.jobs.commands.machine import ui
from graphmill.jobs.runs.dead_runs import fail_dead_runs, may_live, process_lives, run_process
from graphmill.jobs.runs.history_files import PATIENCE_SECONDS, held_open
from graphmill.jobs.runs.instance import (
    DAGSTER_YAML,
    LONGEST_HOME,
    SETTINGS,
    init_home,
    open_instance,
    refused_history,
    reporting_history,
)
from graphmill.jobs.runs.slot import slot_holders
from graphmill.kernels.errors import InputError


def test_settings_are_written_once(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHMILL_HOME", str(tmp_path / "home"))
    folder, written = init_home()
    assert (folder, written) == (tmp_path / "home", True)
    (folder / SETTINGS).write_text(DAGSTER_YAML.replace("default_limit: 1", "default_limit: 2"))
    assert init_home() == (folder, False)
    assert "default_limit: 2" in (folder / SETTINGS).read_text()


def test_every_history_file_is_waited_for(tmp_path):
    with open_instance(tmp_path) as instance:
        run_id = instance.create_run_for_job(_nothing).run_id
        storages = [
            instance.run_storage.connect,
            instance.schedule_storage.connect,
            instance.event_log_storage.index_connection,
        ]
        storages.append(lambda: instance.event_log_storage.run_connection(run_id))
        for connect in storages:
            with connect() as connection:
                milliseconds = connection.exec_driver_sql("PRAGMA busy_timeout").scalar()
                assert milliseconds == 1000 * PATIENCE_SECONDS


def test_files_of_the_history_stay_open_during_a_run_and_no_longer(tmp_path):
    with open_instance(tmp_path) as instance:
        index = Path(instance.event_log_storage.path_for_shard("index"))
        logs = index.with_name(f"{index.name}-wal")
        with held_open():
            instance.report_runless_asset_event(dg.AssetMaterialization("some"))
            assert logs.stat().st_size > 0, "no connection was the last one"
            # A file that begins its life in the run, and is in write-ahead mode from then on.
            run_id = instance.create_run_for_job(_nothing).run_id
            for number in range(3):
                instance.report_engine_event(f"event {number}", run_id=run_id, job_name="_nothing")
            own = Path(instance.event_log_storage.path_for_shard(run_id))
            assert own.with_name(f"{own.name}-wal").stat().st_size > 0
        with instance.event_log_storage.index_connection() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1, "NORMAL"
        assert not logs.exists(), "the last connection wrote it back"
        assert instance.get_asset_keys() == [dg.AssetKey("some")]


def test_dagster_accepts_the_settings(tmp_path):
    with open_instance(tmp_path) as instance:
        assert not instance.telemetry_enabled and not instance.nux_enabled
        pools = instance.get_concurrency_config().pool_config
        assert pools.default_pool_limit == 1 and pools.pool_granularity.value == "op"
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_settings["free_slots_after_run_end_seconds"] == 30
        assert instance.run_retries_enabled and instance.run_retries_max_retries == 0
        assert not instance.run_retries_retry_on_asset_or_op_failure


def test_the_block_for_postgres_is_yaml_when_it_is_uncommented():
    block = [line[2:] for line in DAGSTER_YAML.splitlines() if line.startswith(("# storage:", "#   "))]
    assert yaml.safe_load("\n".join(block)) == {
        "storage": {"postgres": {"postgres_url": {"env": "GRAPHMILL_POSTGRES_URL"}}}
    }


def test_a_home_that_cannot_be_made_is_an_input_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file"):
        init_home(tmp_path / "file" / "home")


@dg.job
def _nothing():
    pass


def _started_run(instance, pid, machine=None):
    tags = {MACHINE_TAG: machine or here_and_now()}
    run = instance.create_run_for_job(_nothing, status=DagsterRunStatus.STARTED, tags=tags)
    instance.report_engine_event("Started process for run", run, EngineEventData.in_process(pid))
    return run.run_id


@pytest.mark.parametrize("length", [20, LONGEST_HOME, LONGEST_HOME + 80])
def test_a_home_with_a_path_that_sqlite_does_not_open_is_told_so(tmp_path, length):
    home = tmp_path / "/".join(["d" * 99] * 5)
    home = Path(str(home)[:length].rstrip("/")) if length > len(str(tmp_path)) else tmp_path
    make_folder(home)
    said = refused_history("unable to open database file", home, server=False)
    if length > LONGEST_HOME:
        assert said is not None and f"a path of at most {LONGEST_HOME} bytes" in said.remedy
        with pytest.raises(InputError, match="unable to open"), reporting_history(home), open_instance(home):
            pass
    else:
        assert said is not None and "permissions" in said.remedy
        with reporting_history(home), open_instance(home) as instance:
            assert instance.get_runs() == []


def test_runs_whose_process_is_gone_fail_and_give_their_slots_back(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    alive = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with open_instance(tmp_path) as instance:
            dead, living = _started_run(instance, gone.pid), _started_run(instance, alive.pid)
            storage = instance.event_log_storage
            storage.initialize_concurrency_limit_to_default("gpu")
            assert storage.claim_concurrency_slot("gpu", dead, "step").is_claimed
            assert not storage.claim_concurrency_slot("gpu", living, "step").is_claimed
            assert run_process(instance, dead)[0] == gone.pid
            assert fail_dead_runs(instance) == [dead]
            assert instance.get_run_by_id(dead).status == DagsterRunStatus.FAILURE
            assert instance.get_run_by_id(living).status == DagsterRunStatus.STARTED
            assert storage.claim_concurrency_slot("gpu", living, "step").is_claimed
            assert fail_dead_runs(instance) == []
    finally:
        alive.kill()
        alive.wait()


def test_a_run_whose_process_is_gone_starts_again_if_its_tag_says_so(tmp_path):
    """The daemon starts the runs again that have the tag `dagster/will_retry`."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    with open_instance(tmp_path) as instance:
        once, never = _started_run(instance, gone.pid), _started_run(instance, gone.pid)
        instance.add_run_tags(once, {"dagster/max_retries": "1"})
        assert set(fail_dead_runs(instance)) == {once, never}
        told = [instance.get_run_by_id(each).tags["dagster/will_retry"] for each in (once, never)]
    assert told == ["true", "false"]


def test_runs_of_other_machines_and_containers_are_left_alone(tmp_path):
    """Their process ids mean other processes here; those of the same machine before it restarted mean none."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    host, boot, namespace = here_and_now().split("/")
    with open_instance(tmp_path) as instance:
        elsewhere = [f"other/{boot}/{namespace}", f"other/x/{namespace}", f"{host}/{boot}/1"]
        left = [_started_run(instance, gone.pid, machine) for machine in elsewhere]
        restarted = _started_run(instance, os.getpid(), f"{host}/earlier/{namespace}")
        assert fail_dead_runs(instance) == [restarted]
        assert {instance.get_run_by_id(each).status for each in left} == {DagsterRunStatus.STARTED}
        storage = instance.event_log_storage
        storage.initialize_concurrency_limit_to_default("gpu")
        assert storage.claim_concurrency_slot("gpu", left[0], "mine__sage").is_claimed
        assert slot_holders(instance).endswith(" on other")


def test_a_run_that_has_not_said_where_it_is_gets_time(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert may_live(None, gone.pid, time.time()) and not may_live(None, gone.pid, time.time() - 300)


def test_a_step_says_on_which_machine_it_runs(tmp_path):
    @dg.asset(key=["mine", "told"])
    def told(context: dg.AssetExecutionContext):
        _note_machine(context)
        _note_machine(context)

    with open_instance(tmp_path) as instance:
        result = dg.materialize([told], instance=instance)
        assert instance.get_run_by_id(result.run_id).tags[MACHINE_TAG] == here_and_now()


def test_another_process_with_the_same_number_is_not_the_run():
    process = subprocess.Popen(["sleep", "600"])
    try:
        assert process_lives(process.pid, time.time())
        assert not process_lives(process.pid, time.time() - 3600)
    finally:
        process.kill()
        process.wait()
    assert not process_lives(process.pid, time.time())


def test_a_clock_that_is_set_ends_no_run(tmp_path, monkeypatch):
    """What a step wrote into the tags decides, and not the time of day."""

    @dg.asset
    def told(context: dg.AssetExecutionContext):
        _note_machine(context)

    clock, process = time.time, subprocess.Popen(["sleep", "600"])
    try:
        with open_instance(tmp_path) as instance:
            noted = instance.get_run_by_id(dg.materialize([told], instance=instance).run_id)
            living = _started_run(instance, process.pid)
            seen = noted.tags[SEEN_TAG].replace(noted.run_id, living)
            instance.add_run_tags(living, {SEEN_TAG: seen})
            # One that began later and has the number of the first one's process.
            reused = _started_run(instance, process.pid)
            instance.add_run_tags(reused, {SEEN_TAG: f"{reused} {seconds_since_boot() - 3600:.2f}"})
            for shift in (-3600, 5, 3600):
                monkeypatch.setattr("time.time", lambda shift=shift: clock() + shift)
                assert fail_dead_runs(instance) == ([reused] if shift == -3600 else [])
            assert instance.get_run_by_id(living).status == DagsterRunStatus.STARTED
    finally:
        process.kill()
        process.wait()


def test_a_run_that_repeats_another_one_says_anew_when_it_was_there(tmp_path):
    @dg.asset
    def told(context: dg.AssetExecutionContext):
        _note_machine(context)

    with open_instance(tmp_path) as instance:
        first = instance.get_run_by_id(dg.materialize([told], instance=instance).run_id)
        assert 0 < seen_at(first) <= seconds_since_boot()
        again = _started_run(instance, os.getpid())
        instance.add_run_tags(again, {SEEN_TAG: first.tags[SEEN_TAG]})
        assert seen_at(instance.get_run_by_id(again)) is None and fail_dead_runs(instance) == []
        second = instance.get_run_by_id(dg.materialize([told], instance=instance, tags=first.tags).run_id)
        assert second.tags[SEEN_TAG].startswith(second.run_id) and seen_at(second) >= seen_at(first)


def test_a_run_without_any_process_yet_is_left_alone(tmp_path):
    with open_instance(tmp_path) as instance:
        instance.create_run_for_job(_nothing, status=DagsterRunStatus.STARTED)
        assert fail_dead_runs(instance) == []


def test_the_ui_listens_on_this_machine_only_and_on_a_free_port(tmp_path, monkeypatch):
    import socket

    with socket.socket() as taken:
        taken.bind((ui.ADDRESS, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} of 127.0.0.1 is taken"):
            ui.free_port(port)
        monkeypatch.setattr(ui, "PORT", port)
        assert port < ui.free_port(None) < port + ui.PORTS_TRIED
    executed = []

    def start(command, environment, hear, **options):
        executed.append((command, environment))
        return Child([sys.executable, "-c", ""], environment, hear, **options)

    monkeypatch.setattr(ui, "Child", start)
    monkeypatch.setenv("GRAPHMILL_PIPELINES", "mine")
    lines = []
    with pytest.raises(InputError, match="the web UI ended by itself, with exit code 0"):
        ui.serve(tmp_path / "home", None, lines.append)
    ((command, environment),) = executed
    assert command[command.index("-h") + 1] == "127.0.0.1"
    assert f"http://127.0.0.1:{command[command.index('-p') + 1]}" in lines[0]
    assert environment["DAGSTER_HOME"] == environment["GRAPHMILL_HOME"] == str(tmp_path / "home")
    assert environment["GRAPHMILL_PIPELINES"].startswith("/")
