"""What ranks of a benchmark count, how runs are drawn as one, and accuracy by number of parts."""

from typing import Any

import numpy as np
import pytest

from benchmarks import distributed_quality, distributed_rank, distributed_scaling
from benchmarks.distributed import GBPS, parts_of, remote_rows
from graphmill.assets.building.materialize import materialize
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.shards.config import ShardsConfig, ShardsExecution
from graphmill.assets.shards.stage import SHARDS
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.ranks.group import ALONE
from graphmill.trainers.recipe.config import TrainTable
from tests.graphs import GraphArtifacts, build_graph

SAMPLING: dict[str, Any] = {"fanouts": [3, 2], "batch_size": 16}
SIZE = {"nodes": 300, "edges": 2_400, "features": 8, "classes": 3, "train_ratio": 0.4}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, GraphArtifacts]:
    store = Store(tmp_path_factory.mktemp("home"))
    return store, build_graph(store, config_class("sbm")(undirected=True, seed=1, **SIZE))


def needed(store: Store, graph: GraphArtifacts, ranks: int) -> int:
    """Rows of other ranks that the batches of two epochs need, node by node."""
    opened, cut = graph.open(), open_partitions(parts_of(store, graph.graph, "random"))
    train_ids = np.array(opened.train_ids)
    plan = PartPlan(train_ids, cut.part_of[train_ids], 4, SAMPLING["batch_size"], seed=0)
    sampler = Sampler(opened.topology, SAMPLING["fanouts"], seed=0)
    rank_of = {1: [0, 0, 0, 0], 2: [0, 0, 1, 1], 4: [0, 1, 2, 3]}[ranks]
    batches = [item for epoch in (0, 1) for item in plan.batches(epoch)]
    return sum(
        rank_of[cut.part_of[node]] != rank_of[item.key.step % 4]
        for item in batches
        for node in sampler.sample(item.key, item.seeds)[0].src_ids
    )


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_rows_of_other_ranks_are_counted_for_any_number_of_ranks(small: Any, ranks: int) -> None:
    store, graph = small
    found = remote_rows(graph.open(), parts_of(store, graph.graph, "random"), SAMPLING, 2, ranks)
    assert found == needed(store, graph, ranks)
    assert (found > 0) == (ranks > 1)


def test_one_rank_has_no_rounds_and_no_bytes_of_others(small: Any) -> None:
    store, graph = small
    cut = parts_of(store, graph.graph, "random")
    rows = {"features": graph.features, "partitions": cut}
    shards = materialize(store, SHARDS, ShardsConfig(), ShardsExecution(), rows)
    artifacts = {"graph": graph.graph, **rows, "shards": shards}
    order: dict[str, Any] = {
        "home": str(store.home), "schemes": ["unfused", "hybrid"], "latencies": [0.0], "gbps": GBPS, "repeats": 1,
        "artifacts": {name: each.version for name, each in artifacts.items()}, "sampling": SAMPLING,
        "table": {"layers": 2, "hidden": 8, "epochs": 1, "threads": 1, "dropout": 0.0},
    }  # fmt: skip
    found = distributed_rank.measured(order, ALONE)
    assert [row["scheme"] for row in found["rows"]] == order["schemes"] and found["epochs"] == 2
    for row in found["rows"]:
        distributed_scaling.require_counts(row, 1, 0)
        of = distributed_scaling.of_epoch(row, 2)
        assert of["rank_batches"] == row["batches"] / 2 > 0 and of["held_feature_bytes"] == 300 * 8 * 4
        assert not any(of[f"rank_{kind}_bytes"] for kind in ("feature", "topology", "gradient"))
    assert len({row["weights"] for row in found["rows"]}) == 1


def test_rounds_and_bytes_that_differ_from_the_scheme_are_refused() -> None:
    row = {"scheme": "vanilla", "batches": 8, "rounds": 48, "feature_bytes": 100}
    distributed_scaling.require_counts(row, 2, 100)
    for wrong, world in (({"rounds": 16}, 2), ({"feature_bytes": 99}, 4), ({"scheme": "hybrid"}, 2), ({}, 1)):
        with pytest.raises(AssertionError):
            distributed_scaling.require_counts(row | wrong, world, 100)


def test_of_several_ranks_the_one_with_the_most_counts() -> None:
    names = ("batches", "rounds", "feature_bytes", "topology_bytes", "gradient_bytes")
    row = {
        "seconds": [2.0], "cpu_seconds": [[1.0, 3.0]], "by_rank": [dict.fromkeys(names, 6), dict.fromkeys(names, 8)],
        "memory": [{"topology_bytes": 5, "feature_bytes": 9}, {"topology_bytes": 7, "feature_bytes": 2}],
    }  # fmt: skip
    found = distributed_scaling.of_epoch(row, 2)
    assert found["rank_cpu_seconds"] == [3.0] and {found[f"rank_{name}"] for name in names} == {4}
    assert (found["held_topology_bytes"], found["held_feature_bytes"]) == (7, 9)


def test_full_runs_of_a_latency_are_drawn_as_one() -> None:
    def run(scale: str, latency: float, *seconds: float) -> dict[str, Any]:
        rows = [{"ranks": 2, "scheme": "hybrid", "seconds": list(seconds)}]
        return {"scale": scale, "latency_us": latency, "rows": rows}

    rows = [run("full", 100.0, 1.0, 2.0), run("quick", 100.0, 9.0), run("full", 100.0, 6.0), run("full", 5000.0, 4.0)]
    assert distributed_scaling.medians(rows, "seconds") == {
        100.0: {(2, "hybrid"): 2.0},
        5000.0: {(2, "hybrid"): 4.0},
    }


def test_accuracy_by_parts_begins_with_one_part_and_counts_steps(small: Any) -> None:
    store, _ = small
    table = TrainTable(name="sage", model="sage", layers=2, hidden=8, epochs=1, threads=1)
    graph = config_class("sbm")(undirected=True, seed=1, **SIZE)
    case = distributed_quality.Case(graph, SamplingConfig(fanouts=(3, 2), batch_size=32), table)
    rows = distributed_quality.measured(store, case, (1, 2), 1)
    found = {(row["way"], row["parts"]): row for row in rows}
    assert len(found) == 2 * len(distributed_quality.WAYS)
    assert len({tuple(row["tests"]) for row in rows if row["parts"] == 1}) == 1
    assert found["batch per step", 2]["batch_size"] == 16 and found["batch per part", 2]["batch_size"] == 32
    steps = {case: row["steps"] for case, row in found.items()}  # 120 training nodes
    assert steps["batch per step", 1] == 4 > steps["batch per part", 2] >= 2
    assert steps["batch per step", 2] >= 4


def test_differences_to_one_part_are_paired_by_seed() -> None:
    assert distributed_quality.difference([80.0, 90.0], [81.0, 91.0]) == {"mean": 1.0, "deviation": 0.0}
    assert distributed_quality.difference([80.0, 90.0], [81.0, 93.0]) == {"mean": 2.0, "deviation": 1.41}
    assert distributed_quality.spread([50.0]) == {"mean": 50.0, "deviation": 0.0}


def test_one_part_that_differs_from_plain_batches_is_refused(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, graph = small
    table = TrainTable(name="sage", model="sage", layers=2, hidden=8, epochs=1, threads=1)
    case = distributed_quality.Case(
        config_class("sbm")(undirected=True, seed=1, **SIZE), SamplingConfig(fanouts=(3, 2), batch_size=32), table
    )
    real = distributed_quality.trained
    monkeypatch.setattr(distributed_quality, "trained", lambda *given: real(*given[:-1], given[-1] + 1))
    with pytest.raises(AssertionError, match="differs from minibatch"):
        distributed_quality.require_minibatch(store, graph, case)
