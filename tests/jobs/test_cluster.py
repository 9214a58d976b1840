"""A whole pipeline on the nodes of a cluster: every artifact and model has the bytes that one machine gives."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import build_defs, surroundings
from graphmill.jobs.launch import Launch, launch
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.assets.cluster.kept_nodes import kept_nodes
from tests.assets.cluster.test_pool import until
from tests.object_store import new_bucket, served

pytestmark = pytest.mark.first

RECIPE = """
name = "spread"
[graph]
source = "sbm"
nodes = 3000
edges = 24000
features = 16
[sampling]
fanouts = [5, 5]
batch_size = 100
reuse = 4
[partitions]
parts = 4
method = "range"
[hotness]
[memory]
device = "4KiB"
host = "8KiB"
disk = "1MiB"
[samples]
plan = "parts"
[cache_plan]
[packed]
groups = 8
[[train]]
name = "shared"
trainer = "distributed"
epochs = 3
samples = "stored"
hidden = 8
threads = 1
[train.distributed]
rows = "packed"
ranks = 2
"""


@pytest.fixture(autouse=True)
def no_home(monkeypatch):
    """A launch sets the home for its processes; the next test must not see it."""
    monkeypatch.setenv("GRAPHMILL_HOME", "unset-by-the-test")
    monkeypatch.setenv("DAGSTER_HOME", "unset-by-the-test")


def pipeline_on(folder, on=""):
    folder.mkdir(exist_ok=True)
    path = folder / "spread.toml"
    path.write_text(RECIPE + (f'[run]\non = "{on}"\n' if on else ""))
    return load_pipeline(path, TrainTable)


def contents(home):
    return {(each.stage, each.version): each.content for each in Store(home).artifacts()}


def compared(tmp_path, count, **order):
    """Runs the recipe on nodes and on one machine, compares all bytes, and returns the run records of the parts, by stage."""
    with kept_nodes(count, num_cpus=1, memory=2 << 30) as nodes:
        launch(Launch(pipeline=pipeline_on(tmp_path / "there", nodes.address), home=tmp_path / "there", **order))
    launch(Launch(pipeline=pipeline_on(tmp_path / "here"), home=tmp_path / "here", **order))
    there, here = contents(tmp_path / "there"), contents(tmp_path / "here")
    assert {stage for stage, _ in here} >= {"samples.parts", "packed_chunks.parts", "model"}
    differing = [
        f"{stage}/{version[:8]}" for (stage, version), content in here.items() if there.get((stage, version)) != content
    ]
    assert not differing and there.keys() == here.keys()
    parts = [each for each in Store(tmp_path / "there").artifacts() if each.part_of]
    return {stage: [each for each in parts if each.part_of[0] == stage] for stage in ("samples", "packed_chunks")}


def test_all_bytes_are_those_of_one_machine_and_parts_are_built_where_their_inputs_were(tmp_path):
    parts = compared(tmp_path, 2)
    built = {each.manifest["part"]["name"]: each.run_record()["node"] for each in parts["samples"]}
    assert len(set(built.values())) == 2
    packed = {each.run_record()["node"] for each in parts["packed_chunks"]}
    assert packed <= set(built.values())


@pytest.mark.slow("three nodes, and another number of ranks")
def test_three_nodes_and_four_ranks_give_the_same_bytes(tmp_path):
    assert len({each.run_record()["node"] for each in compared(tmp_path, 3, ranks=4)["samples"]}) > 1


@pytest.mark.slow("nodes that are killed while samples are drawn and while rows are packed")
def test_a_node_is_killed_in_the_middle_of_samples_and_another_of_packing(tmp_path):
    larger = (
        RECIPE.replace("nodes = 3000", "nodes = 100000")
        .replace("edges = 24000", "edges = 800000")
        .partition("[[train]]")[0]
    )
    larger = larger.replace('disk = "1MiB"', 'disk = "200MiB"').replace("features = 16", "features = 64")
    killed = []

    def kill_at_first_part(nodes, stage, number):
        parts = tmp_path / "there" / "store" / f"{stage}.parts"
        until(lambda: parts.is_dir() and any(parts.iterdir()), 240)
        nodes.kill(number)
        killed.append((stage, len(list(parts.iterdir()))))

    for home in ("there", "here"):
        (tmp_path / home).mkdir()
        (tmp_path / home / "spread.toml").write_text(larger)
    here, there = (load_pipeline(tmp_path / home / "spread.toml", TrainTable) for home in ("here", "there"))
    with kept_nodes(3, num_cpus=1, memory=2 << 30) as nodes, ThreadPoolExecutor(1) as pool:
        kills = [pool.submit(kill_at_first_part, nodes, *each) for each in (("samples", 2), ("packed_chunks", 1))]
        launch(Launch(pipeline=there, selection="preprocess", home=tmp_path / "there", on=nodes.address))
        assert all(kill.result() is None for kill in kills)
    launch(Launch(pipeline=here, selection="preprocess", home=tmp_path / "here"))
    found = contents(tmp_path / "here")
    assert contents(tmp_path / "there") == found
    # Parts were missing still when the nodes were killed.
    assert all(done < sum(stage == f"{each}.parts" for stage, _ in found) for each, done in killed)


@pytest.mark.slow("nodes that share an object store and no folder; they fetch what they read")
def test_nodes_without_a_common_folder_share_an_object_store(tmp_path, monkeypatch):
    launch(Launch(pipeline=pipeline_on(tmp_path / "here"), home=tmp_path / "here"))
    homes = {number: {"GRAPHMILL_HOME": str(tmp_path / f"node-{number}")} for number in range(2)}
    with served() as endpoint:
        for name, value in new_bucket(endpoint).items():
            monkeypatch.setenv(name, value)
        with kept_nodes(2, homes, num_cpus=1, memory=2 << 30) as nodes:
            launch(Launch(pipeline=pipeline_on(tmp_path / "there", nodes.address), home=tmp_path / "there"))
        here, there = contents(tmp_path / "here"), contents(tmp_path / "there")
        each = [contents(Path(home["GRAPHMILL_HOME"])) for home in homes.values()]
    # Each node built parts of its own and fetched what they read, and the home of the command has neither fetched nor built a part.
    assert all({"samples.parts", "packed_chunks.parts", "features"} <= {stage for stage, _ in found} for found in each)
    assert "packed_chunks.parts" not in {stage for stage, _ in there}
    shared = there | each[0] | each[1]
    assert {address: shared[address] for address in here} == here


def test_a_run_from_the_ui_takes_the_cluster_of_the_file(tmp_path):
    """Its steps ask the cluster that [run] names, and say which one does not answer."""
    pipeline = pipeline_on(tmp_path, "127.0.0.1:9")
    definitions = build_defs([pipeline], surroundings(tmp_path / "home"))
    result = definitions.resolve_job_def("spread__preprocess").execute_in_process(raise_on_error=False)
    failed = {
        event.step_key: event.step_failure_data.user_failure_data.description
        for event in result.all_events
        if event.is_step_failure
    }
    assert list(failed) == ["spread__samples"] and "no Ray cluster answers at 127.0.0.1:9" in failed["spread__samples"]


def test_an_address_that_names_no_cluster_is_refused_with_its_line(tmp_path):
    with pytest.raises(InputError, match=r"spread.toml:\d+: on: 'nowhere' names no cluster"):
        pipeline_on(tmp_path, "nowhere")
    with pytest.raises(InputError, match=r"'nowhere' names no cluster(?s:.*)write auto"):
        launch(Launch(pipeline=pipeline_on(tmp_path), home=tmp_path, on="nowhere"))


def test_memory_of_nodes_is_not_asked_of_this_machine(tmp_path, monkeypatch):
    from graphmill.jobs.commands.pipelines import needs

    monkeypatch.setattr(needs, "memory_bytes", lambda: 1 << 20)
    found = needs.pipeline_needs(pipeline_on(tmp_path, "auto"), tmp_path / "home")
    assert found.elsewhere == {"samples", "packed_chunks", "shared"}
    said = list(found.lines())
    assert "on the nodes of the cluster auto, whose memory counts: packed_chunks, samples, shared" in said
    assert not [line for line in said if line.startswith(("note: shared", "note: samples"))]
    assert needs.pipeline_needs(pipeline_on(tmp_path), tmp_path / "home").elsewhere == frozenset()
