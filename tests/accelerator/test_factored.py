"""`factored` on several accelerators of one process: the bits of `minibatch` at any number of roles, and every byte booked."""

import gc
import json
import threading
from collections import Counter
from contextlib import nullcontext

import pytest
from safetensors.numpy import load

from graphmill.trainers.batches.on_device import DeviceDrawer
from graphmill.trainers.techniques.factored import roles
from graphmill.trainers.techniques.factored.crew import Crew
from graphmill.trainers.techniques.factored.roles import ReplicaTraining, SamplerRole, TrainerRole
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.techniques.factored.watch import ExecutorFault
from tests.accelerator.places import SimulatedPlace
from tests.accelerator.test_training import MEMORY, moves, options
from tests.accelerator.test_typed import ROWS
from tests.assets.packed_chunks.packed import build_packed
from tests.laws.trainings import Case
from tests.trainers.graphs import random_graph
from tests.trainers.runs import Stops, content, train_fresh, train_packed, train_small
from tests.trainers.techniques.factored.test_faults import LONG, executors_alive, hold_up

RESULT = ("weights.safetensors", "metrics.jsonl")
ROW_BYTES, NUM_ROWS, GROUP = 48, 400, 3


def split(samplers, trainers, topology="device", **more):
    settings = FactoredSettings(samplers=samplers, trainers=trainers, **more)
    return {"trainer": "factored", "settings": settings, "device": "cuda", "topology": topology}


def result(model):
    return [content(model)[name] for name in RESULT]


def record_of(model):
    return model.run_record()["executors"]


@pytest.fixture
def trained(monkeypatch):
    """(number of the device, epoch, position) of every batch that a replica trains on."""
    found, real = [], ReplicaTraining.train

    def train(self, activity, epoch, ready):
        found.append((self.replica.device.torch_device.index, epoch.number, ready.batch.position))
        real(self, activity, epoch, ready)

    monkeypatch.setattr(ReplicaTraining, "train", train)
    return found


CASES = [
    # devices, samplers, trainers, topology, memory, more of the settings, of the model
    (2, 1, 1, "device", None, {}, {}),
    (3, 2, 2, "uva", MEMORY, {}, {"norm": "batch", "class_weights": "balanced"}),
    (2, 2, 2, "host", MEMORY, {}, {"norm": "batch", "class_weights": "balanced"}),
    (2, 0, 2, "device", MEMORY, {"sharing": "time"}, {}),
]
SLOW = [
    (3, 1, 3, "device", MEMORY, {"switching": False}, {"model": "gat", "heads": 2}),
    (4, 2, 2, "device", {"device": "50%", "host": "20%"}, {}, {"model": "gcn"}),
    (3, 3, 3, "host", None, {}, {"model": "gin", "features": "memory"}),
]


@pytest.mark.parametrize(
    ("devices", "samplers", "trainers", "topology", "memory", "settings", "model"),
    [*CASES, *(pytest.param(*each, marks=pytest.mark.slow("more models and roles on accelerators")) for each in SLOW)],
)
def test_bits_are_those_of_one_device_and_every_byte_is_booked(
    tmp_path, place, trained, devices, samplers, trainers, topology, memory, settings, model
):
    plain = train_small(tmp_path / "plain", memory=memory, device="cuda", **(options("sage") | model))
    place.begin()
    with place.devices(devices):
        found = train_small(
            tmp_path / "split",
            memory=memory,
            **split(samplers, trainers, topology, **settings),
            **(options("sage") | model),
        )
    crossed = place.crossed()
    assert result(found) == result(plain)
    record = record_of(found)
    assert len(set(record["accelerators"].values())) == devices
    assert sum(record["trained_by"].values()) == sum(record["sampled_by"].values()) == 7
    assert_booked_on_all(found, plain, topology, settings.get("sharing") != "time", crossed)
    if not model.get("norm"):
        assert_copied_between(found, trained)


def assert_booked_on_all(found, plain, topology, by_queue, crossed):
    """Blocks that go through the queue cross twice, with the bytes that blocks of the CPU have; counters saw all that is booked.

    Args:
        found: trained on several devices.
        plain: trained on one, for which the CPU samples.
        topology: of the first.
        by_queue: whether its batches go through the queue.
        crossed: what all devices counted.
    """
    ledger, of_plain = (json.loads(each.file("ledger.json").read_text()) for each in (found, plain))
    pulled = 0
    if topology == "host":
        assert ledger["counts"] == of_plain["counts"] and ledger["moves"] == of_plain["moves"]
    elif by_queue:
        asked = {(row["link"], row["kind"]): row["asked_bytes"] for row in ledger["moves"] if row["kind"] == "topology"}
        (blocks,) = (row["asked_bytes"] for row in of_plain["moves"] if row["kind"] == "topology")
        assert asked["d2h", "topology"] == blocks
        pulled = asked["h2d", "topology"] - blocks  # of the graph in host memory: read there, and not copied
        assert (pulled > 0) == (topology == "uva")
    others = record_of(found)["traffic_of_other_accelerators"].values()
    books = [ledger["moves"], found.run_record()["traffic_besides_batches"], *others]
    booked = {link: sum(sum(moves(rows, link).values()) for rows in books) for link in ("h2d", "d2h")}
    pulled += moves(ledger["moves"], "h2d").get("feature", 0)  # rows of a batch are read by a kernel
    assert crossed.h2d_bytes == booked["h2d"] - pulled and crossed.d2h_bytes == booked["d2h"]


def assert_copied_between(found, trained):
    """Each device copies the weights of each update behind which it trains, and sends a gradient per batch."""
    of_model = sum(values.nbytes for values in load(found.file("weights.safetensors").read_bytes()).values())
    there = [each for each in trained if each[0]]
    versions = Counter(device for device, _, _ in {(device, epoch, step // GROUP) for device, epoch, step in there})
    others = record_of(found)["traffic_of_other_accelerators"]
    copied = {int(name[-1]): moves(rows, "d2d").get("parameter", 0) for name, rows in others.items()}
    replicas = Counter(device for name, device in record_of(found)["accelerators"].items() if name[0] != "s")
    assert max(replicas.values(), default=1) == 1
    assert {device: num_bytes for device, num_bytes in copied.items() if num_bytes} == {
        device: count * of_model for device, count in versions.items()
    }
    sent = moves(found.run_record()["traffic_besides_batches"], "d2d")
    assert sent.get("gradient", 0) == len(there) * of_model and sent.get("loss", 0) == 8 * len(there)


def test_roles_share_one_device_in_rotation(tmp_path, place):
    """A recipe of two samplers and two trainers on one device; batches stay there."""
    plain = train_small(tmp_path / "plain", memory=MEMORY, device="cuda", topology="device", **options("sage"))
    with place.devices(1):
        found = train_small(tmp_path / "split", memory=MEMORY, **split(2, 2), **options("sage"))
    assert content(found) == content(plain)
    assert set(record_of(found)["accelerators"].values()) == {place.name}


def test_rows_of_every_trainer_are_cached_on_its_device(tmp_path, place):
    with place.devices(2):
        found = train_small(
            tmp_path, memory={"device": "50%", "host": "0%"}, **split(2, 2, "host"), **options("sage") | {"epochs": 1}
        )
    record = record_of(found)
    (other,) = record["traffic_of_other_accelerators"].values()
    half = NUM_ROWS // 2 * ROW_BYTES
    assert moves(other, "d2d")["feature"] == half
    assert record["peak_bytes"]["trainer 0"]["cache"] == record["peak_bytes"]["trainer 1"]["cache"] == half


def test_a_sampler_without_work_trains_with_the_rows_that_the_topology_leaves_room_for(tmp_path, place, monkeypatch):
    """The trainer waits until the standby trainer has done a batch of the first step."""
    helped, train, help_out = threading.Event(), TrainerRole.train, SamplerRole._train

    def late(self, epoch):
        assert helped.wait(60)
        train(self, epoch)

    def helps(self, epoch, taken):
        help_out(self, epoch, taken)
        helped.set()

    monkeypatch.setattr(Crew, "_worthwhile", lambda self, waiting, trainers: waiting > 0)
    monkeypatch.setattr(TrainerRole, "train", late)
    monkeypatch.setattr(SamplerRole, "_train", helps)
    memory = {"device": "100%", "host": "0%"}
    plain = train_small(tmp_path / "plain", memory=memory, device="cuda", **options("sage"))
    with place.devices(2):
        found = train_small(tmp_path / "split", memory=memory, **split(1, 1, "uva"), **options("sage"))
    assert result(found) == result(plain)
    record = record_of(found)
    assert helped.is_set() and sum(record["trained_by"].values()) == 7
    (name,) = record["traffic_of_other_accelerators"]
    sent = moves(record["traffic_of_other_accelerators"][name], "h2d")["topology"]
    left = NUM_ROWS * ROW_BYTES - sent - 8 * random_graph(tmp_path).topology.num_nodes
    assert record["peak_bytes"]["sampler 0"]["cache"] == left // ROW_BYTES * ROW_BYTES > 0
    assert record["peak_bytes"]["trainer 0"]["cache"] == NUM_ROWS * ROW_BYTES


@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.slow("roles of one device that go on")), 2])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, place, devices):
    how = {"memory": MEMORY, "checkpoint_steps": 1, **split(1, 2, switching=False), **options("sage")}
    with place.devices(devices):
        straight = train_small(tmp_path / "straight", **how)
        with pytest.raises(ConnectionAbortedError):
            train_small(tmp_path / "stopped", progress=Stops(after=10), **how)
        resumed = train_small(tmp_path / "stopped", resume=True, **how)
    assert content(resumed) == content(straight)


@pytest.mark.parametrize(
    ("where", "name"),
    [
        pytest.param(
            (DeviceDrawer, "__call__"),
            r"sampler 0 failed \(sample, batch \d\): ZeroDivisionError: gone",
            marks=pytest.mark.slow("a sampler that dies while its device draws"),
        ),
        ((roles, "fetch_blocks"), r"sampler 0 failed \(copy, batch \d\): ZeroDivisionError: gone"),
        ((roles, "extract_batch"), r"trainer \d extract failed \(extract, batch \d\): ZeroDivisionError: gone"),
    ],
)
def test_a_role_that_dies_is_named(tmp_path, place, monkeypatch, where, name):
    calls, real = iter(range(100)), getattr(*where)

    def dies(*given):
        if next(calls) == 4:
            raise ZeroDivisionError("gone")
        return real(*given)

    monkeypatch.setattr(*where, dies)
    with place.devices(2), pytest.raises(ExecutorFault, match=name):
        train_small(tmp_path, **split(1, 1, switching=False), **options("sage"))
    assert executors_alive() == []


def test_a_role_that_hangs_ends_the_run(tmp_path, place, monkeypatch):
    hold_up(monkeypatch, DeviceDrawer, "__call__")
    with (
        place.devices(2),
        pytest.raises(ExecutorFault, match=r"sampler 0 has been at work \(sample, batch \d\) .*timeout = 60 s"),
    ):
        train_small(tmp_path, **split(1, 1, timeout=LONG), **options("sage"))
    assert executors_alive() == []


def test_packed_rows_are_extracted_on_every_trainers_device(tmp_path, place):
    packed = build_packed(tmp_path)
    plain = train_packed(packed, tmp_path / "disk", device="cuda", **options("sage"))
    how = split(1, 2, "host", rows="packed") | options("sage")
    with place.devices(2):
        found = train_packed(packed, tmp_path / "split", samples="stored", **how)
    assert content(found)["weights.safetensors"] == content(plain)["weights.safetensors"]
    assert record_of(found)["trained_by"].keys() == {"trainer 0", "trainer 1"}


def test_trainers_that_do_not_wait_train_on_two_devices(tmp_path, place):
    with place.devices(2):
        found = train_small(tmp_path, **split(1, 2, "host", staleness=1), **options("sage"))
    assert found.summary["numbers"]["repeatable"] is False and sum(record_of(found)["trained_by"].values()) == 7


@pytest.mark.slow("a history on one device, and samplers on another")
def test_a_history_is_pruned_by_on_one_device_for_which_another_samples(tmp_path, place):
    how = {"device": "cuda", "trainer": "fresh-factored", **options("sage")}
    by_cpu = train_fresh(tmp_path / "cpu", **how)
    with place.devices(2):
        found = train_fresh(tmp_path / "device", topology="device", fresh={"devices": 3}, **how)
    assert result(found) == result(by_cpu)
    other = f"{place.name[:-1]}1"
    assert record_of(found)["accelerators"] == {"sampler 0": other, "sampler 1": other, "trainer 0": place.name}


def test_the_cache_has_the_space_of_a_graph_that_is_elsewhere(tmp_path, monkeypatch):
    """Of "auto": a device that trains and samples leaves room for the graph, one that only trains does not. A GPU has other users."""
    place, found = SimulatedPlace(monkeypatch), {}
    for devices in (1, 2):
        gc.collect()
        with place.devices(devices):
            model = train_small(
                tmp_path / str(devices),
                memory={"device": "auto", "host": "0%"},
                **split(1, 1, switching=False),
                **options("sage") | {"epochs": 1},
            )
        found[devices] = model.run_record()["cache"]["device_budget_bytes"]
    topology = random_graph(tmp_path).topology
    graph = topology.indptr.nbytes + topology.indices.nbytes + 16 * topology.num_nodes
    assert 0 <= found[2] - found[1] - graph < graph / 4  # what earlier tests left may be gone meanwhile


@pytest.mark.slow("learnable rows of nodes, with trainers on one of two devices")
def test_rows_of_nodes_keep_all_trainers_on_one_device(tmp_path, place):
    made = Case(tmp_path, ROWS)
    plain = made.train("minibatch", device="cuda")
    with place.devices(2):
        found = made.train("factored", device="cuda", topology="device", settings={"samplers": 1, "trainers": 2})
    assert result(found) == result(plain)
    trainers = {name: device for name, device in record_of(found)["accelerators"].items() if name != "sampler 0"}
    assert trainers == {"trainer 0": place.name, "trainer 1": place.name}


def test_more_devices_than_roles_are_left_alone(tmp_path, place):
    with place.devices(2) if place.name.startswith("simulated") else nullcontext():
        found = train_small(tmp_path, **split(2, 1, "host"), **options("sage") | {"epochs": 1})
    assert record_of(found)["accelerators"] == {"trainer 0": place.name}
