"""One rank of the benchmark `distributed`: `python -m benchmarks.distributed_rank`, with its order on standard input.

It trains epochs of every scheme in an order that all ranks draw alike, and writes what it measured as one line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

from graphmill.assets.building.child import end_with_parent
from graphmill.assets.building.stage import Silent
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.store import Store
from graphmill.kernels.types import Block
from graphmill.trainers.devices.torch_threads import torch_threads
from graphmill.trainers.ranks.group import Ranks, joined
from graphmill.trainers.ranks.leave import leave
from graphmill.trainers.recipe.config import ModelConfig, TrainTable
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from graphmill.trainers.techniques.distributed.vanilla import VanillaSampler
from graphmill.trainers.training.training import RunExecution, Training

EQUAL_BATCHES = 3
"""Batches per rank whose blocks are compared, byte by byte."""


def main() -> None:
    """Measures."""
    end_with_parent()
    order = json.load(sys.stdin)
    with joined(120) as ranks, torch_threads(1):
        found = measured(order, ranks)
        if ranks.first:
            Path(order["result"]).write_text(json.dumps(found))


def measured(order: Mapping[str, Any], ranks: Ranks) -> dict[str, Any]:
    """Returns seconds, rounds and bytes by scheme and latency, and memory by scheme and rank."""
    trainings = {
        (scheme, latency): opened(order, scheme, latency, ranks)
        for latency in order["latencies"]
        for scheme in order["schemes"]
    }
    digests = {scheme: block_digests(trainings[scheme, order["latencies"][0]]) for scheme in order["schemes"]}
    equal = ranks.main.gather_values([digests[scheme] for scheme in order["schemes"]])
    assert all(len(set(map(tuple, of_rank))) == 1 for of_rank in equal), "schemes differ in their blocks"
    draw, seconds = random.Random(0), {case: [] for case in trainings}
    used: dict[tuple[str, float], list[list[float]]] = {case: [] for case in trainings}
    for repeat in range(order["repeats"] + 1):
        for case in draw.sample(list(trainings), len(trainings)):
            ranks.main.most(0)  # all begin together
            began, worked = time.perf_counter(), time.process_time()
            one_epoch(trainings[case], repeat)
            took = max(ranks.main.gather_values(time.perf_counter() - began))
            cores = ranks.main.gather_values(time.process_time() - worked)
            if repeat:
                seconds[case].append(took)
                used[case].append(cores)
    rows = [
        {"scheme": scheme, "latency_us": latency, "seconds": seconds[scheme, latency]}
        | {"cpu_seconds": used[scheme, latency], **totals(training, ranks)}
        for (scheme, latency), training in trainings.items()
    ]
    return {"rows": rows, "epochs": order["repeats"] + 1}


def totals(training: Training, ranks: Ranks) -> dict[str, Any]:
    """Returns what a training has counted so far, of all ranks together and by rank, and a digest of its weights; all ranks call it."""
    own = counted(training.loop.ledger.rows())
    weights = b"".join(each.detach().numpy().tobytes() for each in training.run.model.parameters())
    return counted(training.loop.whole_ledger().rows()) | {
        "by_rank": ranks.main.gather_values(own),
        "memory": ranks.main.gather_values(held(training)),
        "weights": xxhash.xxh3_64_hexdigest(weights),
    }


def counted(ledger: Mapping[str, Any]) -> dict[str, int]:
    """Returns batches, rounds, rows of other ranks, and bytes between ranks; one rank alone has no rounds and no such bytes."""
    counts = {row["name"]: row["n"] for row in ledger["counts"] if row["layer"] == 0}
    moves = {kind: 0 for kind in ("feature", "topology", "gradient")}
    for row in ledger["moves"]:
        if row["link"] == "rank" and row["kind"] in moves:
            moves[row["kind"]] += row["moved_bytes"]
    names = {"rounds": "rounds", "batches": "batches", "remote_rows": "hits_remote"}
    return {name: counts.get(count, 0) for name, count in names.items()} | {
        f"{kind}_bytes": moved for kind, moved in moves.items()
    }


def opened(order: Mapping[str, Any], scheme: str, latency: float, ranks: Ranks) -> Training:
    """Returns a training by one scheme."""
    store = Store(order["home"])
    artifacts = {stage: store.open(stage, version) for stage, version in order["artifacts"].items()}
    settings = DistributedSettings(
        scheme=scheme, latency_us=latency, rank_link=f"{order['gbps']} GB/s" if order["gbps"] else None
    )  # pyright: ignore
    table = TrainTable(**order["table"], trainer="distributed", name=scheme, settings=settings)
    sampling = SamplingConfig(**order["sampling"])
    semantic = ModelConfig(seed=0, train=table.config, sampling=sampling)
    execution = RunExecution(checkpoints=store.home / "checkpoints", samplers=1)
    reads = {"shards": artifacts.pop("shards")}
    return Training(artifacts, reads, semantic, execution, "0" * 64, Silent(), ranks)


def one_epoch(training: Training, epoch: int) -> None:
    """Trains one epoch, without evaluation and checkpoints."""
    for done in training.loop.executor.steps(epoch, 0):
        if done.last:
            training.loop.optimiser.step()
            training.loop.optimiser.zero_grad(set_to_none=True)


def block_digests(training: Training) -> list[str]:
    """Returns a digest of the blocks of this rank's first batches."""
    source, parts = training.loop.executor.source, training.features.source.owned.parts  # pyright: ignore
    plan, found = training.run.plan, []
    items = [item for item in plan.batches(0) if item.key.step % source.num_parts in parts][:EQUAL_BATCHES]
    for item in items:
        if isinstance(source.samplers, VanillaSampler):
            blocks = source.samplers.sample(item.key, item.seeds, "hidden", Ledger())
        else:
            blocks = source.samplers[0].sample(item.key, item.seeds, transpose="hidden")
        found.append(xxhash.xxh3_64_hexdigest(b"".join(block_bytes(block) for block in blocks)))
    return found


def block_bytes(block: Block) -> bytes:
    """Returns all that a block holds."""
    names = ("start", "end", "indices", "src_ids", "t_start", "t_edge", "t_dst")
    arrays = [getattr(block, name) for name in names]
    return b"".join(b"-" if array is None else array.tobytes() for array in arrays)


def held(training: Training) -> dict[str, int]:
    """Returns the bytes of the graph that a rank has to hold."""
    source, topology = training.loop.executor.source, training.run.graph.topology  # pyright: ignore
    own = source.samplers.topology_bytes if isinstance(source.samplers, VanillaSampler) else None
    whole = topology.indptr.nbytes + topology.indices.nbytes
    return {
        "topology_bytes": whole if own is None else own,
        "feature_bytes": training.features.source.held_bytes,  # pyright: ignore
    }


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        leave(error)
