"""The technique `fresh-distributed`: histories by part, the same bits on any number of ranks, and exact counts of what survives."""

from typing import Any

import numpy as np
import pytest

from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.trainers.ranks.group import ALONE
from graphmill.trainers.techniques.fresh.arena_rows import ArenaRows
from graphmill.trainers.techniques.fresh.batches import Pruner
from graphmill.trainers.techniques.fresh_distributed.settings import FreshDistributedSettings
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import Stops, build_shards, parts_inputs, train_fresh, train_parts, train_small
from tests.trainers.techniques.distributed.test_distributed import bits, ledger, trained

POLICIES = ("accuracy", "accuracy+features", "performance+features")
ONE_EACH = {"sampling": SamplingConfig(fanouts=(4, 3), batch_size=8, reuse=2), "accumulate": 1, "dropout": 0.3}
"""Small batches, one of every part per step, so that histories are found again."""
FROM_HOSTS = ("hits_own", "hits_host", "hits_remote")
"""Counts of rows that come from the memory of a host."""


def passed(model: Any) -> bool:
    return all(check["passed"] for check in model.summary["checks"] if check["name"] == "ledger equals plan")


@pytest.mark.parametrize("policy", POLICIES)
def test_one_part_is_fresh_to_the_bit(tmp_path, policy):
    mine, _ = trained(tmp_path, 1, 1, fresh={"policy": policy}, dropout=0.3)
    assert bits(mine) == bits(train_fresh(tmp_path, fresh={"policy": policy}, dropout=0.3))
    assert ledger(mine)[0]["history_hits", 1] > 0 and passed(mine)


def test_with_nothing_kept_the_bits_are_those_of_the_technique_without(tmp_path):
    for parts, world in ((1, 1), (4, 2)):
        none, _ = trained(tmp_path / str(parts), parts, world, fresh={"t_stale": 0}, dropout=0.3)
        plain, _ = trained(tmp_path / str(parts), parts, world, dropout=0.3)
        assert bits(none)[0] == bits(plain)[0] and none.version != plain.version
    assert bits(trained(tmp_path / "1", 1, 1, fresh={"p_grad": 0.0})[0])[0] == bits(train_small(tmp_path / "1"))[0]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "model",
    [
        {"model": "sage", "norm": "batch"},
        pytest.param(
            {"model": "gat", "heads": 2, "norm": "layer"}, marks=pytest.mark.slow("GAT with histories by part")
        ),
    ],
    ids=lambda model: model["model"],
)
def test_the_number_of_ranks_decides_nothing(tmp_path, policy, model):
    options = ONE_EACH | model | {"fresh": {"policy": policy}}
    made, found = [], []
    for world in (1, 2, 4):  # each is read before the next one takes its place
        model, _ = trained(tmp_path, 4, world, **options)
        made.append((model.version, *bits(model)))
        found.append(ledger(model)[0])
        assert passed(model)
    assert len(set(made)) == 1 and found[0]["history_hits", 1] > 0
    for name in ("history_hits", "pruned_nodes", "pruned_edges", "history_admitted"):
        assert len({each[name, 1] for each in found}) == 1, name


@pytest.mark.parametrize(
    "method", ["metis", pytest.param("ldg", marks=pytest.mark.slow("histories over streamed parts"))]
)
def test_any_parts_cache_and_sampler_give_the_same_bits(tmp_path, method):
    options = ONE_EACH | {"method": method, "featureless": 7, "fresh": {}}
    expected = bits(trained(tmp_path, 2, 1, **options)[0])
    for more in (
        {},
        {"features": "memory"},
        {"memory": {"device": 0, "host": "20%"}},
        {"settings": {"scheme": "unfused"}},
        {"samplers": 3, "queue": "60kB"},
        {"checkpoint_steps": 1},
    ):
        assert bits(trained(tmp_path, 2, 2, **options, **more)[0]) == expected, more


def test_parts_with_fewer_seeds_have_empty_batches(tmp_path):
    options = ONE_EACH | {"sampling": SamplingConfig(fanouts=(3, 3), batch_size=1, reuse=1), "epochs": 2, "fresh": {}}
    models = [trained(tmp_path, 4, world, **options)[0] for world in (1, 4)]
    assert bits(models[0]) == bits(models[1])
    counts, _ = ledger(models[1])
    assert counts["seeds", 0] == 400 < counts["batches", 0] and counts["history_hits", 1] > 0


@pytest.mark.parametrize("cache", [None, {"device": 0, "host": "10%", "seed": 1}], ids=["none", "host 10%"])
def test_what_is_exchanged_is_what_survives(tmp_path, monkeypatch, cache):
    """Survivors of other ranks that no arena and no cache has, counted beside the trainer; two rounds and one of sizes per batch."""
    made = random_graph_artifacts(tmp_path)
    inputs, _ = build_shards(tmp_path, made.inputs, 4)
    part_of, survivors, needed = open_partitions(inputs["partitions"]).part_of, [], []
    real, gathered = Pruner.pruned, ArenaRows.gather

    def seen(self, batch):
        batch = real(self, batch)
        survivors.append((batch.key.step % 4, np.array(batch.input_ids)))
        return batch

    def looked(self, batch, out, moved):
        places = self.history.lookup_features(batch.input_ids)
        needed.append((batch.key.step % 4, batch.input_ids[places < 0], self.below))
        gathered(self, batch, out, moved)

    monkeypatch.setattr(Pruner, "pruned", seen)
    monkeypatch.setattr(ArenaRows, "gather", looked)
    model, _ = trained(tmp_path, 4, 2, memory=cache, eval_every=3, **ONE_EACH, fresh={"arena": "20%"})
    counts, moves = ledger(model)
    batches = (
        PartPlan(
            np.array(made.open().train_ids), part_of[np.array(made.open().train_ids)], 4, 8, seed=5, reuse=2
        ).num_batches
        * 3
    )
    assert counts["batches", 0] == batches == len(survivors) == len(needed)
    assert counts["rounds", 0] == 2 * batches and counts["size_rounds", 0] == batches
    assert counts["inputs", 0] == sum(len(ids) for _, ids in survivors) and counts["pruned_nodes", 0] > 0
    remote = [(part, ids[part_of[ids] // 2 != part // 2], below) for part, ids, below in needed]
    cached = sum(int((below._slot[ids] >= 0).sum()) for _, ids, below in remote)
    rows = sum(len(ids) for _, ids, _ in remote) - cached
    assert counts["hits_remote", 0] == rows > 0 and (cached > 0) == (cache is not None)
    assert moves["rank", "feature"] == rows * made.open().features.row_bytes
    # The rows in an arena are those of other parts.
    assert counts["hits_arena", 0] == sum(len(ids) for _, ids in survivors) - sum(len(ids) for _, ids, _ in needed) > 0


@pytest.mark.parametrize(
    ("before", "after", "policy"),
    [
        (2, 2, "performance+features"),
        (1, 4, "accuracy"),
        pytest.param(4, 2, "accuracy+features", marks=pytest.mark.slow("from four ranks to two, with histories")),
    ],
)
def test_a_run_goes_on_from_a_checkpoint_on_any_number_of_ranks(tmp_path, before, after, policy):
    options = ONE_EACH | {"checkpoint_steps": 1, "fresh": {"policy": policy}}
    expected = trained(tmp_path / "straight", 4, after, **options)[0]
    assert ledger(expected)[0]["history_hits", 1] > 0
    parts_inputs(tmp_path / "home", 4)

    def work(ranks, **how):
        return train_parts(tmp_path / "home", 4, ranks, **options, **how)

    for stop in (13, 30):
        with pytest.raises(ConnectionAbortedError):
            if before == 1:
                work(ALONE, resume=stop > 13, progress=Stops(stop))
            else:
                run_threads(before, lambda ranks, stop=stop: work(ranks, resume=stop > 13, progress=Stops(stop)))
    found = run_threads(after, lambda ranks: work(ranks, resume=True))[0]
    assert bits(found) == bits(expected)


@pytest.mark.parametrize("policy", ["accuracy+features", "performance+features"])
def test_rows_on_devices_of_ranks_give_the_bits_of_the_exchange(tmp_path, policy):
    """What the arena keeps is not changed by them, and rows that it does not have come from a device, or from where they came before."""
    options = ONE_EACH | {"fresh": {"policy": policy}, "epochs": 2}
    plain, _ = trained(tmp_path, 4, 2, **options)
    expected, before = bits(plain), ledger(plain)[0]
    peer = {"settings": {"exchange": "peer"}, "memory": {"device": "20%", "host": "10%"}}
    for world in (1, 2):
        model, _ = trained(tmp_path, 4, world, **options, **peer)
        assert bits(model) == expected and passed(model)
        counts, _ = ledger(model)
        kept = {each for each in before if each[0] in ("history_hits", "inputs", "pruned_nodes", "pruned_edges")}
        assert kept and all(counts[each] == before[each] for each in kept)
        assert (counts["hits_peer", 0] > 0) == (world == 2)
        # Rows of the arena are among those of the own device.
        on_devices = counts["hits_device", 0] + counts["hits_peer", 0] - before.get(("hits_device", 0), 0)
        elsewhere = [sum(each.get((name, 0), 0) for name in FROM_HOSTS) for each in (before, counts)]
        assert on_devices == elsewhere[0] - elsewhere[1] > 0


def test_mistakes_are_told(tmp_path):
    for keys, message in (
        ({"p_grad": 2.0}, "above 1"),
        ({"ranks": 0}, "below 1"),
    ):
        with pytest.raises(InputError, match=message):
            FreshDistributedSettings(**keys)
