"""Rows on the devices of ranks: the bits of the exchange, each row once from where the plan says, and no wrong start."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphmill.assets.graph.read import open_graph
from graphmill.assets.hotness.read import open_hotness
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.techniques.distributed.costs import remote_links
from graphmill.trainers.techniques.distributed.hot_rows import choose_hot
from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from tests.assets.budgets.test_budgets import write_measured
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import SAMPLING, Stops, content, parts_inputs, train_parts
from tests.trainers.techniques.distributed.test_distributed import bits, ledger, trained

PEER = {"settings": {"exchange": "peer"}, "memory": {"device": "20%", "host": "10%"}}
OWN = {"memory": PEER["memory"]}
EPOCHS = 2


def hottest(order, owner, room, shared):
    """The rows of each device by the rule, one after the other: on every device, then on that of their rank, where there is room."""
    everywhere, by_rank = order[:shared], {rank: [] for rank in range(len(room))}
    for node in order[shared:].tolist():
        if len(by_rank[owner[node]]) < room[owner[node]] - shared:
            by_rank[owner[node]].append(node)
    return set(everywhere.tolist()), [set(each) for each in by_rank.values()]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_each_device_has_the_hottest_rows_of_its_parts_behind_those_of_all(monkeypatch, share):
    monkeypatch.setattr(
        "graphmill.trainers.techniques.distributed.hot_rows.node_ranges", lambda n: [(0, 7), (7, 40), (40, n)]
    )
    generator = np.random.default_rng(3)
    order, owner, row_of = generator.permutation(100), generator.integers(0, 3, 100), np.arange(100)
    row_of[generator.permutation(100)[:9]] = -1
    found = choose_hot(order, row_of, lambda ids: owner[ids], {0: 10, 1: 6, 2: 14}, share)
    featured = order[row_of[order] >= 0]
    everywhere, by_rank = hottest(featured, owner, [10, 6, 14], int(6 * share))
    assert set(found.everywhere.tolist()) == everywhere and [set(each.tolist()) for each in found.by_rank] == by_rank
    assert all((np.diff(each) > 0).all() for each in (found.everywhere, *found.by_rank))
    assert choose_hot(order, row_of, lambda ids: owner[ids], {0: 0}, share).everywhere.size == 0


@pytest.mark.parametrize("replicated", [0.0, 0.5, 1.0])
def test_rows_on_devices_give_the_bits_of_the_exchange(tmp_path, replicated):
    options = {"epochs": EPOCHS, "featureless": 7, "dropout": 0.3}
    expected = bits(trained(tmp_path, 4, 1, **options)[0])
    peer = PEER | {"settings": {"exchange": "peer", "replicated": replicated}}
    for world in (1, 2, 4) if replicated == 0.5 else (2,):
        model, _ = trained(tmp_path, 4, world, **options, **peer)
        assert bits(model) == expected
        assert all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")
        counts, _ = ledger(model)
        assert (counts["hits_peer", 0] > 0) == (world > 1 and replicated < 1) and counts["hits_device", 0] > 0


@pytest.mark.parametrize("device", ["20%", "100%"])
def test_ranks_that_share_no_device_have_the_hottest_rows_on_their_own(tmp_path, device):
    options = {"epochs": EPOCHS, "featureless": 7, "dropout": 0.3}
    expected = bits(trained(tmp_path, 4, 1, **options)[0])
    for world in (1, 2, 4):
        model, _ = trained(tmp_path, 4, world, **options, memory={"device": device, "host": "10%"})
        assert bits(model) == expected
        assert all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")
        counts, moves = ledger(model)
        assert counts["hits_device", 0] > 0 and counts.get(("hits_peer", 0), 0) == 0
        assert (moves.get(("rank", "feature"), 0) > 0) == (device == "20%" and world > 1)


@pytest.mark.parametrize(
    "more", [{"features": "direct"}, {"settings": {"scheme": "vanilla"}}, {"settings": {"scheme": "unfused"}}], ids=str
)
@pytest.mark.parametrize("rows", [PEER, OWN], ids=["peer", "own"])
def test_other_ways_of_rows_and_blocks_stay_as_they_are(tmp_path, rows, more):
    settings = rows.get("settings", {}) | more.get("settings", {})
    options = {"epochs": 1} | rows | more | {"settings": settings}
    assert bits(trained(tmp_path, 2, 2, **options)[0]) == bits(trained(tmp_path / "plain", 2, 2, epochs=1)[0])


@pytest.mark.parametrize("rows", [PEER, OWN], ids=["peer", "own"])
def test_bytes_between_devices_are_those_of_the_sets(tmp_path, rows):
    """Own and other devices' rows, cached rows and exchanged rows, counted outside from the batches and the order."""
    world, row_bytes, peer = 2, 48, rows is PEER
    sampling = SamplingConfig(fanouts=SAMPLING.fanouts, batch_size=SAMPLING.batch_size)
    model, _ = trained(tmp_path, world, world, epochs=EPOCHS, sampling=sampling, **rows)
    inputs, reads = parts_inputs(tmp_path, world, memory=PEER["memory"])
    graph, part_of = open_graph(inputs["graph"]), open_partitions(inputs["partitions"]).part_of
    order = open_hotness(reads["hotness"]).order
    numbers = reads["budgets"].summary["numbers"]
    room, host = numbers["device_bytes"] // row_bytes, numbers["host_bytes"] // row_bytes
    replicated = room // 2 if peer else room
    everywhere, by_rank = hottest(np.asarray(order), part_of, [room, room], replicated)
    on_devices = everywhere.union(*by_rank)
    caches = [
        {n for n in [n for n in order.tolist() if n not in on_devices and part_of[n] != rank][:host]}
        for rank in range(world)
    ]
    steps, batches = [], []
    expected = dict.fromkeys(("hits_device", "hits_peer", "hits_host", "hits_own", "hits_remote"), 0)
    train_ids = np.array(graph.train_ids)
    plan = PartPlan(train_ids, part_of[train_ids], world, sampling.batch_size, seed=5, accumulate=3)
    sampler = Sampler(graph.topology, sampling.numbers, seed=5)
    for epoch in range(EPOCHS):
        for item in plan.batches(epoch):
            steps.append(item.key.step)
            batches.append(sampler.sample(item.key, item.seeds)[0].src_ids)
            rank = item.key.step % world
            for node in batches[-1].tolist():
                if node in everywhere or node in by_rank[rank]:
                    expected["hits_device"] += 1
                elif node in by_rank[1 - rank]:
                    expected["hits_peer"] += 1
                elif node in caches[rank]:
                    expected["hits_host"] += 1
                else:
                    expected["hits_own" if part_of[node] == rank else "hits_remote"] += 1
    counts, moves = ledger(model)
    assert {name: counts.get((name, 0), 0) for name in expected} == expected
    assert [name for name, count in expected.items() if count == 0] == ([] if peer else ["hits_peer"])
    assert moves["d2d", "feature"] == row_bytes * (expected["hits_device"] + expected["hits_peer"])
    assert moves["rank", "feature"] == row_bytes * expected["hits_remote"]
    crossing = sum(expected[name] for name in ("hits_host", "hits_own", "hits_remote"))
    assert moves["h2d", "feature"] == row_bytes * crossing
    sizes = {"row_bytes": row_bytes, "num_nodes": len(order), "num_rows": len(order), "artifacts": reads}
    case: Any = SimpleNamespace(
        ranks=world,
        sizes=SimpleNamespace(**sizes),
        part_of=part_of,
        order=order,
        drawn=SimpleNamespace(count=len(batches)),
        with_rows=lambda ids: ids,
        settings=DistributedSettings(**rows.get("settings", {})),
        feature_place="memory",
    )
    found = {link: moves[link, "feature"] for link in ("h2d", "d2d")}
    assert remote_links(case, steps, batches) == (
        found,
        expected["hits_remote"],
    )  # the forecast, of the batches themselves
    record = model.run_record()["cache"]
    assert (record["device_rows"], record["replicated_rows"], record["peer_rows"]) == (
        room,
        replicated,
        2 * (room - replicated),
    )


def test_a_run_goes_on_with_rows_on_devices(tmp_path):
    options = {"epochs": EPOCHS, "checkpoint_steps": 1}
    straight, _ = trained(tmp_path / "straight", 2, 2, **options)

    def work(ranks, resume=False, progress=None):
        return train_parts(tmp_path, 2, ranks, resume=resume, progress=progress, **options, **PEER)

    parts_inputs(tmp_path, 2, memory=PEER["memory"])
    with pytest.raises(ConnectionAbortedError):
        run_threads(2, lambda ranks: work(ranks, progress=Stops(3) if ranks.first else None))
    found = run_threads(2, lambda ranks: work(ranks, resume=True))[0]
    assert content(found)["weights.safetensors"] == content(straight)["weights.safetensors"]


def test_the_rank_whose_device_fails_is_named(tmp_path, monkeypatch):
    """And no rank waits for it: all raise the same error."""

    def gone(self, handle):
        raise InputError(f"the rows of process {handle['process']} cannot be opened", "see why it ended")

    monkeypatch.setattr("graphmill.trainers.devices.logical.LogicalDevice.open_peer", gone)
    parts_inputs(tmp_path, 2, memory=PEER["memory"])
    failed = []

    def work(ranks):
        try:
            train_parts(tmp_path, 2, ranks, epochs=1, **PEER)
        except InputError as error:
            failed.append(error.problem)

    run_threads(2, work)
    assert len(failed) == 2 and len(set(failed)) == 1 and failed[0].startswith("rank 0: the rows of process")


@pytest.mark.parametrize("settings", [{}, {"exchange": "peer"}], ids=["of its own", "peer"])
@pytest.mark.parametrize("world", [1, 2])
def test_an_automatic_device_takes_what_a_step_leaves(tmp_path, settings, world):
    """Devices of ranks that have no memory of their own share the machine's; a batch of the first seeds says what a step takes."""
    expected = bits(trained(tmp_path / "plain", 4, 1, epochs=EPOCHS)[0])
    memory = {"device": "auto", "host": 0}
    write_measured(tmp_path / "all", 1 << 30)
    everything = trained(tmp_path / "all", 4, world, epochs=EPOCHS, settings=settings, memory=memory)[0]
    record = everything.run_record()["cache"]
    assert record["device_rows"] == 400 and ledger(everything)[0]["hits_device", 0] > 0
    total = world * (record["simulated_peak_bytes"] * 5 // 4 + 30 * 48)
    write_measured(tmp_path / "some", 4 * total)
    some = trained(tmp_path / "some", 4, world, epochs=EPOCHS, settings=settings, memory=memory)[0]
    assert some.run_record()["cache"]["device_budget_bytes"] // 48 == 30
    for model in (everything, some):
        assert bits(model) == expected
        assert all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")
