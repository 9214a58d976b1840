"""Runs from the command line: in this process and in several, through the history that the UI shows."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import numpy as np
import pytest

from graphmill.assets.building.child import child_environment
from graphmill.assets.pipeline.file import load_pipeline, parse_pipeline
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.results.status import pipeline_states
from graphmill.jobs.launch import Launch, launch
from graphmill.jobs.operations.size import is_big
from graphmill.jobs.runs.instance import open_instance
from graphmill.jobs.runs.slot import POOL
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.checkpoint_head import waiting_run
from tests import forks
from tests.jobs.runs.processes import heed_interrupts, stubborn_pids, wait_for, wait_until_gone
from tests.recipes import load_tiny, write_tiny

pytestmark = [pytest.mark.first, pytest.mark.usefixtures("drawn")]


@pytest.fixture(autouse=True)
def no_home(monkeypatch):
    """A launch sets the home for its processes; the next test must not see it, nor use one that it was not given."""
    monkeypatch.setenv("GRAPHMILL_HOME", "unset-by-the-test")
    monkeypatch.setenv("DAGSTER_HOME", "unset-by-the-test")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def first(home, tmp_path_factory, quick_launches):
    lines = []
    pipeline = load_tiny(tmp_path_factory.mktemp("pipelines"))
    saved = {name: os.environ.get(name) for name in ("GRAPHMILL_HOME", "DAGSTER_HOME")}
    outcome = launch(Launch(pipeline=pipeline, home=home, report=lines.append))
    os.environ.update({name: value for name, value in saved.items() if value is not None})
    return pipeline, outcome, lines


def _materializations(home, run_id) -> dict[str, dg.AssetMaterialization]:
    with open_instance(home) as instance:
        entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        events = [entry.dagster_event.event_specific_data.materialization for entry in entries]
        return {event.asset_key.to_user_string(): event for event in events}


def test_a_run_builds_and_trains_and_the_history_knows_it(first, home):
    _pipeline, outcome, lines = first
    assert {name: [each.stage for each in found] for name, found in outcome.artifacts.items()} == {
        "graph": ["graph"],
        "features": ["features"],
        "sage": ["model"],
        "gcn": ["model"],
    }
    assert re.fullmatch(r"features: built features/\w+ \(300 rows of 8 float32\) in \d+\.\d s, [\d.]+ KiB", lines[0])
    assert lines[1].startswith("graph: built graph/") and "300 nodes" in lines[1]
    events = _materializations(home, outcome.run_id)
    assert set(events) == {"tiny/graph", "tiny/features", "tiny/sage", "tiny/gcn"}
    assert list(events)[-2:] == ["tiny/sage", "tiny/gcn"]  # the order of the file
    (graph,), (sage,) = outcome.artifacts["graph"], outcome.artifacts["sage"]
    tags = events["tiny/sage"].tags
    assert tags["dagster/data_version"] == sage.version
    assert tags["dagster/input_data_version/tiny/graph"] == graph.version


def test_the_epochs_of_a_training_are_in_the_event_log(first, home):
    with open_instance(home) as instance:
        said = [entry.user_message for entry in instance.all_logs(first[1].run_id) if "epoch " in entry.user_message]
    lines = [line for line in said if line.startswith(("sage: seed 0, epoch ", "gcn: seed 0, epoch "))]
    assert len(lines) == 4 and all("loss" in line and "best" in line for line in lines)


def test_metadata_has_numbers_figures_and_the_learning_curve(first, home):
    events = _materializations(home, first[1].run_id)
    graph = events["tiny/graph"].metadata
    assert graph["nodes"].value == 300 and graph["reused"].value is False
    for shown, line, titles in (
        (graph, "**300 nodes, ", ("degrees", "classes")),
        (events["tiny/sage"].metadata, "**", ("learning curve", "cost of an epoch", "time-line")),
    ):
        summary = shown["summary"].value
        assert list(shown)[:2] == ["headline", "summary"], "what matters most comes first"
        assert summary.startswith(line) and summary.replace("**", "").startswith(shown["headline"].value)
        assert all(f"![{title}](data:image/png;base64,iVBOR" in summary for title in titles)
        assert len(summary) < 140_000 * len(titles)
        assert [name for name, value in shown.items() if "base64" in str(value.value)] == ["summary"]
        assert sum(name in ("config", "recipe") for name in shown) == 1
    sage = events["tiny/sage"].metadata
    assert [record.data["epoch"] for record in sage["epochs"].records] == [1, 2]
    assert 0 <= sage["valid accuracy (%)"].value <= 100 and " test accuracy, 2 epochs of " in sage["headline"].value
    assert sage["trained models"].value == 1


def test_the_second_run_reuses_every_artifact(first, home):
    pipeline, outcome, _ = first
    lines = []
    again = launch(Launch(pipeline=pipeline, home=home, report=lines.append))
    assert len(lines) == 4 and all(": reused " in line for line in lines)
    for name, found in again.artifacts.items():
        assert [each.version for each in found] == [each.version for each in outcome.artifacts[name]]
    assert all(event.metadata["reused"].value is True for event in _materializations(home, again.run_id).values())


def test_each_step_in_a_process_of_its_own_builds_the_same_in_turn(first, tmp_path, capfd):
    """It also shows that the text travels with the run: the file is gone when the steps load it."""
    outcome, home = first[1], tmp_path / "home"
    copy = load_tiny(tmp_path / "elsewhere")
    copy.path.unlink()
    other = launch(Launch(pipeline=copy, home=home, in_process=False))
    assert {name: found[0].version for name, found in other.artifacts.items()} == {
        name: found[0].version for name, found in outcome.artifacts.items()
    }
    said = "".join(capfd.readouterr())
    assert "waits for" not in said and "DEBUG" not in said and "gcn: trained" in said
    with open_instance(home) as instance:
        steps = {each.step_key: each for each in instance.get_run_step_stats(other.run_id)}
        events = [entry.dagster_event for entry in instance.all_logs(other.run_id) if entry.dagster_event]
    assert any(event.event_type == dg.DagsterEventType.STEP_WORKER_STARTED for event in events)
    trainings = sorted((steps[f"tiny__{name}"] for name in ("sage", "gcn")), key=lambda step: step.start_time)
    assert trainings[0].end_time <= trainings[1].start_time


def test_training_alone_names_the_command_for_what_is_missing(tmp_path):
    order = Launch(pipeline=load_tiny(tmp_path), home=tmp_path / "home", selection="train", names=("gcn",))
    with pytest.raises(InputError, match=r"tiny/gcn reads graph/(?s:.*)graphmill build .*tiny.toml"):
        launch(order)
    assert Store(tmp_path / "home").artifacts() == []


def test_what_comes_from_outside_is_observed_and_read_versions_are_recorded(tmp_path):
    from graphmill.assets.definitions import Surroundings, raw_asset
    from graphmill.assets.pipeline.steps import preprocessing_steps

    text = write_tiny(tmp_path, "raw").read_text()
    path = tmp_path / "raw.toml"
    path.write_text(
        text[: text.index("[graph]")] + '[graph]\nsource = "npz"\npath = "g.npz"\n' + text[text.index("[sampling]") :]
    )
    arrays = {
        "edge_index": np.array([[0, 1, 2], [1, 2, 0]]),
        "x": np.eye(3, dtype=np.float32),
        "y": np.array([0, 1, 0]),
    }
    np.savez(tmp_path / "g.npz", **arrays, train=[0], val=[1], test=[2])
    pipeline, home, key = load_pipeline(path, TrainTable), tmp_path / "home", dg.AssetKey(["raw", "raw"])
    outcome = launch(Launch(pipeline=pipeline, home=home, selection="preprocess"))
    read = _materializations(home, outcome.run_id)["raw/graph"].tags["dagster/input_data_version/raw/raw"]

    def observed(instance):
        record = instance.fetch_observations(key, limit=1).records[0]
        return record.asset_observation.tags["dagster/data_version"]

    step, _features = preprocessing_steps(pipeline)
    with open_instance(home) as instance:
        assert observed(instance) == read
        arrays["y"] = np.array([1, 1, 0])
        np.savez(tmp_path / "g.npz", **arrays, train=[0], val=[1], test=[2])
        job = dg.define_asset_job("observe", selection=dg.AssetSelection.assets(key))
        found = dg.Definitions(assets=[raw_asset(step, Surroundings(store=Store(home)))], jobs=[job])
        assert found.resolve_job_def("observe").execute_in_process(instance=instance).success
        assert observed(instance) != read, "the UI now shows that the graph was built from other content"
    again = launch(Launch(pipeline=pipeline, home=home, selection="preprocess"))
    assert again.artifacts["graph"][0].version != outcome.artifacts["graph"][0].version


def test_unknown_names_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(InputError, match=r"sag not in (?s:.*)sage, gcn"):
        launch(Launch(pipeline=load_tiny(tmp_path), home=tmp_path / "home", names=("sag",)))
    assert not (tmp_path / "home").exists()


def test_an_input_error_of_a_training_comes_through(first, home, tmp_path):
    text = first[0].text.replace('name = "sage"\n', 'name = "sage"\nworkspace = "1KiB"\nhidden = 9\n', 1)
    (tmp_path / "tiny.toml").write_text(text.replace("hidden = 9\nhidden = 8\n", "hidden = 9\n"))
    pipeline = load_pipeline(tmp_path / "tiny.toml", TrainTable)
    with pytest.raises(InputError, match=r"(?i)workspace|budget|bytes"):
        launch(Launch(pipeline=pipeline, home=home, selection="train", names=("sage",)))


def test_failed_checks_are_recorded_and_no_graph_is_published(tmp_path, monkeypatch):
    from graphmill.assets.building.stage import Check
    from graphmill.assets.graph import stage

    def fail(*arguments, **options):
        return [Check(name="has edges", passed=False, detail="none at all"), Check(name="rows are sorted", passed=True)]

    monkeypatch.setattr(stage, "topology_checks", fail)
    with pytest.raises(InputError, match="none at all"):
        launch(Launch(pipeline=load_tiny(tmp_path), home=tmp_path / "home", selection="preprocess"))
    assert [each.stage for each in Store(tmp_path / "home").artifacts()] == ["features"]
    with open_instance(tmp_path / "home") as instance:
        (run,) = instance.get_runs()
        entries = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        found = {entry.dagster_event.event_specific_data.check_name: entry for entry in entries}
    assert found["has_edges"].dagster_event.event_specific_data.passed is False
    assert found["rows_are_sorted"].dagster_event.event_specific_data.passed is True


def test_a_check_that_does_not_block_is_a_warning_with_numbers(tmp_path, monkeypatch):
    """What needs the graph is built, and the history says what was measured."""
    from graphmill.assets.building.stage import Check
    from graphmill.assets.graph import stage

    checks = stage.node_checks

    def warn(*arguments):
        odd = Check(
            name="splits are disjoint", passed=False, detail="odd", numbers={"odd nodes": 3, "of": 7.5}, blocking=False
        )
        return [*checks(*arguments)[:1], odd, *checks(*arguments)[2:]]

    monkeypatch.setattr(stage, "node_checks", warn)
    pipeline = load_tiny(tmp_path)
    (tmp_path / "tiny.toml").write_text(pipeline.text + '[hotness]\npolicy = "degree"\n')
    pipeline = load_pipeline(tmp_path / "tiny.toml", TrainTable)
    launch(Launch(pipeline=pipeline, home=tmp_path / "home", selection="preprocess"))
    assert {"graph", "hotness"} <= {each.stage for each in Store(tmp_path / "home").artifacts()}
    with open_instance(tmp_path / "home") as instance:
        (run,) = instance.get_runs()
        entries = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        found = {
            entry.dagster_event.event_specific_data.check_name: entry.dagster_event.event_specific_data
            for entry in entries
        }
    odd = found["splits_are_disjoint"]
    assert not odd.passed and odd.severity == dg.AssetCheckSeverity.WARN and odd.description == "odd"
    assert {name: value.value for name, value in odd.metadata.items()} == {"odd nodes": 3, "of": 7.5}
    sound = found["ids_are_in_range"]
    assert sound.passed and sound.metadata["number of nodes"].value == 300


def test_only_large_graphs_get_a_process_for_each_step(tmp_path):
    assert not is_big(load_tiny(tmp_path))
    assert is_big(load_tiny(tmp_path, edges="2000 -> 200000000"))


def test_a_command_waits_itself_for_the_trainings_of_large_data(first, home, monkeypatch):
    """What is to be built gets a process for each step, and so do trainings that may run at once."""
    pipeline = first[0]
    monkeypatch.setattr("graphmill.jobs.operations.size.is_big", lambda pipeline: True)
    here: list[bool] = []

    def stopped(order, steps, store, versions, instance):
        here.append(True)
        raise InputError("stopped")

    monkeypatch.setattr("graphmill.jobs.launch._execute_here", stopped)
    monkeypatch.setattr(
        "graphmill.jobs.launch._execute_in_processes", lambda *given: here.append(False) or stopped(*given)
    )

    def runs_here(**order) -> bool:
        here.clear()
        with pytest.raises(InputError, match="stopped"):
            launch(Launch(pipeline=order.pop("pipeline", pipeline), home=home, **order))
        return here[0]

    assert runs_here(selection="train", retrain=True) and runs_here(retrain=True) and runs_here()
    assert not runs_here(
        pipeline=parse_pipeline(pipeline.path, pipeline.text.replace("300", "301").encode(), TrainTable)
    )
    with open_instance(home) as instance:
        instance.event_log_storage.set_concurrency_slots(POOL, 2)
        assert not runs_here(selection="train", retrain=True)
        assert runs_here(selection="train", retrain=True, names=("sage",))
        instance.event_log_storage.set_concurrency_slots(POOL, 1)


LAUNCHER = """
import sys
from pathlib import Path
import graphmill.jobs.runs.children, graphmill.jobs.launch
from graphmill.jobs.launch import Launch, launch
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.trainers.recipe.config import TrainTable
run = graphmill.jobs.runs.children.ChildProcesses.run
def stubborn(self, *, context, command, **more):
    self.grace = (0.2, 0.2, 20.0)
    return run(self, context=context, command=[sys.executable, sys.argv[3], sys.argv[4]], **more)
graphmill.jobs.runs.children.ChildProcesses.run = stubborn
try:
    launch(Launch(pipeline=load_pipeline(sys.argv[1], TrainTable), home=Path(sys.argv[2])))
except KeyboardInterrupt:
    sys.exit(130)
"""


def _launched(folder: Path, home: Path) -> tuple[forks.Started, list[int]]:
    """Starts a run whose training ignores signals; returns its process, and the ids of those of the training."""
    pid_file, stubborn = folder / "pids", Path(__file__).parent / "runs" / "stubborn.py"
    words = ["-c", LAUNCHER, *map(str, (write_tiny(folder), home, stubborn, pid_file))]
    with open(folder / "said", "w") as said:
        process = forks.start(words, cwd=ROOT, out=said, err=said, imports=forks.COMMANDS, new_session=True)
    return process, stubborn_pids(pid_file)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_with_130_and_leaves_nothing_behind(tmp_path, number):
    home = tmp_path / "home"
    process, pids = _launched(tmp_path, home)
    process.send_signal(number)
    assert process.wait(120) == 130
    wait_until_gone(pids)
    _assert_sound(home, ["features", "graph"])
    with open_instance(home) as instance:
        (run,) = instance.get_runs()
        assert run.status == dg.DagsterRunStatus.CANCELED  # no failure, of which sensors would tell
        assert not instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)


@pytest.mark.parametrize("in_process", [True, False])
def test_ctrl_c_at_a_terminal_prints_one_line(tmp_path, in_process):
    """Ctrl-C reaches every process of the terminal's group, those too that Dagster starts to copy the output of a step."""
    path, home = write_tiny(tmp_path, tables=("sage",), epochs="2 -> 100000"), tmp_path / "home"
    text = f"""
import sys
from graphmill.jobs.operations import size
size.is_big = lambda pipeline: {not in_process}
sys.argv[1:] = ["--home", {str(home)!r}, "run", {str(path)!r}, "-v"]
from graphmill.jobs.cli import main
if __name__ == "__main__":
    main()
"""
    script = tmp_path / "script.py"
    script.write_text(text)
    process = subprocess.Popen(
        [sys.executable, str(script)], cwd=ROOT, start_new_session=True, preexec_fn=heed_interrupts,  # noqa: PLW1509
        env=child_environment({}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for _ in process.stdout:  # short epochs share a checkpoint
        found = [waiting_run(each, each.stem) for each in (home / "checkpoints").glob("*.safetensors")]
        if any(each is not None and each.epoch >= 3 for each in found):
            break
    os.killpg(process.pid, signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(120) == 130 and "Traceback" not in rest
    assert rest.rstrip().endswith("graphmill: interrupted; what was finished is kept, training goes on with --resume")
    with open_instance(home) as instance:
        (run,) = instance.get_runs()
        assert run.status == dg.DagsterRunStatus.CANCELED
    states = pipeline_states(load_pipeline(path, TrainTable), home)
    waiting = {state.step: state.waiting for state in states}
    assert waiting["sage"] is not None and waiting["sage"].epoch >= 3 and waiting["graph"] is None


def test_a_run_of_the_command_line_can_be_cancelled_in_the_ui(tmp_path):
    """The UI cannot reach the process; it can mark the run."""
    home = tmp_path / "home"
    process, pids = _launched(tmp_path, home)
    with open_instance(home) as instance:
        (run,) = instance.get_runs()
        instance.report_run_canceling(run)
        assert process.wait(120) == 130
        assert instance.get_run_by_id(run.run_id).status == dg.DagsterRunStatus.CANCELED
    wait_until_gone(pids)
    _assert_sound(home, ["features", "graph"])


def test_a_stage_ends_at_its_next_step_when_its_run_is_cancelled(tmp_path, monkeypatch):
    from graphmill.assets.graph.stage import GraphStage
    from graphmill.jobs.runs import children as cancellation

    def build_from(self, opened, building):
        with open_instance(tmp_path / "home") as instance:
            instance.report_run_canceling(instance.get_runs()[0])
        progress = building.progress
        progress.start("endless", None, "turns")
        building.writer.save("half", np.zeros(3))
        for _ in range(10_000):
            progress.advance(1)
        raise AssertionError("nobody stopped it")

    monkeypatch.setattr(cancellation, "CANCEL_POLL_SECONDS", 0.0)
    monkeypatch.setattr(GraphStage, "build_from", build_from)
    with pytest.raises(KeyboardInterrupt):
        launch(Launch(pipeline=load_tiny(tmp_path), home=tmp_path / "home", selection="preprocess"))
    _assert_sound(tmp_path / "home", ["features"])


def test_a_killed_launcher_leaves_no_process_and_the_next_one_ends_its_run(tmp_path):
    home = tmp_path / "home"
    process, pids = _launched(tmp_path, home)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until_gone(pids)
    lines = []
    launch(Launch(pipeline=load_tiny(tmp_path), home=home, selection="preprocess", report=lines.append))
    assert "marked as failed" in lines[0] and "reused" in lines[1]
    with open_instance(home) as instance:
        statuses = sorted(run.status.value for run in instance.get_runs())
        assert statuses == ["FAILURE", "SUCCESS"]
        wait_for(lambda: not instance.event_log_storage.get_concurrency_run_ids(), "slots to be free")
    _assert_sound(home, ["features", "graph"])


def _assert_sound(home, stages):
    store = Store(home)
    store.sweep()
    assert [each.stage for each in store.artifacts()] == stages and not store.damaged()
    assert all(not each.verify() for each in store.artifacts())
    staging = store.root / ".staging"
    assert not staging.exists() or not [path for path in staging.iterdir() if path.is_dir()]
