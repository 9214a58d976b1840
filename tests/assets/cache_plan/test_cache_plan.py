"""The cache plan: every row in one tier, budgets kept, the summary equal to a recount, the same bytes at any thread count."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphmill.assets.budgets.config import BudgetsConfig, BudgetsExecution, MemoryConfig
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Silent
from graphmill.assets.cache_plan import layout, segment_size
from graphmill.assets.cache_plan.config import CachePlanTable, cache_plan_config
from graphmill.assets.cache_plan.read import open_placement, open_segment_plan
from graphmill.assets.cache_plan.segment_size import SegmentChoice
from graphmill.assets.cache_plan.stage import CACHE_PLAN
from graphmill.assets.samples.read import open_samples
from graphmill.assets.storage.store import Store
from graphmill.kernels.disk_cache.segment_size import SegmentSizes, stored_rows_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes
from graphmill.kernels.rows.slots import ELSEWHERE, HOST, NO_FEATURES, make_slots
from tests.assets.samples.sampled import build_samples
from tests.trainers.graphs import random_graph_artifacts

WIDTH = 300  # floats: rows of 1,200 bytes straddle pages
ROW_BYTES = 4 * WIDTH
NODES = 400


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    artifacts = random_graph_artifacts(home, width=WIDTH)
    return {epochs: build_samples(home, graph=artifacts.graph, epochs=epochs) for epochs in (1, 3)}, artifacts


def plan(made, epochs=1, device="5%", host="10%", disk="100x", threads=2, home=None, **table):
    samples, artifacts = made
    features = artifacts.features
    store = Store(home or features.path.parents[2])
    memory = BudgetsConfig(memory=MemoryConfig(device=device, host=host, disk=disk))
    budgets = materialize(store, BudgetsStage(), memory, BudgetsExecution(), {"features": features})
    inputs = {"features": features, "samples": samples[epochs], "budgets": budgets}
    config = cache_plan_config(CachePlanTable(**table), seed=5)
    return materialize(store, CACHE_PLAN, config, Threads(threads=threads), inputs)


def batches_of(samples):
    return [record.blocks[0].src_ids for record in open_samples(samples).records()]


def pages_of(rows):
    spans = [range(row * ROW_BYTES // PAGE_BYTES, (row * ROW_BYTES + ROW_BYTES - 1) // PAGE_BYTES + 1) for row in rows]
    return {page for span in spans for page in span}


def recount(samples, found):
    """Counts from the arrays alone what the plan stores and what every batch will read."""
    placement, segments = open_placement(found), open_segment_plan(found)
    held = set(placement.device_ids.tolist()) | set(placement.host_ids.tolist())
    held |= set(np.flatnonzero(placement.slot == NO_FEATURES).tolist())
    caches = np.split(segments.cache_ids, segments.cache_ptr[1:-1])
    packed = np.split(segments.packed_ids, segments.packed_ptr[1:-1])
    disk = sum(int(padded_bytes(len(ids) * ROW_BYTES)) for ids in (*caches, *packed))
    moved, asked = 0, 0
    members = np.split(segments.members, segments.member_ptr[1:-1])
    for number, ids in enumerate(batches_of(samples)):
        wanted, rows = set(ids.tolist()) - held, members[number].tolist()
        chunk, cached = packed[number].tolist(), caches[segments.segment_of[number]][rows].tolist()
        assert chunk == sorted(chunk) and sorted(chunk + cached) == sorted(wanted)
        moved += int(padded_bytes(len(chunk) * ROW_BYTES)) + PAGE_BYTES * len(pages_of(rows))
        asked += len(wanted) * ROW_BYTES
    return disk, moved, asked


@pytest.mark.parametrize("order", ["auto", "filled", "gray", "minhash", "copies"])
@pytest.mark.parametrize(("epochs", "disk"), [(1, "100x"), (3, "100x"), (1, "2x"), (3, "2x")])
def test_predictions_equal_a_recount_of_the_arrays(made, epochs, disk, order):
    found = plan(made, epochs, disk=disk, order=order)
    numbers = found.summary["numbers"]
    assert recount(made[0][epochs], found) == tuple(numbers[f"{name}_bytes"] for name in ("disk", "moved", "asked"))
    assert numbers["disk_bytes"] <= numbers["disk_budget_bytes"]
    assert (numbers["segment_size"] > 1) == (disk == "2x")
    assert numbers["order"] == order or (order == "auto" and numbers["order"] in ("filled", "copies"))
    assert numbers["num_batches"] == 7 * epochs and all(check["passed"] for check in found.summary["checks"])
    assert found.verify() == []
    *_, held, stored = (check["numbers"] for check in found.summary["checks"])
    assert stored == {"disk, bytes": numbers["disk_bytes"], "disk budget, bytes": numbers["disk_budget_bytes"]}
    assert held["device, bytes"] == numbers["num_device_rows"] * ROW_BYTES <= held["device budget, bytes"]


def test_static_tiers_are_the_most_visited_nodes_within_their_budgets(made):
    found = plan(made, 3, device="5%", host="10%")
    visits = np.asarray(open_samples(made[0][3]).access_counts())
    expected = sorted(range(NODES), key=lambda v: (-int(visits[v]), v))
    placement = open_placement(found)
    assert placement.device_ids.tolist() == expected[: NODES // 20]
    assert placement.host_ids.tolist() == expected[NODES // 20 : NODES // 20 + NODES // 10]


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("disk", ["100x", "2x"])
def test_its_pictures_are_small(made, disk, tmp_path):
    found = plan(made, disk=disk, home=tmp_path)
    sizes = [(found.path / name).stat().st_size for name in found.summary["figures"].values()]
    assert sizes and all(1000 < size < 100_000 for size in sizes)


@pytest.mark.parametrize(("order", "disk"), [("filled", "100x"), ("filled", "3x"), ("copies", "3x")])
@pytest.mark.parametrize("featureless", [1, 2, 5])
def test_nodes_without_features_take_no_space(made, order, disk, featureless):
    """They have a slot that says so and are in no list, whatever level; budgets and counts are of rows that exist."""
    samples, artifacts = made
    features = random_graph_artifacts(artifacts.features.path.parents[2], width=WIDTH, featureless=featureless).features
    found = plan((samples, artifacts._replace(features=features)), 3, disk=disk, order=order)
    numbers, placement, segments = found.summary["numbers"], open_placement(found), open_segment_plan(found)
    without = np.arange(NODES) % featureless == 0
    assert ((placement.slot == NO_FEATURES) == without).all()
    lists = (placement.device_ids, placement.host_ids, segments.cache_ids, segments.packed_ids)
    assert not any(without[ids].any() for ids in lists)
    num_rows = NODES - int(without.sum())
    assert len(placement.device_ids) == num_rows // 20 and len(placement.host_ids) == num_rows // 10
    assert recount(samples[3], found) == tuple(numbers[f"{name}_bytes"] for name in ("disk", "moved", "asked"))
    inputs = [without[ids] for ids in batches_of(samples[3])]
    assert numbers["num_inputs_without_features"] == sum(int(each.sum()) for each in inputs)
    per_batch = [len(each) - int(each.sum()) for each in inputs]
    assert np.asarray(found.array("tier_rows")).sum(axis=1).tolist() == per_batch
    assert numbers["feature_bytes"] == num_rows * ROW_BYTES and all(c["passed"] for c in found.summary["checks"])


def test_features_of_another_graph_are_refused(made, tmp_path):
    samples, artifacts = made
    others = random_graph_artifacts(tmp_path, num_nodes=NODES + 1, width=WIDTH).features
    with pytest.raises(InputError, match=f"are about {NODES + 1} nodes, samples/.* about {NODES}"):
        plan((samples, artifacts._replace(features=others)), home=tmp_path)


@pytest.mark.parametrize(("device", "host"), [(0, 0), ("100%", 0), (0, "100%"), ("50%", "100%")])
def test_tiers_of_nothing_and_of_everything(made, device, host):
    found = plan(made, 3, device, host)
    numbers, visits = found.summary["numbers"], np.asarray(open_samples(made[0][3]).access_counts())
    held = numbers["num_device_rows"] + numbers["num_host_rows"]
    assert held == (0 if (device, host) == (0, 0) else np.count_nonzero(visits))
    assert recount(made[0][3], found) == tuple(numbers[f"{name}_bytes"] for name in ("disk", "moved", "asked"))
    if held:
        assert (numbers["moved_bytes"], numbers["disk_bytes"], numbers["amplification"]) == (0, 0, 1.0)


def test_every_budget_from_the_least_on_is_kept_and_below_it_the_least_is_named(made):
    with pytest.raises(InputError, match="too small") as caught:
        plan(made, 3, disk=0)
    least = int(str(caught.value).split("they need ")[1].split(" bytes")[0])
    with pytest.raises(InputError, match=str(least)):
        plan(made, 3, disk=least - 1)
    sizes = []
    for more in (0, 1, 5000, 40_000, 200_000, 1_000_000):
        numbers = plan(made, 3, disk=least + more).summary["numbers"]
        assert numbers["disk_bytes"] <= least + more
        sizes.append(numbers["segment_size"])
    assert sizes[0] > sizes[-1] and sizes == sorted(sizes, reverse=True)


def test_a_given_size_is_taken_or_refused(made):
    assert plan(made, 3, segment_size=4).summary["numbers"]["num_segments"] == 6
    assert plan(made, 3, segment_size=50).summary["numbers"]["segment_size"] == 21
    with pytest.raises(InputError, match="segment_size = 1 needs"):
        plan(made, 3, disk="2x", segment_size=1)
    with pytest.raises(InputError, match="segment_size = -1 is below 0"):
        CachePlanTable(segment_size=-1)


@pytest.mark.parametrize("order", ["filled", "minhash", "copies"])
def test_bytes_are_equal_at_any_number_of_threads(made, tmp_path, order):
    contents = []
    for threads in (1, 2, 8):
        found = plan(made, 3, disk="2x", order=order, threads=threads, home=tmp_path / str(threads))
        contents.append({name: (found.path / name).read_bytes() for name in found.files})
    assert contents[0] == contents[1] == contents[2]


def test_only_minhash_depends_on_the_seed():
    minhash, *others = (CachePlanTable(order=order) for order in ("minhash", "auto", "filled", "gray", "copies"))
    for order in others:
        assert cache_plan_config(order, 1) == cache_plan_config(order, 2)
    assert cache_plan_config(minhash, 1) != cache_plan_config(minhash, 2)


def test_a_damaged_batch_stops_the_plan(made, tmp_path):
    samples = build_samples(tmp_path, epochs=1)
    part = samples.open_part(next(iter(samples.parts)))
    path = part.path / "batches.npy"
    data = bytearray(path.read_bytes())
    data[6000] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"batch \d+ of epoch 0 of samples/.* is damaged"):
        plan(({1: samples}, random_graph_artifacts(tmp_path)), home=tmp_path)


def test_auto_takes_the_layout_that_reads_fewer_bytes(made):
    for disk in ("3x", "6x", "100x"):
        numbers = {
            order: plan(made, 3, host="0", device="0", disk=disk, order=order).summary["numbers"]
            for order in ("auto", "filled", "copies")
        }
        assert numbers["auto"]["moved_bytes"] == numbers[numbers["auto"]["order"]]["moved_bytes"]
    assert numbers["auto"]["order"] == "filled"  # everything is packed


def test_copies_in_several_segments_keep_to_their_shares(made, monkeypatch):
    monkeypatch.setattr(layout, "PAIRS_WITH_COPIES", 1200)
    found = plan(made, 3, disk="7x", order="copies")
    numbers = found.summary["numbers"]
    assert 3 <= numbers["num_segments"] <= 10 and numbers["disk_bytes"] <= numbers["disk_budget_bytes"]
    assert recount(made[0][3], found) == tuple(numbers[f"{name}_bytes"] for name in ("disk", "moved", "asked"))
    assert all(check["passed"] for check in found.summary["checks"])


def test_copies_that_do_not_fit_are_refused_or_not_made(made, monkeypatch):
    monkeypatch.setattr(layout, "plan_copies", lambda *_, **__: None)
    with pytest.raises(InputError, match=r"do not fit .* of the disk budget"):
        plan(made, 3, disk="2x", host="7%", order="copies")
    assert plan(made, 3, disk="2x", host="7%").summary["numbers"]["order"] == "filled"


def test_auto_falls_back_where_a_later_segment_has_no_room_for_copies(made, monkeypatch):
    calls, real = [], layout.plan_copies

    def fits_once(*arguments, **options):
        calls.append(arguments)
        return real(*arguments, **options) if len(calls) == 1 else None

    monkeypatch.setattr(layout, "PAIRS_WITH_COPIES", 1200)
    monkeypatch.setattr(layout, "plan_copies", fits_once)
    monkeypatch.setattr(layout, "GOOD", 0)
    monkeypatch.setattr(layout.SegmentPlanner, "amplification", lambda self, layout: float(layout.order == "filled"))
    found = plan(made, 3, disk="7x", host="8%")
    assert len(calls) == 2 and found.summary["numbers"]["order"] == "filled" and found.verify() == []
    assert all(check["passed"] for check in found.summary["checks"])


def test_rows_without_columns_have_no_copies():
    choice = SegmentChoice(
        size=1, rows=5, full_rows=5, as_printed=None, rows_as_printed=0, pairs=np.array([2, 3]), row_bytes=0,
        disk_budget=0, asked_size=0, blocks=[(0, 2)],
    )  # fmt: skip
    for order in ("auto", "copies"):
        planner: Any = SimpleNamespace(choice=choice)  # nothing is planned
        assert layout.choose_layout(planner, order, Silent()) == ("filled", [(0, 1), (1, 2)])


def test_of_many_batches_the_nearest_sizes_are_named(made, monkeypatch):
    monkeypatch.setattr("graphmill.assets.cache_plan.segment_size.SegmentSizes", partial(SegmentSizes, exact_sizes=2))
    with pytest.raises(InputError, match=r"segment_size = 5: of 7 batches(?s:.*)give 4 or 7, or 0 for the search"):
        plan(made, segment_size=5)
    assert plan(made, segment_size=4).summary["numbers"]["segment_size"] == 4


def test_rows_of_blocks_are_those_of_segments_inside_them():
    draw, blocks = np.random.default_rng(4), [(0, 5), (5, 10), (10, 12)]
    batches = [np.sort(draw.choice(60, draw.integers(0, 20), replace=False)).astype(np.int32) for _ in range(12)]
    slot = np.where(np.arange(60) < 6, make_slots(HOST, np.arange(60)), ELSEWHERE).astype(np.int32)
    loaded: Any = SimpleNamespace(
        num_batches=12, blocks=blocks, threads=1,
        load=lambda first, last: (np.cumsum([0, *map(len, batches[first:last])]), np.concatenate(batches[first:last])),
    )  # fmt: skip
    sizes = segment_size._count(loaded, slot, Silent())
    assert list(sizes.sizes()) == [1, 2, 3, 4, 5] and sizes.as_printed(10**6) is None
    for size in sizes.sizes():
        cuts = segment_size.cut(blocks, size)
        expected = sum(stored_rows_reference(*loaded.load(first, last), slot, last - first) for first, last in cuts)
        assert sizes.rows(size) == expected and all(last - first <= size for first, last in cuts)
        assert {edge for block in blocks for edge in block} <= {edge for each in cuts for edge in each}
    assert sizes.smallest(sizes.rows(3)) == min(n for n in range(1, 6) if sizes.rows(n) <= sizes.rows(3))
    assert sizes.pairs().tolist() == [int((ids >= 6).sum()) for ids in batches]
