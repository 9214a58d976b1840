"""Schedules and sensors as they run: the processes of `graphmill ui`, with a schedule every minute, left alone and then disturbed.

The default form watches the pipeline `watched` of the server that all tests of this folder share, so most of the minute passes while
other tests run: the file comes last by its name. The slow form has a server for itself and leaves it alone for ten minutes.
"""

import time

import pytest
from dagster import RunsFilter
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import TickStatus

from graphmill.assets.building import guard
from graphmill.jobs.commands.machine.ui import WORKSPACE
from graphmill.jobs.operations.difference import PIPELINE_TAG
from graphmill.jobs.runs.instance import open_instance
from tests.jobs.runs.processes import wait_for
from tests.jobs.server import Server
from tests.recipes import write_watched

pytestmark = pytest.mark.first

LIMIT_SECONDS = 600
"""How long a tick and its run are waited for: two ticks of a minute, several processes that start, and a busy machine."""
NAMES = ("watched__schedule", "watched__refresh")
GROWTH_BYTES_PER_MINUTE = 100_000
"""What docs/deployment.md says that ticks add to the history at most."""


@pytest.mark.slow("ticks of a daemon: a run where something changed, and none elsewhere")
def test_ticks_start_runs_where_something_changed_and_nowhere_else(server):
    began = time.time()  # reloads of other tests end the processes in which ticks run
    with open_instance(server.home) as instance:
        runs = wait_for(lambda: finished(instance), "the first run", LIMIT_SECONDS)
        assert [run.status.value for run in runs] == ["SUCCESS"], [dict(run.tags) for run in runs]
        (first,) = runs
        ended = instance.get_run_record_by_id(first.run_id).end_time
        wait_for(
            lambda: all(ticks_of(instance, ended).get(name, {}).get("skipped") for name in NAMES),
            "idle ticks",
            LIMIT_SECONDS,
        )
        disturb(server, instance)
        ticks = ticks_of(instance, began)
    assert {name: number for name, number in ticks.items() if number["failed"]} == {}
    server.assert_sound()


@pytest.mark.slow("ten minutes of ticks without a change, and what they leave in the history")
def test_ten_minutes_without_a_change_start_no_run_and_leave_little_behind(tmp_path):
    server = Server(tmp_path, [WORKSPACE])
    write_watched(server.pipelines)
    try:
        server.wait_until_ready()
        with open_instance(server.home) as instance:
            wait_for(lambda: finished(instance), "the first run", LIMIT_SECONDS)
            quiet, before = time.time(), history_bytes(server.home)
            while time.time() < quiet + 600:
                time.sleep(5)
                assert server.process.poll() is None, server.log.read_text()[-3000:]
            minutes, growth = (time.time() - quiet) / 60, history_bytes(server.home) - before
            ticks = ticks_of(instance, quiet)
            print(f"{minutes:.1f} minutes, {growth:,} bytes more, ticks: {ticks}")
            assert len(instance.get_runs()) == 1, "a run without a change"
            assert growth <= GROWTH_BYTES_PER_MINUTE * minutes + 300_000
            assert all(ticks[name]["skipped"] >= int(minutes) - 1 for name in (*NAMES, "graphmill__reload"))
            disturb(server, instance)
            ticks = ticks_of(instance)
    finally:
        server.stop()
    assert {name: number for name, number in ticks.items() if number["failed"]} == {}
    assert not guard.group_members(server.process.pid), "an orphan"
    server.assert_sound()


def disturb(server, instance):
    """Edits the file and adds another: both are noticed, and the edited pipeline runs once more, for what the edit decides."""
    write_watched(server.pipelines, policy="pagerank")
    (server.pipelines / "late.toml").write_text('[graph]\nsource = "sbm"\nnodes = 310\nedges = 2000\n')
    try:
        second, first = wait_for(
            lambda: len(found := finished(instance)) > 1 and found, "the second run", LIMIT_SECONDS
        )
        assert (first.status.value, second.status.value) == ("SUCCESS", "SUCCESS")
        assert "hotness" in second.tags["graphmill/why"] and "graph" not in second.tags["graphmill/why"]
        assert set(server.assets("late")) == {"graph", "features"}
    finally:
        (server.pipelines / "late.toml").unlink()
        server.reload()  # so that no sensor does it during another test


def finished(instance):
    """Returns the runs of the watched pipeline, the newest first, when all are over."""
    runs = instance.get_runs(RunsFilter(tags={PIPELINE_TAG: "watched"}))
    return runs if runs and all(run.is_finished for run in runs) else []


def history_bytes(home):
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file() and "store" not in path.parts)


def ticks_of(instance, after=0.0):
    """Returns name of a schedule or sensor -> number of its ticks by how they ended.

    Args:
        instance: the history.
        after: seconds since 1970; earlier ticks do not count.
    """
    found = {}
    for state in instance.all_instigator_state():
        assert state.instigator_type in (InstigatorType.SCHEDULE, InstigatorType.SENSOR)
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, after=after)
        numbers = found.setdefault(state.name, {"failed": [], "skipped": 0, "success": 0})
        for tick in ticks:
            if tick.status == TickStatus.FAILURE:
                numbers["failed"].append(str(tick.error)[-2000:])
            numbers["skipped"] += tick.status == TickStatus.SKIPPED
            numbers["success"] += tick.status == TickStatus.SUCCESS
    return found
