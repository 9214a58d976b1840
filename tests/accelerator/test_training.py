"""A training on an accelerator: the CPU's weights within rounding, the same bits every time, nothing unbooked crosses."""

import gc
import json
import threading
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from graphmill.kernels.errors import InputError
from graphmill.trainers.loop.executor import BatchGradient
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.techniques.fresh.batches import PrunedSource
from graphmill.trainers.techniques.fresh_factored.settings import FreshFactoredSettings
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers.runs import DRAWN, content, train_fresh, train_packed, train_small

MODELS = ("sage", "gcn", "gat", "gin")
OPTIONS = {"gat": {"heads": 2, "attention_dropout": 0.3}}
MEMORY = {"device": "2KiB", "host": "3KiB", "seed": 3}


def options(model):
    own = {"aggregator": "gcn"} if model == "mean with self" else {"model": model}
    return own | {"epochs": 2, "dropout": 0.3, "norm": "layer", **OPTIONS.get(model, {})}


def weights(artifact):
    return load(artifact.file("weights.safetensors").read_bytes())


def assert_close(found, expected):
    """Norm-wise: Adam divides by the size of a gradient, so an element whose gradient is rounding noise may step either way."""
    for name, values in weights(expected).items():
        difference = np.linalg.norm(weights(found)[name] - values)
        assert difference <= 1e-4 * np.linalg.norm(values) + 1e-5 * np.sqrt(values.size), name


def moves(rows, link):
    """kind -> bytes over a link."""
    found = {}
    for row in rows:
        if row["link"] == link:
            found[row["kind"]] = found.get(row["kind"], 0) + row["moved_bytes"]
    return found


def assert_drawn_there(found, by_cpu, crossed, topology):
    """A device that draws the batches ends with the bits of samplers of the CPU, and every byte is booked."""
    assert found.version == by_cpu.version
    for file in ("weights.safetensors", "metrics.jsonl"):
        assert found.files[file]["digest"] == by_cpu.files[file]["digest"]
    read = moves(json.loads(found.file("ledger.json").read_text())["moves"], "h2d").get("topology", 0)
    kinds = ("topology", "ids", "label") if topology == "uva" else ("ids", "label")
    assert_booked(found, crossed, kinds, pulled=read)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("memory", [None, MEMORY], ids=["table", "cache"])
def test_minibatch_ends_with_the_weights_of_the_cpu(tmp_path, place, model, memory):
    on_cpu = train_small(tmp_path / "cpu", memory=memory, **options(model))
    place.begin()
    found = train_small(tmp_path / "one", memory=memory, device="cuda", **options(model))
    crossed = place.crossed()
    assert found.version != on_cpu.version
    assert_close(found, on_cpu)
    again = train_small(tmp_path / "two", memory=memory, device="cuda", **options(model))
    assert content(found) == content(again)
    assert_booked(found, crossed)


def assert_booked(model, crossed, kinds=("topology", "ids", "label"), pulled=0):
    """Every byte that was copied is on a line: of the batches' ledger, or of what crosses besides.

    Args:
        model: that was trained.
        crossed: what a device counted.
        kinds: that batches send.
        pulled: bytes of these kinds that kernels read over the bus, which is booked and not copied.
    """
    batches = json.loads(model.file("ledger.json").read_text())["moves"]
    besides = model.run_record()["traffic_besides_batches"]
    # Rows of features of a batch are read over the bus by a kernel, not copied.
    sent = {kind: n for kind, n in moves(batches, "h2d").items() if kind != "feature"}
    assert sent.keys() == set(kinds)
    assert crossed.h2d_bytes + pulled == sum(sent.values()) + sum(moves(besides, "h2d").values())
    assert crossed.d2h_bytes == sum(moves(batches, "d2h").values()) + sum(moves(besides, "d2h").values())


@pytest.mark.parametrize("features", ["mapped", "memory"])
def test_where_features_lie_changes_no_bit(tmp_path, place, features):
    one = train_small(tmp_path / "one", device="cuda", **options("sage"))
    found = train_small(
        tmp_path / "two", device="cuda", features=features, memory=MEMORY | {"host": "64KiB"}, **options("sage")
    )
    assert weights(one).keys() == weights(found).keys()
    assert one.files["weights.safetensors"]["digest"] == found.files["weights.safetensors"]["digest"]


@pytest.mark.parametrize("topology", ["uva", "device"])
@pytest.mark.parametrize("model", (*MODELS, "mean with self"))
def test_who_samples_changes_no_bit(tmp_path, place, model, topology):
    by_cpu = train_small(tmp_path / "host", device="cuda", **options(model))
    place.begin()
    memory, features = (None, "memory") if model == "gin" else (MEMORY | {"host": "64KiB"}, "memory")
    memory, features = (MEMORY, "mapped") if model == "gcn" else (memory, features)
    found = train_small(
        tmp_path / topology, device="cuda", topology=topology, memory=memory, features=features, **options(model)
    )
    crossed = place.crossed()
    assert found.version == by_cpu.version
    assert found.files["weights.safetensors"]["digest"] == by_cpu.files["weights.safetensors"]["digest"]
    assert found.files["metrics.jsonl"]["digest"] == by_cpu.files["metrics.jsonl"]["digest"]
    if topology == "device":
        assert_booked(found, crossed, ("ids", "label"))
    else:  # what a kernel reads over the bus is booked and not copied
        read = moves(json.loads(found.file("ledger.json").read_text())["moves"], "h2d")["topology"]
        assert_booked(found, crossed, pulled=read)


@pytest.mark.parametrize("topology", ["uva", "device"])
@pytest.mark.parametrize(("name", "model"), [("weighted", "sage"), ("weighted", "gcn"), ("walks", "pinsage")])
def test_who_draws_by_weight_and_by_walks_changes_no_bit(tmp_path, place, name, model, topology):
    how: dict[str, Any] = {"device": "cuda", "sampling": DRAWN[name][0], "features": "memory", **options(model)}
    by_cpu = train_small(tmp_path / "host", **how)
    place.begin()
    found = train_small(tmp_path / topology, topology=topology, **how)
    crossed = place.crossed()
    assert_drawn_there(found, by_cpu, crossed, topology)


@pytest.mark.parametrize("wrong", [{"device": "cpu"}, {"device": "cuda", "samples": "stored"}])
def test_who_samples_is_asked_of_a_device_alone(wrong):
    with pytest.raises(InputError, match='topology = "uva", but trainer = "minibatch"'):
        TrainTable(name="a", topology="uva", **wrong)


@pytest.mark.parametrize("model", MODELS)
def test_disk_ends_with_the_bits_of_minibatch(tmp_path, place, model):
    packed = build_packed(tmp_path)
    on_cpu = train_packed(packed, tmp_path / "cpu", **options(model))
    place.begin()
    found = train_packed(packed, tmp_path / "disk", device="cuda", **options(model))
    crossed = place.crossed()
    assert_close(found, on_cpu)
    assert_booked(found, crossed)
    online = train_packed(packed, tmp_path / "online", trainer="minibatch", device="cuda", **options(model))
    assert found.files["weights.safetensors"]["digest"] == online.files["weights.safetensors"]["digest"]


def test_sampled_evaluation_and_linear_ends_run_on_the_device(tmp_path, place):
    more = {
        "eval": "sampled",
        "input": "linear",
        "head": "linear",
        "jk": "cat",
        "input_dropout": 0.2,
        "class_weights": "balanced",
    }
    on_cpu = train_small(tmp_path / "cpu", **options("sage"), **more)
    found = train_small(tmp_path / "one", device="cuda", **options("sage"), **more)
    assert_close(found, on_cpu)


def test_too_little_device_memory_is_one_message(tmp_path, place):
    gc.collect()  # what earlier tests left in cycles would be freed in the middle
    live = place.live_bytes()
    with pytest.raises(
        InputError, match=rf"(?s)on {place.name} .*out of memory.*remedy: raise `workspace`, or lower `batch_size`"
    ):
        train_small(tmp_path, device="cuda", workspace=f"{(live >> 10) + 8}KiB", **options("sage"))


def test_a_modelled_link_is_refused():
    with pytest.raises(InputError, match='link = "1 GB/s", but trainer = "minibatch" on a GPU has a link of its own'):
        TrainTable(name="a", device="cuda", link="1 GB/s")


EMBEDDINGS = [
    ("sage", {}, {"device": "2KiB", "host": "3KiB"}),
    ("sage", {"lookahead": 1, "arena": "30%", "policy": "performance+features", "t_stale": 6, "p_grad": 1.0}, None),
    ("gin", {"arena": "30%", "policy": "performance+features", "t_stale": 6, "p_grad": 1.0}, None),
    ("gcn", {"policy": "accuracy"}, None),
    ("gat", {"t_stale": "forever", "p_grad": 1.0}, {"device": "2KiB", "host": "3KiB"}),
]


@pytest.mark.parametrize(
    ("model", "settings", "memory"),
    [
        *EMBEDDINGS[:3],
        *(
            pytest.param(*each, marks=pytest.mark.slow("more models and settings of embeddings on a device"))
            for each in EMBEDDINGS[3:]
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_embeddings_of_earlier_steps_are_looked_up_and_pruned_on_the_device(tmp_path, place, model, settings, memory):
    """The CPU's weights, the CPU's counts, the same bits every time; lookups and pruning leave the device only as the ledger says."""
    kind = options(model) | {"fresh": settings, "memory": memory}
    on_cpu = train_fresh(tmp_path / "cpu", **kind)
    place.begin()
    found = train_fresh(tmp_path / "one", device="cuda", **kind)
    crossed = place.crossed()
    assert_close(found, on_cpu)
    assert content(found) == content(train_fresh(tmp_path / "two", device="cuda", **kind))
    assert_booked(found, crossed)
    expected, counted = (
        {(row["name"], row["layer"]): row["n"] for row in json.loads(each.file("ledger.json").read_text())["counts"]}
        for each in (on_cpu, found)
    )
    assert counted == expected and counted["history_hits", 1] > 0
    assert all(check["passed"] for check in found.summary["checks"] if check["name"] == "ledger equals plan")


def test_blocks_are_sent_while_the_batch_before_is_trained_on(tmp_path, place, monkeypatch):
    """The first step of an epoch waits until the second batch is on the device: pruning waits for the update, sending does not."""
    sent, send, compute = threading.Semaphore(0), PrunedSource._sent, BatchGradient.__call__

    def counted(self, *drawn):
        found = send(self, *drawn)
        sent.release()
        return found

    def late(self, batch, *more):
        if batch.position == 0:
            assert all(sent.acquire(timeout=60) for _ in range(2))
        return compute(self, batch, *more)

    monkeypatch.setattr(PrunedSource, "_sent", counted)
    monkeypatch.setattr(BatchGradient, "__call__", late)
    train_fresh(tmp_path, device="cuda", **options("sage") | {"epochs": 1})


def test_with_nothing_cached_a_device_gives_the_bits_of_minibatch(tmp_path, place):
    plain = train_small(tmp_path / "plain", device="cuda", **options("sage"))
    for number, settings in enumerate(({"p_grad": 0.0}, {"t_stale": 0, "policy": "accuracy"})):
        none = train_fresh(tmp_path / str(number), device="cuda", fresh=settings, **options("sage"))
        assert content(none)["weights.safetensors"] == content(plain)["weights.safetensors"]


@pytest.mark.parametrize("window", [None, 1], ids=["whole", "windows"])
def test_pruned_rows_come_from_packed_chunks_to_the_device(tmp_path, place, monkeypatch, window):
    packed = build_packed(tmp_path, epochs=2)
    if window is not None:
        monkeypatch.setattr("graphmill.trainers.techniques.fresh.settings.WINDOW_BYTES", window)
    place.begin()
    chunks = train_fresh(tmp_path / "chunks", packed=packed, device="cuda", **options("sage"))
    assert_booked(chunks, place.crossed())
    table = train_fresh(tmp_path / "table", packed=packed, device="cuda", fresh={"rows": "table"}, **options("sage"))
    assert content(chunks)["weights.safetensors"] == content(table)["weights.safetensors"]


@pytest.mark.parametrize("model", ["sage", "gat"])
@pytest.mark.parametrize("memory", [None, MEMORY], ids=["table", "cache"])
def test_samplers_of_the_cpu_and_one_trainer_end_with_the_bits_of_minibatch(tmp_path, place, model, memory):
    plain = train_small(tmp_path / "plain", memory=memory, device="cuda", **options(model))
    place.begin()
    settings = FactoredSettings(samplers=3)
    split = {"trainer": "factored", "settings": settings, "device": "cuda"}
    found = train_small(tmp_path / "split", memory=memory, **split, **options(model))
    assert_booked(found, place.crossed())
    assert content(found) == content(plain)
    record = found.run_record()["executors"]
    assert (record["samplers"], record["trainers"]) == (3, 1) and record["trained_by"].keys() == {"trainer 0"}


@pytest.mark.parametrize("split", [{"trainers": 2}, {"sharing": "time"}])
def test_a_history_is_on_one_device(split):
    with pytest.raises(InputError, match=f'{next(iter(split))} = .*, but trainer = "fresh-factored" on a GPU'):
        TrainTable(name="x", trainer="fresh-factored", settings=FreshFactoredSettings(**split), device="cuda")


@pytest.mark.parametrize("topology", ["device", "uva"])
@pytest.mark.parametrize("memory", [None, MEMORY], ids=["table", "cache"])
def test_samplers_and_one_trainer_share_the_device(tmp_path, place, topology, memory):
    """Blocks are drawn on the device, by two samplers from one copy of the graph; bits and counts are those of samplers of the CPU."""
    split = {"trainer": "factored", "settings": FactoredSettings(samplers=2), "device": "cuda", **options("sage")}
    by_cpu = train_small(tmp_path / "cpu", memory=memory, **split)
    place.begin()
    with place.devices(1):
        found = train_small(tmp_path / "device", memory=memory, topology=topology, **split)
    crossed = place.crossed()
    assert_drawn_there(found, by_cpu, crossed, topology)
    assert sum(found.run_record()["executors"]["sampled_by"].values()) == 7


@pytest.mark.parametrize("trainer", ["fresh", "fresh-factored"])
def test_pruned_batches_are_drawn_on_the_device(tmp_path, place, trainer):
    """Blocks never leave the device: not even their ids cross, as long as rows are found there."""
    how = {"device": "cuda", "trainer": trainer, **options("sage")}
    by_cpu = train_fresh(tmp_path / "cpu", **how)
    place.begin()
    with place.devices(1):
        found = train_fresh(tmp_path / "device", topology="device", **how)
    assert_booked(found, place.crossed(), ("ids", "label"))
    assert found.version == by_cpu.version and content(found).keys() == content(by_cpu).keys()
    for file in ("weights.safetensors", "metrics.jsonl"):
        assert found.files[file]["digest"] == by_cpu.files[file]["digest"]
