"""The project of docs/dagster.md in Dagster's own web server, with its daemon: runs that are killed, and a backfill of days."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

import graphmill
from graphmill.jobs.runs.dead_runs import run_process
from graphmill.trainers.record.checkpoint_head import waiting_here
from tests.graphmill.test_component import COMMUNITIES, edit
from tests.graphmill.test_component import project as project
from tests.graphmill.test_days import DAYS, write_days, write_tables
from tests.jobs.runs.processes import family, wait_for, wait_until_gone
from tests.jobs.server import ProjectServer
from tests.trainers.runs import content

PACKAGE = "shop.definitions"
EPOCHS = 400
PATIENCE_SECONDS = 900


@pytest.fixture
def server(project: Path) -> Iterator[ProjectServer]:
    running = ProjectServer(project, PACKAGE)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def instance(project: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(project)) as opened:
        yield opened


def kill_in_training(instance: dg.DagsterInstance, run_id: str, home: Path) -> int:
    """Kills the process of a run and all that it started, in the middle of a training; returns the epoch of its checkpoint."""

    def reached() -> int:
        found = [waiting_here(path, path.stem, ended=False) for path in (home / "checkpoints").glob("*.safetensors")]
        return max((each.epoch for each in found if each is not None and each.epoch >= 3), default=0)

    wait_for(reached, "a checkpoint", PATIENCE_SECONDS)
    process = run_process(instance, run_id)
    assert process is not None
    killed = family(process[0])
    assert len(killed) >= 3, "the run, the step and its training"
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until_gone(killed)
    epoch = reached()
    assert 0 < epoch < EPOCHS
    return epoch


def forget(path: Path) -> None:
    """Removes a model and its checkpoint, which a longer training could go on from."""
    model = graphmill.artifact(path, "sage")
    shutil.rmtree(model.path)
    shutil.rmtree(model.path.parents[2] / "checkpoints")


@pytest.mark.slow("whole runs that are killed, and go on in the web UI and by the daemon")
def test_a_run_that_was_killed_goes_on_to_the_same_bits(
    project: Path, server: ProjectServer, instance: dg.DagsterInstance
) -> None:
    path = project / COMMUNITIES
    edit(path, "epochs = 2", f"epochs = {EPOCHS}")
    server.wait_until_ready()
    server.wait_for_run(server.launch("__ASSET_JOB", PACKAGE), seconds=PATIENCE_SECONDS)
    undisturbed = content(graphmill.artifact(path, "sage"))

    def goes_on(run_id: str, epoch: int, again: str) -> None:
        server.wait_for_run(again, seconds=PATIENCE_SECONDS)
        lines = [each.user_message for each in instance.all_logs(again) if each.user_message.startswith("sage: goes")]
        assert len(lines) == 1 and lines[0].startswith(f"sage: goes on from the checkpoint of epoch {epoch}")
        assert f"of run {run_id[:8]}, which this run repeats" in lines[0]
        assert content(graphmill.artifact(path, "sage")) == undisturbed

    forget(path)
    by_hand = server.launch("__ASSET_JOB", PACKAGE, max_retries="0")
    epoch = kill_in_training(instance, by_hand, server.home)
    server.wait_for_run(by_hand, "FAILURE")
    again = server.repeat(by_hand)
    goes_on(by_hand, epoch, again)
    assert not [
        each for each in instance.all_logs(again) if each.dagster_event and each.step_key == "communities__graph"
    ]

    forget(path)
    by_daemon = server.launch("communities__train", PACKAGE)  # dagster.yaml says how often it is tried again
    epoch = kill_in_training(instance, by_daemon, server.home)
    children = dg.RunsFilter(tags={"dagster/parent_run_id": by_daemon})
    (retry,) = wait_for(lambda: instance.get_runs(children), "the daemon's retry", PATIENCE_SECONDS)
    goes_on(by_daemon, epoch, retry.run_id)


def most_at_once(spans: list[tuple[float, float]]) -> int:
    """Returns how many spans of time (start, end) there were at once at most."""
    return max(sum(start <= begin < end for start, end in spans) for begin, _ in spans)


def graphs(instance: dg.DagsterInstance, run_ids: set[str]) -> dict[str, bool]:
    """Returns day -> whether runs reused its graph, of those that they built or reused."""
    found = {}
    for key in instance.get_asset_keys():
        if key.path[0].startswith("day-") and key.path[-1] == "graph":
            for record in instance.fetch_materializations(key, limit=1).records:
                if record.run_id in run_ids and record.asset_materialization is not None:
                    reused = record.asset_materialization.metadata["reused"].value
                    found[key.path[0].removeprefix("day-")] = bool(reused)
    return found


@pytest.mark.first
@pytest.mark.parametrize(
    "num_days", [3, pytest.param(DAYS, marks=pytest.mark.slow("thirty days by the queue and by a backfill"))]
)
def test_days_are_backfilled_two_at_once(
    project: Path, num_days: int, request: pytest.FixtureRequest, instance: dg.DagsterInstance
) -> None:
    days = write_days(project, num_days)
    edit(project / "backfill.py", "__all", "__preprocess")
    wrong = days[num_days // 2]
    edges = project / "lake" / wrong / "edges.parquet"
    edges.write_bytes(b"PAR1 and nothing else")
    loaded = "dg.load_from_defs_folder(path_within_project=Path(__file__).parent)"
    # Of few days each run is one process, which takes less time.
    two = 'dg.multiprocess_executor.configured({"max_concurrent": 2})' if num_days == DAYS else "dg.in_process_executor"
    merged = f"dg.Definitions.merge({loaded}, dg.Definitions(executor={two}))"
    edit(project / "shop/definitions.py", loaded, merged)
    server: ProjectServer = request.getfixturevalue("server")
    server.wait_until_ready()
    edit(project / "backfill.py", "3000", str(server.port))

    def backfill() -> dict[str, dg.RunRecord]:
        known = {each.run_id for each in instance.get_runs()}
        exec((project / "backfill.py").read_text(), {})  # it is the page's own text
        new = {each.run_id for each in instance.get_runs()} - known
        wait_for(
            lambda: all(server.status(each) in ("SUCCESS", "FAILURE") for each in new), "the runs", PATIENCE_SECONDS
        )
        records = instance.get_run_records(dg.RunsFilter(run_ids=list(new)))
        assert most_at_once([(each.start_time or 0.0, each.end_time or 0.0) for each in records]) <= 2
        return {each.dagster_run.run_id: each for each in records}

    first = backfill()
    failed = [run_id for run_id, each in first.items() if each.dagster_run.status == dg.DagsterRunStatus.FAILURE]
    assert len(first) == num_days and len(failed) == 1
    (message,) = server.failures(failed[0])
    assert str(edges) in message
    assert graphs(instance, set(first)) == dict.fromkeys((day for day in days if day != wrong), False)
    fresh(server, days, wrong)

    write_tables(edges.parent, 99)
    run_id = dagster_backfill(server, days)
    steps = [each for each in instance.get_run_step_stats(run_id) if each.step_key.endswith("__graph")]
    assert most_at_once([(each.start_time or 0.0, each.end_time or 0.0) for each in steps]) <= 2
    assert graphs(instance, {run_id}) == {day: day != wrong for day in days}
    fresh(server, days)
    if num_days == DAYS:
        again = backfill()
        assert {each.dagster_run.status for each in again.values()} == {dg.DagsterRunStatus.SUCCESS}
        assert graphs(instance, set(again)) == dict.fromkeys(days, True)


def fresh(server: ProjectServer, days: list[str], wrong: str = "") -> None:
    """Waits until the UI shows the days as fresh, but for one that was not built."""
    query = "{ assetNodes { assetKey { path } freshnessStatusInfo { freshnessStatus } } }"
    wanted = {day: "UNKNOWN" if day == wrong else "HEALTHY" for day in days}

    def shown() -> bool:
        nodes = server.ask(query)["assetNodes"]
        states = {
            tuple(each["assetKey"]["path"]): (each["freshnessStatusInfo"] or {}).get("freshnessStatus")
            for each in nodes
        }
        return {day: states[(f"day-{day}", "graph")] for day in days} == wanted

    wait_for(shown, "what the UI says of freshness", PATIENCE_SECONDS)


def dagster_backfill(server: ProjectServer, days: list[str]) -> str:
    """Launches a backfill of all days as the UI does, waits for its success, and returns the id of its run."""
    keys = [{"path": [f"day-{day}", name]} for day in days for name in ("graph", "features")]
    answer = server.ask(
        "mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) { __typename"
        " ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }",
        params={"partitionsByAssets": [{"assetKey": key, "partitions": None} for key in keys]},
    )["launchPartitionBackfill"]
    assert answer["__typename"] == "LaunchBackfillSuccess", answer
    query = (
        "query($id: String!) { partitionBackfillOrError(backfillId: $id) {"
        " ... on PartitionBackfill { status runs(limit: 5) { runId } } } }"
    )

    def ended() -> dict[str, list[dict[str, str]]] | None:
        found = server.ask(query, id=answer["backfillId"])["partitionBackfillOrError"]
        assert "FAILED" not in found["status"] and "CANCEL" not in found["status"], found
        return found if found["status"] == "COMPLETED_SUCCESS" else None

    found = wait_for(ended, "the backfill", PATIENCE_SECONDS)
    assert found is not None
    (run,) = found["runs"]
    return run["runId"]
