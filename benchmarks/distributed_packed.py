"""Epochs of two ranks whose rows are exchanged, and whose rows are packed beforehand (FastSample with DiskGNN).

    python -m benchmarks.distributed packed

One R-MAT graph is cut into two parts, and two processes train the same batches in four ways: rows of the other rank fetched as batches need
them, the same with stored batches, the same with a cache of the hottest of them, and packed rows with static tiers of as many bytes as that
cache. The network between them is modelled, `GBPS` per rank; packed rows come from this machine's disk, past the page cache. Weights after
the epochs are compared to the bit, and the ledger has no byte of features between ranks of the last way. Each rank is this file, with its
order on standard input.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

from graphmill.assets.budgets.config import BudgetsConfig, BudgetsExecution, MemoryConfig
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.child import end_with_parent
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Silent
from graphmill.assets.cache_plan.config import CachePlanTable, cache_plan_config
from graphmill.assets.cache_plan.stage import CACHE_PLAN
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.packed_chunks.config import PackedConfig, PackedExecution
from graphmill.assets.packed_chunks.stage import PACKED_CHUNKS
from graphmill.assets.partitions.config import PartitionsTable, partitions_config
from graphmill.assets.partitions.stage import PARTITIONS
from graphmill.assets.samples.config import SamplesExecution, SamplesTable, samples_config
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.shards.config import ShardsConfig, ShardsExecution
from graphmill.assets.shards.stage import SHARDS
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.devices.torch_threads import torch_threads
from graphmill.trainers.ranks.group import Ranks, joined
from graphmill.trainers.ranks.launch import run_ranks
from graphmill.trainers.ranks.leave import leave
from graphmill.trainers.recipe.config import ModelConfig, TrainTable
from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from graphmill.trainers.training.training import RunExecution, Training
from tests.graphs import build_graph

GBPS = 1.0
SMALL, LARGE = {"nodes": 20_000, "edges": 200_000}, {"nodes": 1_000_000, "edges": 10_000_000}
WIDTH, SHARE = 128, "10%"
WAYS: Mapping[str, tuple[str, str, bool]] = {
    "exchange": ("online", "exchange", False),
    "exchange, stored": ("stored", "exchange", False),
    "exchange, cached": ("online", "exchange", True),
    "packed": ("stored", "packed", True),
}
"""Way -> origin of the batches, origin of the rows, and whether rows are kept in memory."""
CACHE, PACKED = ("hotness", "budgets"), ("samples", "cache_plan", "packed_chunks")


def packed_epochs(folder: Path, quick: bool) -> dict[str, Any]:
    """Trains on two ranks in each way, checks weights and bytes, and returns and prints what was measured, with the graph's size."""
    store, size = Store(folder), SMALL if quick else LARGE
    config = config_class("rmat")(**size, features=WIDTH, classes=16, undirected=True, train_ratio=0.04)
    sampling = {"fanouts": [10, 10], "batch_size": 256 if quick else 1024, "reuse": 1}
    result = folder / "result.json"
    order = {
        "home": str(store.home), "result": str(result), "repeats": 1 if quick else 3, "sampling": sampling,
        "artifacts": {name: each.version for name, each in built(store, config, sampling).items()},
        "table": {"layers": 2, "hidden": 32, "epochs": 9, "threads": 1, "dropout": 0.0, "eval": "sampled"},
    }  # fmt: skip
    run_ranks([sys.executable, "-m", "benchmarks.distributed_packed"], order, 2)
    rows = json.loads(result.read_text())
    assert len({row["weights"] for row in rows}) == 1, "the ways have other weights"
    usual = statistics.median(rows[0]["seconds"])
    for row in rows:
        median = statistics.median(row["seconds"])
        row["of_exchange"] = round(median / usual, 3)
        print(
            f"{row['way']:>16}: {median:6.2f} s per epoch of {row['batches']} batches, {row['of_exchange']:.2f} of the exchange; "
            f"{row['rank_bytes'] / 1e6:8.1f} MB of rows between ranks, {row['disk_bytes'] / 1e6:8.1f} MB from disk"
        )
    assert rows[-1]["rank_bytes"] == 0 < rows[0]["rank_bytes"]
    return {"graph": size, "width": WIDTH, "cached": SHARE, "ways": rows}


def built(store: Store, config: Any, sampling: Mapping[str, Any]) -> dict[str, Artifact]:
    """Returns all artifacts that the ways read, by stage."""
    made, drawn = build_graph(store, config), SamplingConfig(**sampling)
    found = {"graph": made.graph, "features": made.features}

    def build(stage: Any, semantic: Any, execution: Any, *roles: str) -> None:
        found[stage.name] = materialize(store, stage, semantic, execution, {role: found[role] for role in roles})

    two = Threads(threads=2)
    parts = partitions_config(PartitionsTable(method="ldg", parts=2), 0)
    build(PARTITIONS, parts, two, "graph")
    build(SHARDS, ShardsConfig(), ShardsExecution(), "features", "partitions")
    build(HOTNESS, hotness_config(HotnessTable(policy="degree"), drawn, 0), two, "graph")
    memory = MemoryConfig(device="0", host=SHARE, disk="20x")
    build(BudgetsStage(), BudgetsConfig(memory=memory), BudgetsExecution(), "features")
    samples = samples_config(SamplesTable(plan="parts"), drawn, 0)
    build(SAMPLES, samples, SamplesExecution(threads=2), "graph", "partitions")
    build(CACHE_PLAN, cache_plan_config(CachePlanTable(), 0), two, "features", "samples", "budgets")
    build(PACKED_CHUNKS, PackedConfig(), PackedExecution(threads=2), "features", "samples", "cache_plan")
    return found


def main() -> None:
    """Measures, as one of the ranks."""
    end_with_parent()
    order = json.load(sys.stdin)
    with joined(120) as ranks, torch_threads(1):
        rows = measured(order, ranks)
        if ranks.first:
            Path(order["result"]).write_text(json.dumps(rows))


def measured(order: Mapping[str, Any], ranks: Ranks) -> list[dict[str, Any]]:
    """Returns the seconds of epochs, a digest of the weights behind them, and the bytes of rows, by way."""
    trainings = {way: opened(order, way, ranks) for way in WAYS}
    draw, seconds = random.Random(0), {way: [] for way in WAYS}
    for repeat in range(order["repeats"] + 1):
        for way in draw.sample(list(WAYS), len(WAYS)):
            ranks.main.most(0)  # all begin together
            began = time.perf_counter()
            for done in trainings[way].loop.executor.steps(repeat, 0):
                if done.last:
                    trainings[way].loop.optimiser.step()
                    trainings[way].loop.optimiser.zero_grad(set_to_none=True)
            took = max(ranks.main.gather_values(time.perf_counter() - began))
            if repeat:
                seconds[way].append(took)
    rows = []
    for way, training in trainings.items():
        whole = training.loop.whole_ledger().rows()
        moves = {f"{row['link']} {row['kind']}": row["moved_bytes"] for row in whole["moves"]}
        weights = b"".join(each.detach().numpy().tobytes() for each in training.run.model.parameters())
        rows.append(
            {"way": way, "seconds": seconds[way], "weights": xxhash.xxh3_64_hexdigest(weights)}
            | {"batches": training.run.plan.num_batches}
            | {f"{link}_bytes": moves.get(f"{link} feature", 0) // (order["repeats"] + 1) for link in ("rank", "disk")}
        )
    return rows


def opened(order: Mapping[str, Any], way: str, ranks: Ranks) -> Training:
    """Returns a training in one way."""
    store = Store(order["home"])
    artifacts = {stage: store.open(stage, version) for stage, version in order["artifacts"].items()}
    samples, rows, kept = WAYS[way]
    settings = DistributedSettings(rows=rows, rank_link=f"{GBPS} GB/s")  # pyright: ignore
    table = TrainTable(**order["table"], trainer="distributed", name="x", samples=samples, settings=settings)  # pyright: ignore
    semantic = ModelConfig(seed=0, train=table.config, sampling=SamplingConfig(**order["sampling"]))
    execution = RunExecution(checkpoints=store.home / "checkpoints", samplers=1, samples=samples)  # pyright: ignore
    names = [
        "shards",
        *(PACKED if rows == "packed" else CACHE if kept else ()),
        *(["samples"] if samples == "stored" else []),
    ]
    inputs = {stage: artifacts[stage] for stage in ("graph", "features", "partitions")}
    reads = {stage: artifacts[stage] for stage in names}
    return Training(inputs, reads, semantic, execution, "0" * 64, Silent(), ranks)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        leave(error)
