"""Laws 3 and 4 for cached rows: each needed row comes once, from one tier, byte-equal; no tier holds more than its budget, 0 included."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.graph.read import open_graph
from assets.storage.artifact import Artifact
from kernels.rows.placement import place_bytes
from kernels.rows.slots import DEVICE, HOST, split_slots
from tests.trainers.graphs import random_graph_artifact
from tests.trainers.rows.caches import cache_inputs
from tests.trainers.runs import SAMPLING, TABLE, content, train_small
from trainers.config import TrainTable
from trainers.devices.logical import LogicalDevice
from trainers.open_rows import open_features
from trainers.record.ledger import Ledger
from trainers.rows.cache import CachedSource
from trainers.rows.source import RowIds, open_source

NUM_NODES, ROW_BYTES = 400, 48
TABLE_BYTES = NUM_NODES * ROW_BYTES
budgets = st.one_of(st.just(0), st.just(TABLE_BYTES), st.integers(0, TABLE_BYTES + 100))


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return random_graph_artifact(tmp_path_factory.mktemp("home"))


@settings(max_examples=120, deadline=None)
@given(
    st.integers(0, 2**32),
    budgets,
    budgets,
    st.sampled_from(["mapped", "memory"]),
    st.sampled_from([1 << 29, NUM_NODES - 1]),
    st.lists(st.integers(0, NUM_NODES - 1), max_size=200),
)
def test_rows_come_once_from_one_tier_within_budgets(
    artifact: Artifact, seed: int, device_bytes: int, host_bytes: int, where: str, max_rows: int, needed: list[int]
) -> None:
    graph = open_graph(artifact)
    order = np.random.default_rng(seed).permutation(NUM_NODES)
    placement = place_bytes(order, ROW_BYTES, device_bytes, host_bytes)
    device = LogicalDevice(cache_bytes=device_bytes)
    source = CachedSource(graph.features, open_source(graph.features, where), placement, device, max_rows)
    ids, ledger = np.array(needed, np.int32), Ledger()
    out = torch.full((len(ids), 12), torch.nan)
    source.gather(RowIds(ids), out, ledger)

    assert out.numpy().tobytes() == np.asarray(graph.features.open())[ids].tobytes()
    assert device.peak.get("cache", 0) <= device_bytes and source.host_bytes <= host_bytes
    counted = {row["name"]: row["n"] for row in ledger.rows()["counts"]}
    tier = split_slots(placement.slot[ids])[0]
    assert counted["hits_device"] == (tier == DEVICE).sum() and counted["hits_host"] == (tier == HOST).sum()
    assert sum(counted.values()) == len(ids)
    assert ledger.moved_bytes("d2d") == counted["hits_device"] * ROW_BYTES
    assert ledger.moved_bytes("h2d") == (counted["hits_host"] + counted["misses"]) * ROW_BYTES
    # Nobody can take a row that is not there: a table of other bytes behind the cache leaves the cached rows as they were.
    source.behind.rows = np.zeros((NUM_NODES, 12), np.float32)
    source.gather(RowIds(ids), out, Ledger())
    cached = tier >= 0
    np.testing.assert_array_equal(out.numpy()[cached], graph.features.open()[ids[cached]])
    assert not out.numpy()[~cached].any()


@pytest.mark.parametrize(
    "memory",
    [
        {"device": 0, "host": 0},
        {"device": "100%", "host": 0},
        {"device": 0, "host": "100%"},
        {"device": "3%", "host": "7%", "seed": 1},
        {"device": "3%", "host": "7%", "seed": 2},
        {"device": "40%", "host": "5x", "seed": 3},
    ],
)
def test_losses_are_bit_equal_with_any_placement(tmp_path: Path, memory: dict) -> None:
    plain = content(train_small(tmp_path / "plain"))
    cached = train_small(tmp_path / "cached", memory=memory, samplers=3)
    for name in ("weights.safetensors", "metrics.jsonl"):
        assert content(cached)[name] == plain[name]
    record = cached.run_record()["cache"]
    assert record["device_rows"] * ROW_BYTES <= record["device_budget_bytes"]
    assert record["host_rows"] * ROW_BYTES <= record["host_budget_bytes"]
    assert cached.run_record()["peak_bytes"].get("cache", 0) == record["device_rows"] * ROW_BYTES


def test_the_budget_of_a_run_is_the_stage_s(artifact: Artifact) -> None:
    from kernels.sampling.epoch_plan import EpochPlan
    from trainers.config import ModelConfig

    home = artifact.path.parents[2]
    graph, table = open_graph(artifact), TrainTable(**TABLE)
    semantic = ModelConfig(seed=5, train=table.config, sampling=SAMPLING)
    plan = EpochPlan(np.array(graph.train_ids), SAMPLING.batch_size, seed=5)
    for device, host in ((0, 0), (48 * 7, 48 * 11 + 47), ("50%", "25%")):
        cache = cache_inputs(home, artifact, device=device, host=host, disk=0)
        made = open_features(graph, semantic, table.execution, plan, cache)
        rows = [200, 100] if device == "50%" else [device // 48, host // 48]
        assert [made.record["device_rows"], made.record["host_rows"]] == rows
