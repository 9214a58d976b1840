"""Ranks with an accelerator each: the bits are those of one rank, whatever is exchanged and read over which way."""

import json

import pytest

from graphmill.assets.sampling.config import SamplingConfig
from graphmill.trainers.ranks.group import ALONE
from tests.accelerator.backend import stand_in
from tests.accelerator.rank_child import OPTIONS, run_processes
from tests.accelerator.test_training import assert_booked, assert_close, moves
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.ranks.threads import ThreadTensors
from tests.trainers.runs import Stops, content, parts_inputs, train_parts
from tests.trainers.techniques.distributed.test_distributed import ledger


@pytest.mark.parametrize("gradients", ["ordered", "all-reduce"])
def test_two_ranks_on_accelerators_are_one(tmp_path, place, gradients):
    parts_inputs(tmp_path, 2)
    options = {"settings": {"gradients": gradients}, "epochs": 2, "norm": "layer", "dropout": 0.3, "retrain": True}
    on_cpu = train_parts(tmp_path, 2, **options)
    one = train_parts(tmp_path, 2, device="cuda", **options)
    place.begin()
    two = place.ranks(2, lambda ranks: train_parts(tmp_path, 2, ranks, device="cuda", **options))[0]
    crossed = place.crossed()
    assert on_cpu and one and two
    assert_close(one, on_cpu)
    if gradients == "ordered":
        assert content(one)["weights.safetensors"] == content(two)["weights.safetensors"]
    else:
        assert_close(two, one)
    sent = moves(two.run_record()["traffic_besides_batches"], "h2d")
    assert sent["gradient"] > 0 and sent["gradient"] <= crossed.h2d_bytes


def test_histories_of_parts_on_accelerators_are_those_of_one_rank(tmp_path, place):
    parts_inputs(tmp_path, 4)
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=8, reuse=2)
    options = {"fresh": {}, "sampling": sampling, "accumulate": 1, "epochs": 2, "dropout": 0.3, "retrain": True}
    on_cpu, one = (train_parts(tmp_path, 4, device=kind, **options) for kind in ("cpu", "cuda"))
    assert on_cpu and one and ledger(on_cpu)[0]["history_hits", 1] > 0
    assert_close(one, on_cpu)
    alone = content(one)["weights.safetensors"]
    two = place.ranks(2, lambda ranks: train_parts(tmp_path, 4, ranks, device="cuda", **options))[0]
    assert two and content(two)["weights.safetensors"] == alone


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stored_dtype": "uint16"},
        {"stored_dtype": "float16", "features": "memory"},
        {"featureless": 3, "features": "direct"},
    ],
    ids=str,
)
def test_rows_cross_in_their_stored_type_and_every_byte_is_booked(tmp_path, place, more):
    options = {"epochs": 2, "accumulate": 1, "retrain": True, **more}
    on_cpu = train_parts(tmp_path, 2, **options)
    place.begin()
    one = train_parts(tmp_path, 2, device="cuda", **options)
    crossed = place.crossed()
    assert on_cpu and one
    assert_close(one, on_cpu)
    assert_booked(one, crossed)
    item = 2 if "stored_dtype" in more else 4
    counts, _ = ledger(one)
    rows = counts["inputs", 0] - counts.get(("without_features", 0), 0)
    assert moves(json.loads(one.file("ledger.json").read_text())["moves"], "h2d")["feature"] == rows * 12 * item
    two = place.ranks(2, lambda ranks: train_parts(tmp_path, 2, ranks, device="cuda", **options))[0]
    assert two and content(two)["weights.safetensors"] == content(one)["weights.safetensors"]


@pytest.mark.parametrize("world", [1, 2])
def test_packed_rows_of_ranks_on_accelerators_have_the_bits_of_the_exchange(tmp_path, place, world):
    inputs, _ = parts_inputs(tmp_path, 2, width=300)
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=32, reuse=1)
    graph = random_graph_artifacts(tmp_path, width=300)
    how = {"sampling": sampling, "partitions": inputs["partitions"], "memory": {"disk": "5x"}}
    packed = build_packed(tmp_path, graph=graph, **how)
    options = {"sampling": sampling, "width": 300, "epochs": 2, "device": "cuda", "retrain": True}
    exchanged = train_parts(tmp_path, 2, **options)
    options |= {"packed": packed, "settings": {"rows": "packed"}}

    def work(ranks):
        return train_parts(tmp_path, 2, ranks, **options)

    found = work(ALONE) if world == 1 else place.ranks(world, work)[0]
    assert content(found)["weights.safetensors"] == content(exchanged)["weights.safetensors"]
    assert all(check["passed"] for check in found.summary["checks"] if check["name"] == "ledger equals plan")


@pytest.mark.parametrize("fresh", [None, {}], ids=["rows", "rows and embeddings"])
def test_each_rank_has_hot_rows_on_its_own_accelerator(tmp_path, place, fresh):
    """Without a look into the memory of another one; every byte that crosses is booked."""
    options = {"fresh": fresh, "epochs": 2, "accumulate": 1, "featureless": 3, "device": "cuda", "retrain": True}
    plain = train_parts(tmp_path, 2, **options)
    assert plain
    expected, crossing = content(plain)["weights.safetensors"], ledger(plain)[1]["h2d", "feature"]
    options |= {"memory": {"device": "30%", "host": "10%"}}
    place.begin()
    one = train_parts(tmp_path, 2, **options)
    crossed = place.crossed()
    assert one and content(one)["weights.safetensors"] == expected
    assert_booked(one, crossed)
    counts, moved = ledger(one)
    assert counts["hits_device", 0] > 0 and moved["h2d", "feature"] < crossing
    two = place.ranks(2, lambda ranks: train_parts(tmp_path, 2, ranks, **options))[0]
    assert two and content(two)["weights.safetensors"] == expected
    counts, _ = ledger(two)
    assert counts["hits_device", 0] > 0 and counts.get(("hits_peer", 0), 0) == 0


@pytest.mark.parametrize("fresh", [None, {}], ids=["rows", "rows and embeddings"])
@pytest.mark.parametrize("topology", ["device", "uva"])
def test_batches_of_ranks_are_drawn_on_their_accelerators(tmp_path, place, topology, fresh):
    """The bits of samplers of the CPU, on one rank and on two, and with batches that have no seed."""
    parts_inputs(tmp_path, 4)
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=4, reuse=2)
    options = {"fresh": fresh, "sampling": sampling, "accumulate": 1, "epochs": 2, "dropout": 0.3, "retrain": True}
    by_cpu = train_parts(tmp_path, 4, device="cuda", **options)
    assert by_cpu
    expected = content(by_cpu)["weights.safetensors"]
    place.begin()
    one = train_parts(tmp_path, 4, device="cuda", topology=topology, **options)
    crossed = place.crossed()
    assert one and content(one)["weights.safetensors"] == expected
    assert ledger(one)[0]["batches", 0] > ledger(one)[0]["seeds", 0] / 4
    read = moves(json.loads(one.file("ledger.json").read_text())["moves"], "h2d").get("topology", 0)
    assert_booked(one, crossed, ("topology", "ids", "label") if topology == "uva" else ("ids", "label"), pulled=read)
    two = place.ranks(2, lambda ranks: train_parts(tmp_path, 4, ranks, device="cuda", topology=topology, **options))[0]
    assert two and content(two)["weights.safetensors"] == expected


@pytest.mark.parametrize("gradients", ["ordered", "all-reduce"])
def test_gradients_stay_on_devices_that_have_a_lane_of_their_own(tmp_path, place, monkeypatch, gradients):
    """The bits of the way through the host, and of one rank; no gradient of a parameter crosses to the host."""
    settings = {"gradients": gradients}
    options = {"settings": settings, "epochs": 2, "norm": "batch", "dropout": 0.3, "retrain": True, "device": "cuda"}
    options |= {"sampling": SamplingConfig(fanouts=(4, 3), batch_size=8), "accumulate": 2}
    parts_inputs(tmp_path, 4)
    one = train_parts(tmp_path, 4, **options)
    assert one
    expected, lanes = content(one)["weights.safetensors"], []

    def opened(ranks, device):
        lanes.append(ThreadTensors(ranks.lane()))
        return lanes[-1]

    monkeypatch.setattr("graphmill.trainers.techniques.distributed.executor.open_tensor_lane", opened)
    two = place.ranks(2, lambda ranks: train_parts(tmp_path, 4, ranks, **options))[0]
    assert two and len(lanes) == 2 and all(lane.calls > 0 for lane in lanes)
    if gradients == "ordered":
        assert content(two)["weights.safetensors"] == expected
    besides = two.run_record()["traffic_besides_batches"]
    assert "gradient" not in moves(besides, "d2h") and "gradient" not in moves(besides, "h2d")
    assert ledger(two)[1]["rank", "gradient"] > 0


PEER = {"settings": {"exchange": "peer"}, "memory": {"device": "30%", "host": "10%"}}


def test_devices_of_ranks_read_what_embeddings_leave(tmp_path, place):
    """The bits of the exchange, and of one rank."""
    sampling = SamplingConfig(fanouts=(4, 3), batch_size=8, reuse=2)
    options = {"fresh": {}, "sampling": sampling, "accumulate": 1, "epochs": 2, "retrain": True, "device": "cuda"}
    parts_inputs(tmp_path, 2, memory=PEER["memory"])
    plain = train_parts(tmp_path, 2, **options)
    assert plain
    expected = content(plain)["weights.safetensors"]
    for world in (1, 2):
        model = place.ranks(world, lambda ranks: train_parts(tmp_path, 2, ranks, **options, **PEER))[0]
        assert model and content(model)["weights.safetensors"] == expected
        counts, _ = ledger(model)
        assert (counts["hits_peer", 0] > 0) == (world == 2) and counts["history_hits", 1] > 0
        assert all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")


@pytest.mark.parametrize("topology", ["host", "device"])
def test_devices_of_ranks_read_the_rows_of_each_other(tmp_path, place, topology):
    """The bits of the exchange, with blocks of either side; rows of devices cross no bus."""
    options = {"epochs": 2, "accumulate": 1, "featureless": 5, "retrain": True, "device": "cuda"}
    parts_inputs(tmp_path, 2, memory=PEER["memory"], featureless=5)

    def work(ranks):
        return train_parts(tmp_path, 2, ranks, topology=topology, **options, **PEER)

    plain = train_parts(tmp_path, 2, **options)
    assert plain
    expected = content(plain)["weights.safetensors"]
    for world in (1, 2):
        model = work(ALONE) if world == 1 else place.ranks(world, work)[0]
        assert model and content(model)["weights.safetensors"] == expected
        counts, booked = ledger(model)
        on_devices = counts["hits_device", 0] + counts["hits_peer", 0]
        others = sum(counts[name, 0] for name in ("hits_own", "hits_host", "hits_remote"))
        assert booked["d2d", "feature"] == 48 * on_devices and booked["h2d", "feature"] == 48 * others
        assert all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")
        assert (counts["hits_peer", 0] > 0) == (world == 2)


@pytest.mark.parametrize("fresh", [None, {}], ids=["rows", "rows and embeddings"])
def test_a_run_of_devices_goes_on_from_a_checkpoint(tmp_path, place, fresh):
    """To the bits of a run without a break; rows lie on the devices where the technique has them there."""
    options = {"epochs": 2, "checkpoint_steps": 1, "device": "cuda", "dropout": 0.3}
    options |= {"fresh": fresh, "accumulate": 1} if fresh is not None else PEER
    memory = {} if fresh is not None else {"memory": PEER["memory"]}

    def work(home, **more):
        parts_inputs(home, 2, **memory)
        return place.ranks(2, lambda ranks: train_parts(home, 2, ranks, **options, **more))[0]

    expected = content(work(tmp_path / "straight"))["weights.safetensors"]
    with pytest.raises(ConnectionAbortedError):
        parts_inputs(tmp_path, 2, **memory)
        place.ranks(
            2, lambda ranks: train_parts(tmp_path, 2, ranks, **options, progress=Stops(3) if ranks.first else None)
        )
    assert content(work(tmp_path, resume=True))["weights.safetensors"] == expected


PROCESSES = [
    pytest.param("simulated", marks=pytest.mark.slow("ranks that are processes, and read each other's device memory")),
    pytest.param("cuda", marks=pytest.mark.gpu),
]


@pytest.mark.parametrize("kind", PROCESSES)
def test_processes_with_a_device_each_read_the_rows_of_each_other(tmp_path, monkeypatch, kind):
    """Two processes, two devices or two contexts of one GPU; the bits of one process."""
    if kind == "simulated":
        stand_in(monkeypatch)
    parts_inputs(tmp_path, 2, memory=PEER["memory"])
    one = train_parts(tmp_path, 2, device="cuda", retrain=True, **OPTIONS, **PEER)
    assert one
    expected = content(one)["weights.safetensors"]
    found = run_processes(2, kind, tmp_path)
    assert found["weights"] == expected
    assert found["hits_peer"] > 0 and found["hits_remote"] > 0
