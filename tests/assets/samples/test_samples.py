"""Stored samples: what the online sampler draws, byte for byte, at any number of threads and processes; every damage shows."""

import os
import shutil
import tracemalloc

import numpy as np
import pytest

from graphmill.assets.building.stage import Building, Silent
from graphmill.assets.graph.read import open_graph
from graphmill.assets.samples.config import BatchRange, SamplesConfig, SamplesExecution, epoch_plan
from graphmill.assets.samples.read import open_samples
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.storage.local.artifact import read_artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.epoch_plan import evaluation_plan
from graphmill.kernels.sampling.sample import Sampler
from tests.assets.samples.sampled import CONFIG, build_samples, contents
from tests.assets.storage.damage import flip
from tests.kernels.graphs import assert_same_blocks
from tests.trainers.graphs import random_graph_artifacts

pytestmark = pytest.mark.usefixtures("drawn")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def by_epochs(home):
    """The samples of one, two and three epochs; nobody may change them."""
    return {epochs: build_samples(home, epochs=epochs) for epochs in (1, 2, 3)}


@pytest.fixture(scope="module")
def made(by_epochs):
    return by_epochs[3]


def copy_of(artifact, home):
    """The same samples in another store, to be damaged."""
    shutil.copytree(artifact.path.parents[2], home)
    return read_artifact(home / artifact.path.relative_to(artifact.path.parents[2]))


@pytest.fixture(scope="module")
def graph(made):
    return open_graph(read_artifact(made.path.parent.parent / "graph" / made.inputs["graph"]["version"]))


def test_stored_batches_are_the_samplers(made, graph):
    samples, sampler = open_samples(made), Sampler(graph.topology, CONFIG["fanouts"], seed=5)
    plan = epoch_plan(SamplesConfig(**CONFIG), graph.train_ids)
    assert (samples.num_epochs, samples.num_batches) == (3, 7) and len(made.parts) > 6
    for epoch in range(3):
        for item in plan.batches(epoch):
            seeds, blocks = samples.batch(epoch, item.key.step)
            np.testing.assert_array_equal(seeds, item.seeds)
            assert_same_blocks(blocks, sampler.sample(item.key, item.seeds, transpose="none"))


@pytest.mark.parametrize(("threads", "workers"), [(2, 1), (8, 1), (2, 2)])
def test_bytes_are_equal_at_any_number_of_threads_and_processes(tmp_path, by_epochs, threads, workers):
    assert contents(build_samples(tmp_path, epochs=2, threads=threads, workers=workers)) == contents(by_epochs[2])


@pytest.mark.parametrize("epochs", [1, 3])
def test_numbers_and_counts_are_exact(by_epochs, epochs):
    made = by_epochs[epochs]
    visits, inputs, edges = np.zeros(400, np.int64), [], []
    for record in open_samples(made).records():
        np.add.at(visits, record.blocks[0].src_ids, 1)
        inputs.append(len(record.blocks[0].src_ids))
        edges.append([block.num_edges for block in record.blocks])
    numbers, samples = made.summary["numbers"], open_samples(made)
    np.testing.assert_array_equal(samples.access_counts(), visits)
    np.testing.assert_array_equal(samples.num_edges, edges)
    assert numbers["inputs_a_batch"] == {"min": min(inputs), "mean": sum(inputs) / len(inputs), "max": max(inputs)}
    assert numbers["num_accesses"] == sum(inputs) and numbers["num_accessed_nodes"] == np.count_nonzero(visits)
    assert numbers["num_epochs"] == epochs and numbers["num_batches"] == 7
    top = np.sort(visits)[::-1]
    assert numbers["hottest_nodes_access_ratio"]["10%"] == pytest.approx(top[:40].sum() / visits.sum())
    assert numbers["sample_bytes"] == sum(
        os.path.getsize(made.open_part(name).file("batches.npy")) - 4096 for name in made.parts
    )
    assert {check["name"]: check["passed"] for check in made.summary["checks"]} == {
        "blocks are sound": True,
        "input ids are unique": True,
        "every seed once an epoch": True,
    }
    measured = {check["name"]: check["numbers"] for check in made.summary["checks"]}
    assert measured["blocks are sound"] == {"batches that fail": 0, "batches": 7 * epochs}
    seeds = measured["every seed once an epoch"]
    assert seeds == {"epochs with other seeds": 0, "allowed with other seeds": 0, "seeds per epoch": 200}
    assert f"among its {sum(inputs):,} inputs" in made.summary["checks"][1]["detail"]
    (figure,) = made.summary["figures"].values()
    assert 1000 < made.file(figure).stat().st_size < 100_000


def test_batches_of_evaluations_are_stored_behind_the_epochs_and_count_no_visit(tmp_path, by_epochs):
    made, plain = build_samples(tmp_path, epochs=2, evaluate=True), open_samples(by_epochs[2])
    graph, samples = open_graph(Store(tmp_path).resolve(f"graph/{made.inputs['graph']['version']}")), open_samples(made)
    sampler = Sampler(graph.topology, CONFIG["fanouts"], seed=5)
    assert (samples.num_epochs, samples.num_batches) == (2, 7) and samples.num_stored > 14
    for epoch, ids in ((2, graph.valid_ids), (3, graph.test_ids)):
        planned = list(evaluation_plan(np.array(ids), 32, 5).batches(0))
        assert len(planned) == samples.starts[epoch + 1] - samples.starts[epoch] > 1
        for item in planned:
            seeds, blocks = samples.batch(epoch, item.key.step)
            np.testing.assert_array_equal(seeds, item.seeds)
            assert_same_blocks(blocks, sampler.sample(item.key, item.seeds, transpose="none"))
    assert all(samples.bytes(*divmod(n, 7)).tobytes() == plain.bytes(*divmod(n, 7)).tobytes() for n in range(14))
    assert [samples.place_of(number) for number in (0, 13, 14)] == [(0, 0), (1, 6), (2, 0)]
    np.testing.assert_array_equal(samples.access_counts(), plain.access_counts())
    counted = (
        "num_epochs",
        "num_batches",
        "num_accesses",
        "inputs_a_batch",
        "edges_a_batch",
        "hottest_nodes_access_ratio",
    )
    numbers, others = made.summary["numbers"], by_epochs[2].summary["numbers"]
    assert {name: numbers[name] for name in counted} == {name: others[name] for name in counted}
    assert numbers["num_evaluation_batches"] == samples.num_stored - 14
    assert all(check["passed"] for check in made.summary["checks"])
    seeds = made.summary["checks"][-1]
    assert "in 4 of 4 sampling epochs; the last two" in seeds["detail"]


def test_a_graph_without_validation_nodes_has_no_batches_of_them(tmp_path):
    graph = random_graph_artifacts(tmp_path, num_valid=0).graph
    samples = open_samples(build_samples(tmp_path, graph=graph, evaluate=True))
    assert samples.starts.tolist() == [0, 7, 7, 11] and samples.place_of(7) == (2, 0)
    with pytest.raises(InputError, match="batch 0 of epoch 1 is not in"):
        samples.batch(1, 0)


def test_more_epochs_hold_the_same_first_ones(by_epochs):
    one, three = (open_samples(by_epochs[epochs]) for epochs in (1, 3))
    for step in range(7):
        assert one.bytes(0, step).tobytes() == three.bytes(0, step).tobytes()
    assert one.bytes(0, 0).tobytes() != three.bytes(1, 0).tobytes()


def test_records_start_on_pages(made):
    samples = open_samples(made)
    assert not (samples.offsets % 4096).any() and not (samples.num_bytes % 4096).any()


def test_epochs_without_batches_are_refused(tmp_path, by_epochs):
    with pytest.raises(InputError, match=r"samples of 0 epochs: set `reuse`"):
        SamplesConfig(**(CONFIG | {"epochs": 0}))
    graph = random_graph_artifacts(tmp_path, num_train=0).graph
    with pytest.raises(InputError, match="has no training nodes, so an epoch of samples would be empty"):
        build_samples(tmp_path, graph=graph)
    with pytest.raises(InputError, match=r"batch 7 of epoch 0 is not in samples/\w+, which has 1 epochs of 7 batches"):
        open_samples(by_epochs[1]).batch(0, 7)


def test_parts_cover_every_batch_once(made, graph):
    runs = [BatchRange.of(name) for name in made.parts]
    assert [run.name for run in runs] == list(made.parts)
    steps = [(run.epoch, step) for run in runs for step in range(run.low, run.high)]
    assert steps == [(epoch, step) for epoch in range(3) for step in range(7)]


def test_a_flipped_bit_and_a_cut_are_found_by_the_reader_and_by_verify(tmp_path, by_epochs):
    made = copy_of(by_epochs[2], tmp_path / "home")
    samples = open_samples(made)
    draw = np.random.default_rng(3)
    for _ in range(12):
        epoch, step = int(draw.integers(2)), int(draw.integers(7))
        place = epoch * 7 + step
        path = samples.files[int(samples.part_of[place])]
        bit = int(draw.integers(8 * samples.num_bytes[place])) + 8 * int(samples.offsets[place])
        flip(path, bit)
        with pytest.raises(
            InputError, match=rf"batch {step} of epoch {epoch} of samples/\w+ is damaged(?s:.*)graphmill repair samples"
        ):
            samples.batch(epoch, step)
        part = next(part for part in map(made.open_part, made.parts) if part.path == path.parent)
        assert any("batches.npy" in problem for problem in part.verify())
        flip(path, bit)
    assert samples.batch(1, 6)
    path = samples.files[max(samples.files)]
    os.truncate(path, path.stat().st_size - 4096)
    with pytest.raises(InputError, match=r"batch 6 of epoch 1 .* is damaged: .* ends \d+ bytes too early"):
        samples.batch(1, 6)
    with pytest.raises(InputError, match=r"part epoch-1-batches-\d-6 of samples/\w+ .* is damaged: batches.npy has"):
        open_samples(made)
    assert contents(build_samples(tmp_path / "home", epochs=2)) == contents(by_epochs[2])


def test_edge_ids_types_and_weights_are_stored_where_the_graph_has_them(tmp_path):
    from graphmill.assets.building.stage import Summary
    from graphmill.assets.storage.names.version import version_of
    from graphmill.assets.storage.store import Store

    plain = random_graph_artifacts(tmp_path).graph
    count = plain.files["indices.npy"]["shape"][0]
    more = {"weights": np.linspace(1, 2, count, dtype=np.float32), "edge_types": np.arange(count).astype(np.uint8)}
    more["edge_ids"] = np.arange(count, dtype=np.int64)[::-1]
    with Store(tmp_path).writer("graph", version_of("graph", 0, {"typed": True}, {}, {})) as writer:
        for name in plain.files:
            writer.save(name.removesuffix(".npy"), plain.array(name.removesuffix(".npy")))
        for name, values in more.items():
            writer.save(name, values)
        typed = writer.publish({}, {}, Summary(numbers=dict(plain.summary["numbers"])), {})
    topology = open_graph(typed).topology
    seeds, blocks = open_samples(build_samples(tmp_path, graph=typed)).batch(0, 3)
    item = list(epoch_plan(SamplesConfig(**CONFIG), open_graph(typed).train_ids).batches(0))[3]
    expected = Sampler(topology, CONFIG["fanouts"], seed=5).sample(item.key, seeds, transpose="none", edge_ids=True)
    assert_same_blocks(blocks, expected, ("start", "indices", "src_ids", "weight", "edge_type", "edge_id"))
    assert blocks[0].edge_id is not None and blocks[0].weight is not None


def test_progress_counts_batches(tmp_path):
    from tests.assets.building.test_parts import Sum

    progress = Sum()
    build_samples(tmp_path, progress, epochs=2)
    assert [(total, unit) for _, total, unit in progress.started] == [(14, "batches"), (14, "batches")]
    assert progress.total == 28


def building(inputs, semantic, writer, part=""):
    execution = SamplesExecution(threads=1)
    return Building(inputs=inputs, semantic=semantic, execution=execution, writer=writer, progress=Silent(), part=part)


def test_the_index_holds_the_sums_of_one_part_at_a_time(tmp_path):
    """Peak memory of the parent: 32 N, 16 bytes a seed of an epoch and 100 a batch, here held against what Python and NumPy allocate."""
    from graphmill.assets.samples.build_index import build_index

    nodes = 20_000
    graph = random_graph_artifacts(tmp_path, num_nodes=nodes, num_edges=600_000, num_train=200).graph
    more = {"epochs": 16, "fanouts": (20, 20), "part_bytes": 10_000_000}
    made = build_samples(tmp_path, graph=graph, **more)
    inputs = {"graph": graph} | {name: made.open_part(name) for name in made.parts}
    semantic = SamplesConfig(**(CONFIG | more))

    def build():
        with Store(tmp_path).writer("samples", "0" * 64) as writer:
            build_index(building(inputs, semantic, writer), list(made.parts))

    build()  # imports and caches
    tracemalloc.start()
    build()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    stored = made.summary["numbers"]["sample_bytes"]
    figure = 4 << 20  # what drawing takes
    assert peak <= 32 * nodes + 16 * 200 + 200 * 112 + figure < stored


def test_a_part_holds_a_few_batches_at_a_time(tmp_path):
    """Peak memory of a part: T x (12 N + 3 R) + 4 R + 4 N, here with one thread, held against what NumPy allocates.

    At the end 20 bytes each of up to 131,072 nodes are added.
    """
    nodes = 20_000
    graph = random_graph_artifacts(tmp_path, num_nodes=nodes, num_edges=600_000, num_train=400).graph
    semantic = SamplesConfig(**(CONFIG | {"fanouts": (20, 20), "batch_size": 4, "part_bytes": 2**40}))
    (name,) = SAMPLES.parts({"graph": graph}, semantic)

    def build():
        with Store(tmp_path).writer("samples.parts", "0" * 64) as writer:
            SAMPLES.build_part(building({"graph": graph}, semantic, writer, name))
            return (writer.path("batches.npy")).stat().st_size, int(np.diff(np.load(writer.path("bounds.npy"))).max())

    build()
    tracemalloc.start()
    stored, largest = build()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 24 * nodes + 7 * largest + 150_000 < stored


def test_work_is_the_batches_of_a_part():
    assert SAMPLES.work({}, None, "epoch-2-batches-5-9") == 5


def test_a_batch_is_asked_for_ahead_by_its_own_range(made, tmp_path, monkeypatch):
    samples, asked = open_samples(made), []

    def advised(descriptor, offset, length, advice):
        asked.append((os.readlink(f"/proc/self/fd/{descriptor}"), offset, length, advice))
        raise OSError("advice is not taken here")

    monkeypatch.setattr(os, "posix_fadvise", advised)
    place = 2 * samples.num_batches + 3
    samples.will_read(2, 3)
    path = str(samples.files[int(samples.part_of[place])].resolve())
    assert asked == [(path, samples.offsets[place], samples.record_bytes(2, 3), os.POSIX_FADV_WILLNEED)]
    samples.batch(2, 3)
    with pytest.raises(InputError, match="batch 7 of epoch 2 is not in"):
        samples.will_read(2, 7)
    samples.files = dict.fromkeys(samples.files, tmp_path / "missing")
    samples.will_read(2, 3)  # whoever reads it will say so
    assert len(asked) == 1
