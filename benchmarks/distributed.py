"""Training across machines: the three bars of FastSample's Fig. 6 as ratios, bytes by partition method, memory by rank (Fig. 4), and the
whole step by batch size (Fig. 5, bottom).

    python -m benchmarks.distributed bytes      rows between 4 ranks by partition method, counted
    python -m benchmarks.distributed bars       epochs of 2 ranks by scheme and latency, and what a rank holds
    python -m benchmarks.distributed steps      whole steps by batch size, sampled fused and in two steps
    python -m benchmarks.distributed history    rows between 2 ranks with a cache of them, and with embeddings of earlier steps
    python -m benchmarks.distributed packed     epochs of 2 ranks with rows exchanged, and with rows packed beforehand

Without a word it is all five.

Ranks are processes of this machine, and what a collective call costs on a network is modelled: alpha + bytes / beta. All schemes train
the same batches: their blocks are compared byte by byte before anything is timed, rounds are counted at the calls, and the bytes of
fetched rows are compared with a count outside of the trainer. Epochs are trained in drawn order by the same processes.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.command_line import asked_for
from benchmarks.distributed_history import history_bytes
from benchmarks.distributed_packed import packed_epochs
from benchmarks.elsewhere import beside
from benchmarks.record import interleave, ratio, record
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.partitions.config import PartitionsTable, partitions_config
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.partitions.stage import PARTITIONS
from graphmill.assets.shards.config import ShardsConfig, ShardsExecution
from graphmill.assets.shards.stage import SHARDS
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.sampling.sample import Sampler, TwoStepSampler
from graphmill.trainers.batches.batch import Batching
from graphmill.trainers.loop.executor import BatchGradient
from graphmill.trainers.models.build import build_model
from graphmill.trainers.ranks.launch import run_ranks
from graphmill.trainers.recipe.config import TrainConfig
from tests.graphs import GraphArtifacts, OpenedGraph, build_graph

SCHEMES = ("vanilla", "unfused", "hybrid")
METHODS = ("metis", "ldg", "random")
PARTS = ("bytes", "bars", "steps", "history", "packed")
QUICK_BATCHES, BATCHES = (256, 512), tuple(range(1024, 10241, 1024))
GBPS = 1.0
LATENCIES = (100.0, 5000.0, 25000.0)
"""Microseconds: of a data centre's network with TCP, of a busy one, and of machines that are far apart."""


def main(quick: bool, parts: tuple[str, ...] = PARTS) -> None:
    """Measures the parts that are asked for and records one row."""
    size: dict[str, Any] = {"nodes": 20_000, "edges": 200_000} if quick else {"nodes": 120_000, "edges": 1_200_000}
    made: dict[str, Any] = {"features": 64 if quick else 128, "classes": 16, "undirected": True, "train_ratio": 0.1}
    config = config_class("citation")(**size, **made)
    sampling = {"fanouts": [10, 5, 5], "batch_size": 256}
    row: dict[str, Any] = {"scale": "quick" if quick else "full", "graph": size, "gbps": GBPS}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        built = build_graph(store, config)
        if "bytes" in parts:
            cut = {method: parts_of(store, built.graph, method) for method in METHODS}
            row["bytes"] = bytes_by_method(built.open(), cut, sampling, 4)
        if "bars" in parts:
            halves = parts_of(store, built.graph, "metis", 2)
            row["bars"], row["cores_of_others"] = beside(
                lambda: bars(store, built, halves, sampling, 1 if quick else 3)
            )
            print(f"other processes used {row['cores_of_others']:.2f} cores meanwhile")
        if "steps" in parts:
            row["steps"] = steps(built.open(), QUICK_BATCHES if quick else BATCHES)
        if "history" in parts:
            row["history"] = history_bytes(Path(folder), quick)
        if "packed" in parts:
            row["packed"] = packed_epochs(Path(folder), quick)
    record("distributed", row)


def parts_of(store: Store, graph: Artifact, method: str, parts: int = 4) -> Artifact:
    """Cuts a graph."""
    config = partitions_config(PartitionsTable(method=method, parts=parts), 0)  # pyright: ignore
    return materialize(store, PARTITIONS, config, Threads(threads=2), {"graph": graph})


def remote_rows(
    graph: OpenedGraph, partitions: Artifact, sampling: dict[str, Any], epochs: int, ranks: int | None = None
) -> int:
    """Returns how many distinct rows of other ranks the batches need; by default each part has a rank of its own."""
    cut, train_ids = open_partitions(partitions), np.array(graph.train_ids)
    share = cut.num_parts // (ranks or cut.num_parts)
    plan = PartPlan(train_ids, cut.part_of[train_ids], cut.num_parts, sampling["batch_size"], seed=0)
    sampler, rows = Sampler(graph.topology, sampling["fanouts"], seed=0), 0
    for epoch in range(epochs):
        for item in plan.batches(epoch):
            inputs = sampler.sample(item.key, item.seeds, transpose="none")[0].src_ids
            rows += int(np.count_nonzero(cut.part_of[inputs] // share != item.key.step % cut.num_parts // share))
    return rows


def bytes_by_method(
    graph: OpenedGraph, cut: dict[str, Artifact], sampling: dict[str, Any], parts: int
) -> dict[str, int]:
    """Returns and prints the bytes of rows that an epoch moves between ranks."""
    found = {name: remote_rows(graph, each, sampling, 1) * graph.features.row_bytes for name, each in cut.items()}
    for name, moved in found.items():
        print(
            f"{name:>8}: {moved / 1e6:8.1f} MB of rows per epoch between {parts} ranks, {moved / found['random']:.2f} of random"
        )
    return found


def bars(
    store: Store, made: GraphArtifacts, cut: Artifact, sampling: dict[str, Any], repeats: int
) -> list[dict[str, Any]]:
    """Trains on two ranks by each scheme and latency, checks the counts, and returns and prints the ratios."""
    rows = {"features": made.features, "partitions": cut}
    shards = materialize(store, SHARDS, ShardsConfig(), ShardsExecution(), rows)
    artifacts = {"graph": made.graph, "features": made.features, "partitions": cut, "shards": shards}
    result = store.home / "result.json"
    order = {
        "home": str(store.home), "result": str(result), "schemes": SCHEMES, "latencies": LATENCIES, "gbps": GBPS, "repeats": repeats,
        "artifacts": {name: each.version for name, each in artifacts.items()}, "sampling": sampling,
        "table": {"layers": 3, "hidden": 64, "epochs": 1, "threads": 1, "dropout": 0.0},
    }  # fmt: skip
    run_ranks([sys.executable, "-m", "benchmarks.distributed_rank"], order, 2)
    found = json.loads(result.read_text())
    graph = made.open()
    wanted = remote_rows(graph, cut, sampling, found["epochs"]) * graph.features.row_bytes
    seconds = {(row["scheme"], row["latency_us"]): statistics.median(row["seconds"]) for row in found["rows"]}
    for row in found["rows"]:
        rounds = row["rounds"] / row["batches"]
        assert rounds == (6 if row["scheme"] == "vanilla" else 2), (row["scheme"], rounds)
        assert row["feature_bytes"] == wanted, (row["feature_bytes"], wanted)
        row["speedup"] = round(seconds["vanilla", row["latency_us"]] / seconds[row["scheme"], row["latency_us"]], 3)
        most = {name: max(each[name] for each in row["memory"]) for name in row["memory"][0]}
        print(
            f"{row['scheme']:>8}, {row['latency_us'] / 1000:4.1f} ms: {seconds[row['scheme'], row['latency_us']]:6.2f} s per epoch, "
            f"{row['speedup']:.2f} x vanilla; {rounds:.0f} rounds per batch, {row['feature_bytes'] / 1e6:.1f} MB of rows, "
            f"{row['topology_bytes'] / 1e6:.1f} MB of topology; a rank holds {most['topology_bytes'] / 1e6:.1f} MB of topology "
            f"and {most['feature_bytes'] / 1e6:.1f} MB of features"
        )
    return found["rows"]


def steps(graph: OpenedGraph, batch_sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Times whole steps in one process, sampled by the fused and by the two-step sampler; returns and prints ratios by batch size."""
    torch.set_num_threads(1)
    features, rows = torch.from_numpy(np.array(graph.features.open())), []
    config = TrainConfig(model="sage", layers=3, hidden=64, dropout=0.0)
    model = build_model(config, features.shape[1], graph.num_classes, 0)
    gradient = BatchGradient(model, 0)
    samplers = {
        "fused": Sampler(graph.topology, (10, 5, 5), seed=0),
        "two steps": TwoStepSampler(graph.topology, (10, 5, 5), seed=0),
    }
    for batch_size in batch_sizes:
        plan = EpochPlan(np.array(graph.train_ids)[:batch_size], batch_size, seed=0)
        item = next(plan.batches(0))
        batching = Batching(topology=graph.topology, labels=graph.labels, plan=plan, edge_weight=None, queue_bytes=0)

        def step(name: str, item: Any = item, batching: Batching = batching) -> float:
            blocks = samplers[name].sample(item.key, item.seeds, transpose="hidden")
            batch = batching.batch(item, 0, blocks, x=features[torch.from_numpy(blocks[0].src_ids).long()])
            model.zero_grad()
            return float(gradient(batch).loss_sum)

        assert step("fused") == step("two steps"), "the samplers differ"
        timed = interleave({name: (lambda name=name: step(name)) for name in samplers}, 3)
        sampled = interleave(
            {name: (lambda name=name, item=item: samplers[name].sample(item.key, item.seeds)) for name in samplers}, 3
        )
        found = {"batch_size": len(item.seeds), "step": round(ratio(timed, "two steps", "fused"), 3)}
        found["sampling"] = round(ratio(sampled, "two steps", "fused"), 3)
        rows.append(found)
        print(
            f"batch of {found['batch_size']:>6}: whole step {found['step']:.2f} x, sampling alone {found['sampling']:.2f} x as fast fused"
        )
    return rows


if __name__ == "__main__":
    main(*asked_for(PARTS, "part"))
