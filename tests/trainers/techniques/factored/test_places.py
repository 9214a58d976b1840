"""Where the topology is booked, and what it leaves of a cache (FGNN 3, 5.3); memory that is given back after an epoch."""

import itertools
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.trainers.batches.batch import draw_batch
from graphmill.trainers.devices import malloc
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.factored import roles
from graphmill.trainers.techniques.factored.costs import topology_bytes
from graphmill.trainers.techniques.factored.places import TopologyParts, cut
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.trainers.graphs import random_graph, random_graph_artifacts, random_topology
from tests.trainers.runs import SAMPLING, TABLE, content, train_small

ALL = {"device": "100%", "host": "0%"}


def peaks(home: Path, **options: Any) -> dict[str, dict[str, int]]:
    split = options.pop("settings", FactoredSettings(samplers=1, trainers=1))
    model = train_small(home, trainer="factored", settings=split, epochs=1, **options)
    return model.run_record()["executors"]["peak_bytes"]


def test_a_standby_trainer_has_the_prefix_that_the_topology_leaves(tmp_path: Path) -> None:
    held = topology_bytes(random_graph(tmp_path).topology)
    row_bytes, num_rows = 48, 400
    found = peaks(tmp_path, topology="device", memory=ALL)
    assert found["sampler 0"]["topology"] == held and "topology" not in found["trainer 0"]
    assert found["trainer 0"]["cache"] == num_rows * row_bytes
    assert found["sampler 0"]["cache"] == (num_rows * row_bytes - held) // row_bytes * row_bytes > 0
    on_host = peaks(tmp_path / "host", memory=ALL)
    assert on_host["sampler 0"]["topology"] == 0 and on_host["sampler 0"]["cache"] == num_rows * row_bytes


def test_devices_that_are_shared_in_time_hold_topology_cache_and_work_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, seen = threading.Barrier(2, timeout=60), threading.local()

    def draw_when_both_have_one(*given: Any) -> Any:
        """Without it one of the two may have taken all batches before the other one runs."""
        if not hasattr(seen, "once"):
            seen.once = both.wait()
        return draw_batch(*given)

    monkeypatch.setattr(roles, "draw_batch", draw_when_both_have_one)
    shared = FactoredSettings(sharing="time", trainers=2)
    found = peaks(tmp_path, settings=shared, topology="device", memory=ALL, workspace="64MiB")
    assert found.keys() == {"device 0", "device 1"}
    assert all(each["topology"] and each["cache"] and each["inputs"] and each["work"] for each in found.values())


@pytest.mark.parametrize("memory", [None, {"device": "0%", "host": "0%"}])
def test_a_topology_whose_longest_row_fits_no_device_is_refused(tmp_path: Path, memory: dict[str, str] | None) -> None:
    with pytest.raises(
        InputError, match=r'topology = "device" puts .* on each device .*not even the longest row of it fits'
    ):
        peaks(tmp_path, topology="device", workspace="64B", memory=memory)


@pytest.mark.parametrize("sharing", ["space", "time"])
def test_a_topology_larger_than_a_device_is_loaded_by_parts(tmp_path: Path, sharing: Any) -> None:
    """The device has less than the topology and enough for the work; blocks and weights do not depend on the parts."""
    size: dict[str, Any] = {"num_nodes": 400, "num_edges": 60_000}
    graph = random_graph_artifacts(tmp_path, **size)
    held = topology_bytes(graph.open().topology)
    split = FactoredSettings(samplers=int(sharing == "space"), trainers=1, sharing=sharing)
    options: dict[str, Any] = {"trainer": "factored", "topology": "device", "workspace": "150kB", "epochs": 1}
    found = []
    for more in ({}, options | {"settings": split}):
        table = TrainTable(**(TABLE | {"epochs": 1} | more))
        home = Store(tmp_path / str(len(found)))
        found += train_table(home, graph.inputs, table, SAMPLING, 5, report=lambda line: None)
    assert content(found[0])["weights.safetensors"] == content(found[1])["weights.safetensors"]
    record = found[1].run_record()["executors"]
    name = "sampler 0" if sharing == "space" else "device 0"
    assert 0 < record["peak_bytes"][name]["topology"] <= 75_000 < 150_000 < held
    # At least once as a whole; at most every part for every layer of every batch.
    assert held // 2 < record["topology_loaded_bytes"][name] <= 7 * 2 * held


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_parts_fit_cover_every_node_and_are_loaded_when_a_layer_needs_them(data: st.DataObject) -> None:
    topology = random_topology(
        data.draw(st.integers(1, 60)), data.draw(st.integers(1, 400)), seed=data.draw(st.integers(0, 9))
    )
    row_bytes = 8 + 4 * np.diff(topology.indptr)
    room = data.draw(st.integers(1, 2 * int(row_bytes.sum())))
    found = cut(topology, room)
    assert (found is None) == (row_bytes.max() > room)
    if found is None:
        return
    starts, num_bytes = found
    assert starts[0] == 0 and starts[-1] == topology.num_nodes and (np.diff(starts) > 0).all()
    parts = [range(low, high) for low, high in itertools.pairwise(starts.tolist())]
    assert (
        num_bytes.tolist() == [int(row_bytes[part.start : part.stop].sum()) for part in parts]
        and num_bytes.max() <= room
    )
    layers = [
        np.array(sorted(data.draw(st.sets(st.integers(0, topology.num_nodes - 1), min_size=1))), np.int32)
        for _ in range(3)
    ]
    ledger, resident, expected = Ledger(), -1, 0
    TopologyParts(starts, num_bytes, None, ledger).load([SimpleNamespace(dst_ids=ids) for ids in layers])  # pyright: ignore
    for ids in reversed(layers):
        needed = [number for number, part in enumerate(parts) if any(node in part for node in ids.tolist())]
        for number in sorted(needed, key=lambda each: each != resident):
            expected += int(num_bytes[number]) * (number != resident)
            resident = number
    assert ledger.moved_bytes("h2d") == expected


def test_a_marked_batch_is_found_anew_where_the_cache_is_smaller(tmp_path: Path) -> None:
    """One device that alternates reads with its own, smaller cache; rows and weights are the same."""
    alone = FactoredSettings(samplers=1, devices=1)
    plain = train_small(tmp_path / "plain", epochs=1)
    found = train_small(tmp_path / "one", trainer="factored", settings=alone, epochs=1, topology="device", memory=ALL)
    assert content(found)["weights.safetensors"] == content(plain)["weights.safetensors"]
    assert all(check["passed"] for check in found.summary["checks"] if check["name"] == "ledger equals plan")


def test_freed_memory_is_given_back_after_each_epoch_where_it_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, returned = FactoredSettings(samplers=1, trainers=1), []
    plain = train_small(tmp_path / "plain", trainer="factored", settings=split, epochs=3)
    monkeypatch.setattr(malloc, "free_bytes", lambda: 1)
    monkeypatch.setattr(malloc, "return_freed_memory", lambda: returned.append(0))
    short = train_small(tmp_path / "short", trainer="factored", settings=split, epochs=3)
    assert len(returned) == 3 and content(short) == content(plain)
