"""A training on the simulated accelerator: the CPU's weights within rounding, the same bits every time, nothing unbooked crosses."""

import json

import numpy as np
import pytest
from safetensors.numpy import load

from kernels.errors import InputError
from tests import accelerator
from tests.accelerator.backend import stand_in
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers.runs import content, train_packed, train_small
from trainers.config import TrainTable

MODELS = ("sage", "gcn", "gat", "gin")
OPTIONS = {"gat": {"heads": 2, "attention_dropout": 0.3}}
MEMORY = {"device": "2KiB", "host": "3KiB", "seed": 3}


@pytest.fixture
def simulated(monkeypatch):
    stand_in(monkeypatch)


def options(model):
    return {"model": model, "epochs": 2, "dropout": 0.3, "norm": "layer", **OPTIONS.get(model, {})}


def weights(artifact):
    return load(artifact.file("weights.safetensors").read_bytes())


def assert_close(found, expected):
    for name, values in weights(expected).items():
        np.testing.assert_allclose(weights(found)[name], values, rtol=2e-4, atol=2e-5, err_msg=name)


def moves(rows, link):
    """kind -> bytes over a link."""
    found = {}
    for row in rows:
        if row["link"] == link:
            found[row["kind"]] = found.get(row["kind"], 0) + row["moved_bytes"]
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("memory", [None, MEMORY], ids=["table", "cache"])
def test_minibatch_ends_with_the_weights_of_the_cpu(tmp_path, simulated, model, memory):
    on_cpu = train_small(tmp_path / "cpu", memory=memory, **options(model))
    before = accelerator.counts()
    found = train_small(tmp_path / "one", memory=memory, device="cuda", **options(model))
    crossed = accelerator.counts().since(before)
    assert found.version != on_cpu.version
    assert_close(found, on_cpu)
    again = train_small(tmp_path / "two", memory=memory, device="cuda", **options(model))
    assert content(found) == content(again)
    assert_booked(found, crossed)


def assert_booked(model, crossed, kinds=("topology", "ids", "label")):
    """Every byte that was copied is on a line: of the batches' ledger, or of what crosses besides."""
    batches = json.loads(model.file("ledger.json").read_text())["moves"]
    besides = model.run_record()["traffic_besides_batches"]
    # Rows of features of a batch are read over the bus by a kernel, not copied.
    sent = {kind: n for kind, n in moves(batches, "h2d").items() if kind != "feature"}
    assert sent.keys() == set(kinds)
    assert crossed.h2d_bytes == sum(sent.values()) + sum(moves(besides, "h2d").values())
    assert crossed.d2h_bytes == sum(moves(batches, "d2h").values()) + sum(moves(besides, "d2h").values())


@pytest.mark.parametrize("features", ["mapped", "memory"])
def test_where_features_lie_changes_no_bit(tmp_path, simulated, features):
    one = train_small(tmp_path / "one", device="cuda", **options("sage"))
    found = train_small(
        tmp_path / "two", device="cuda", features=features, memory=MEMORY | {"host": "64KiB"}, **options("sage")
    )
    assert weights(one).keys() == weights(found).keys()
    assert one.files["weights.safetensors"]["digest"] == found.files["weights.safetensors"]["digest"]


@pytest.mark.parametrize("topology", ["uva", "device"])
@pytest.mark.parametrize("model", MODELS)
def test_who_samples_changes_no_bit(tmp_path, simulated, model, topology):
    by_cpu = train_small(tmp_path / "host", device="cuda", **options(model))
    before = accelerator.counts()
    memory, features = (None, "memory") if model == "gin" else (MEMORY | {"host": "64KiB"}, "memory")
    memory, features = (MEMORY, "mapped") if model == "gcn" else (memory, features)
    found = train_small(
        tmp_path / topology, device="cuda", topology=topology, memory=memory, features=features, **options(model)
    )
    crossed = accelerator.counts().since(before)
    assert found.version == by_cpu.version
    assert found.files["weights.safetensors"]["digest"] == by_cpu.files["weights.safetensors"]["digest"]
    assert found.files["metrics.jsonl"]["digest"] == by_cpu.files["metrics.jsonl"]["digest"]
    if topology == "device":
        assert_booked(found, crossed, ("ids", "label"))
    else:  # what a kernel reads over the bus is booked and not copied
        read = moves(json.loads(found.file("ledger.json").read_text())["moves"], "h2d")["topology"]
        assert_booked(found, crossed._replace(h2d_bytes=crossed.h2d_bytes + read))


@pytest.mark.parametrize("wrong", [{"device": "cpu"}, {"device": "cuda", "samples": "stored"}])
def test_who_samples_is_asked_of_a_device_alone(wrong):
    with pytest.raises(InputError, match="topology = 'uva' samples on the device, but"):
        TrainTable(name="a", topology="uva", **wrong)


@pytest.mark.parametrize("model", MODELS)
def test_disk_ends_with_the_bits_of_minibatch(tmp_path, simulated, model):
    packed = build_packed(tmp_path)
    on_cpu = train_packed(packed, tmp_path / "cpu", **options(model))
    before = accelerator.counts()
    found = train_packed(packed, tmp_path / "disk", device="cuda", **options(model))
    crossed = accelerator.counts().since(before)
    assert_close(found, on_cpu)
    assert_booked(found, crossed)
    online = train_packed(packed, tmp_path / "online", trainer="minibatch", device="cuda", **options(model))
    assert found.files["weights.safetensors"]["digest"] == online.files["weights.safetensors"]["digest"]


def test_sampled_evaluation_and_linear_ends_run_on_the_device(tmp_path, simulated):
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


def test_too_little_device_memory_is_one_message(tmp_path, simulated):
    live = accelerator.counts().live_bytes
    with pytest.raises(
        InputError, match=r"(?s)on simulated:0 .*out of memory.*remedy: raise `workspace`, or lower `batch_size`"
    ):
        train_small(tmp_path, device="cuda", workspace=f"{(live >> 10) + 8}KiB", **options("sage"))


def test_a_modelled_link_is_refused(tmp_path, simulated):
    with pytest.raises(InputError, match=r"link_gbps = 1\.0 models a link"):
        train_small(tmp_path, device="cuda", link_gbps=1.0)
