import os
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.assets.building.materialize import materialize
from graphmill.assets.storage.local.collect import collect, find_garbage
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.building.toy_stage import Execution, Semantic, ToyStage
from tests.assets.storage.tiny_artifacts import address, present, put


def collect_all(store, keep):
    return collect(store, find_garbage(store, keep))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home")


def test_the_newest_and_all_they_refer_to_stay(store):
    graphs = [put(store, "graph", number) for number in range(3)]
    samples = [put(store, "samples", 0, [graphs[0]]), put(store, "samples", 1, [graphs[1]])]
    models = [put(store, "model", 0, [samples[1]], day=9), put(store, "model", 1, [samples[0]], day=5)]
    garbage = find_garbage(store, 1)
    assert [item.address for item in garbage.artifacts] == [address(models[1]), address(samples[0]), address(graphs[0])]
    assert {item.address: item.why for item in garbage.kept} == {
        address(graphs[2]): "one of the newest 1 of stage graph",
        address(models[0]): "one of the newest 1 of stage model",
        address(samples[1]): "one of the newest 1 of stage samples",
        address(graphs[1]): "read by an artifact that is kept",
    }
    sizes = [
        sum(file.stat().st_size for file in store.root.joinpath(*item.address).iterdir()) for item in garbage.artifacts
    ]
    assert garbage.num_bytes == sum(sizes) and present(store) >= {item.address for item in garbage.artifacts}
    words = []
    assert collect(store, garbage, lambda item, word: words.append(word)) == sum(sizes) and words == ["removed"] * 3
    assert present(store) == {item.address for item in garbage.kept}
    assert all(artifact.verify() == [] for artifact in store.artifacts()) and os.listdir(store.root / ".staging") == []
    assert find_garbage(store, 1).num_bytes == 0


def test_keep_counts_by_time_of_building_and_zero_keeps_what_is_leased(store):
    late, early = put(store, "graph", 1, day=9), put(store, "graph", 2, day=8)
    assert [item.address for item in find_garbage(store, 1).artifacts] == [address(early)]
    assert find_garbage(store, 2).artifacts == ()
    with store.lease(address(late)):
        collect_all(store, 0)
    assert present(store) == {address(late)}
    collect_all(store, 0)
    assert present(store) == set() and os.listdir(store.leases.folder) == []
    with pytest.raises(InputError, match="keep = -1 is negative"):
        find_garbage(store, -1)


def test_each_table_and_seed_and_each_pipeline_has_its_own_newest(store):
    """Eight pipelines in one home: keeping one version keeps one of each."""
    graphs = [put(store, "graph", number, asked_by=f"p{number % 2}/graph") for number in range(4)]
    models = [
        put(
            store, "model", number, [graphs[number % 2]], asked_by=f"p{number % 2}/sage", train={}, seed=number // 2 % 2
        )
        for number in range(8)
    ]
    garbage = find_garbage(store, 1)
    kept = {item.address: item.why for item in garbage.kept}
    assert {each for each in kept if each[0] == "model"} == {address(model) for model in models[4:]}
    assert {each for each in kept if each[0] == "graph"} == {address(graph) for graph in graphs}
    assert kept[address(models[7])] == "one of the newest 1 of p1/sage, seed 1"
    assert kept[address(graphs[2])] == "one of the newest 1 of p0/graph"
    assert kept[address(graphs[0])] == "read by an artifact that is kept"
    assert {item.about for item in garbage.artifacts} == {f"p{p}/sage, seed {s}" for p in (0, 1) for s in (0, 1)}


def test_an_artifact_without_its_run_record_is_as_old_as_its_folder(store):
    lost, other = put(store, "graph", 1), put(store, "graph", 2)
    (lost.path / "run.json").unlink()
    assert [item.address for item in find_garbage(store, 1).artifacts] == [address(other)]
    os.utime(lost.path, (0, 0))
    assert [item.address for item in find_garbage(store, 1).artifacts] == [address(lost)]


def test_damaged_folders_go_unless_something_kept_refers_to_them(store):
    needed, useless, unreadable = (put(store, "graph", number) for number in range(3))
    hidden = put(store, "raw", 7)
    through = put(store, "samples", 1, [hidden])
    put(store, "model", 1, [needed, through])
    for artifact in (needed, useless, through):
        (artifact.path / "values.npy").write_bytes(b"")
    (unreadable.path / "manifest.json").write_text("{")
    newer = put(store, "raw", 8)
    garbage = find_garbage(store, 1)
    assert {item.address for item in garbage.artifacts} == {address(useless), address(unreadable)}
    assert all(item.why.startswith("damaged: ") for item in garbage.artifacts)
    why = {item.address: item.why for item in garbage.kept}
    assert "read by an artifact that is kept; damaged: values.npy has 0 bytes" in why[address(needed)]
    assert why[address(hidden)] == "read by an artifact that is kept" and address(newer) in why
    collect(store, garbage)
    assert address(useless) not in present(store) and address(needed) in present(store)


def test_a_damaged_folder_that_was_repaired_meanwhile_stays(store):
    graph = put(store, "graph", 1)
    (graph.path / "manifest.json").write_text("{")
    garbage = find_garbage(store, 5)
    assert [item.address for item in garbage.artifacts] == [address(graph)]
    put(store, "graph", 1)
    assert collect(store, garbage) == 0 and store.open(*address(graph)).verify() == []


def test_checkpoints_stay_when_a_run_could_resume_from_them(store):
    published, leftover = put(store, "model", 1), put(store, "model", 2)
    unfinished, running = ("model", "a" * 64), ("model", "b" * 64)
    folder = store.home / "checkpoints"
    folder.mkdir()
    for version in (leftover.version, unfinished[1], running[1]):
        (folder / f"{version}.safetensors").write_bytes(b"12345")
    os.utime(folder / f"{leftover.version}.safetensors", (0, 0))  # before its model was published
    (folder / f"{unfinished[1]}.safetensors.77.part").write_bytes(b"123")
    (folder / f"{running[1]}.safetensors.78.part").write_bytes(b"1234")
    (folder / "mine.safetensors").write_bytes(b"1")
    with store.lease(running):
        garbage = find_garbage(store, 2)
        assert {item.checkpoint.name: item.why for item in garbage.unfinished} == {
            f"{unfinished[1]}.safetensors": "unfinished run: --resume goes on from it",
            f"{running[1]}.safetensors": "its training is running",
            f"{running[1]}.safetensors.78.part": "its training is running",
        }
        assert {item.checkpoint.name: item.why for item in garbage.left} == {
            f"{leftover.version}.safetensors": "its model is published",
            f"{unfinished[1]}.safetensors.77.part": "half written by a process that is gone",
        }
        with store.lease(unfinished):  # its training begins before the garbage is removed
            assert collect(store, garbage) == 5
        assert collect(store, find_garbage(store, 2)) == 3
    assert sorted(path.name[:4] for path in folder.iterdir()) == ["aaaa", "bbbb", "bbbb", "mine"]
    assert present(store) == {address(published), address(leftover)}


def test_the_checkpoint_of_an_interrupted_retraining_stays(store):
    """It has the version of the model that it was to replace, and is younger."""
    model, folder = put(store, "model", 1), store.home / "checkpoints"
    folder.mkdir()
    path = folder / f"{model.version}.safetensors"
    path.write_bytes(b"12345")
    os.utime(path, (time.time() + 60,) * 2)
    garbage = find_garbage(store, 2)
    assert [item.why for item in garbage.unfinished] == ["unfinished run of --retrain: --resume goes on from it"]
    os.utime(path, (0, 0))
    garbage = find_garbage(store, 2)
    assert [item.checkpoint for item in garbage.left] == [path]
    # A training that begins and is interrupted before the garbage is removed.
    path.write_bytes(b"another")
    assert collect(store, garbage) == 0 and path.exists()


def test_a_lease_taken_after_the_listing_spares_the_artifact_and_its_inputs(store):
    graph = put(store, "graph", 1)
    samples = put(store, "samples", 1, [graph])
    other = put(store, "samples", 2)
    garbage, spared = find_garbage(store, 0), []
    with store.lease(address(samples)):
        collect(store, garbage, lambda item, word: word == "spared" and spared.append(item.address))
    assert spared == [address(samples), address(graph)] and address(other) not in present(store)


def test_an_artifact_published_after_the_listing_spares_its_inputs(store):
    graph = put(store, "graph", 1)
    samples = put(store, "samples", 1, [graph])
    garbage = find_garbage(store, 0)
    model = put(store, "model", 1, [samples])
    assert collect(store, garbage) == 0
    assert present(store) == {address(graph), address(samples), address(model)}


def test_a_second_collector_is_no_error(store):
    for number in range(4):
        put(store, "graph", number)
    listings = [find_garbage(store, 1) for _ in range(2)]
    collect(store, listings[0])
    collect(store, listings[1])
    assert len(present(store)) == 1


class Chained(ToyStage):
    """Reads a toy, waits for the collector to try, and reads all of it again."""

    name = "chained"

    def __init__(self, meanwhile):
        super().__init__()
        self.meanwhile = meanwhile

    def inputs(self, semantic):
        return {"toy": "toy"}

    def build(self, building):
        self.meanwhile()
        assert building.inputs["toy"].verify() == []
        return super().build(building)


def test_an_input_that_is_to_be_collected_is_whole_to_the_end_of_the_build(store):
    toy = materialize(store, ToyStage(), Semantic(), Execution(), {})
    garbage, freed = find_garbage(store, 0), []
    assert [item.address for item in garbage.artifacts] == [address(toy)]
    again = materialize(store, ToyStage(), Semantic(), Execution(), {})
    stage = Chained(lambda: freed.append(collect(store, garbage)))
    made = materialize(store, stage, Semantic(), Execution(), {"toy": again})
    assert again.reused and freed == [0] and made.verify() == []
    assert collect(store, garbage) == 0  # it is an input of what was published


def test_jobs_and_a_collector_at_the_same_time_never_see_half_an_artifact(store):
    """Jobs reuse and rebuild one artifact while a collector removes it as often as it can."""
    stop, problems, built, gone = threading.Event(), [], [], []

    def job(number):
        for round_number in range(12):
            toy = materialize(store, ToyStage(), Semantic(), Execution(), {})
            semantic = Semantic(rows=6 + 12 * number + round_number)
            try:
                made = materialize(store, Chained(lambda: None), semantic, Execution(), {"toy": toy})
                built.append(made.version)
            except InputError as error:
                # Whole before the lease or gone before the lease; nothing in between.
                if "was removed or damaged meanwhile" not in str(error):
                    problems.append(error)
                gone.append(number)
            except BaseException as error:
                problems.append(error)

    def collector():
        while not stop.is_set():
            try:
                collect_all(store, 0)
            except BaseException as error:
                problems.append(error)

    jobs = [threading.Thread(target=job, args=(number,)) for number in range(2)]
    sweeper = threading.Thread(target=collector)
    for thread in (*jobs, sweeper):
        thread.start()
    for thread in jobs:
        thread.join()
    stop.set()
    sweeper.join()
    assert problems == [] and len(built) + len(gone) == 24 and built
    collect_all(store, 0)
    assert present(store) == set() and os.listdir(store.leases.folder) == []


@st.composite
def stores(draw):
    """(artifacts as (stage, input numbers, day, damaged), keep, leased numbers)."""
    artifacts = []
    for index in range(draw(st.integers(1, 7))):
        inputs = draw(st.lists(st.integers(0, index - 1), max_size=2, unique=True)) if index else []
        stage = draw(st.sampled_from(["graph", "model"]))
        artifacts.append((stage, inputs, draw(st.integers(0, 3)), draw(st.integers(0, 5)) == 0))
    leased = draw(st.sets(st.integers(0, len(artifacts) - 1), max_size=2))
    late = draw(st.sets(st.integers(0, len(artifacts) - 1), max_size=1))
    return artifacts, draw(st.integers(0, 2)), leased, late


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stores())
def test_nothing_that_is_kept_or_leased_loses_what_it_refers_to(drawn):
    """The law: over any lineage, any `keep`, leases before and after the listing, and damage."""
    artifacts, keep, leased, late = drawn
    folder = Path(tempfile.mkdtemp())
    try:
        store, made = Store(folder), []
        for index, (stage, inputs, day, _) in enumerate(artifacts):
            made.append(put(store, stage, index, [made[each] for each in inputs], day))
        for artifact, (_, _, _, damaged) in zip(made, artifacts, strict=True):
            if damaged:
                (artifact.path / "values.npy").unlink()
        with ExitStack() as stack:
            stack.enter_context(store.lease(*(address(made[each]) for each in leased)))
            garbage = find_garbage(store, keep)
            stack.enter_context(store.lease(*(address(made[each]) for each in late)))
            freed = collect(store, garbage)
            left = present(store)
            for number, artifact in enumerate(made):
                if number in leased | late:
                    assert address(artifact) in left
                if address(artifact) in left:
                    assert all((entry["stage"], entry["version"]) in left for entry in artifact.inputs.values())
            for stage in ("graph", "model"):
                rows = [
                    (day, made[n].version) for n, (s, _, day, bad) in enumerate(artifacts) if s == stage and not bad
                ]
                assert {(stage, version) for _, version in sorted(rows)[len(rows) - min(keep, len(rows)) :]} <= left
            assert freed == garbage.num_bytes or late
            assert find_garbage(store, keep).num_bytes == 0 and present(store) == left
    finally:
        shutil.rmtree(folder)
