"""Accuracy of training from disk on Amazon Photo, paired by seed: with stored samples in rotation, and online.

    disk                      rows from packed chunks, ten stored sampling epochs in rotation
    minibatch, same samples   online, the same ten sampling epochs in rotation: every file of the model must have the same bytes
    minibatch                 online, new samples in every epoch: what rotation costs, if anything

The recipe is the GraphSAGE of jobs/pipelines/photo.toml. Test scores are those of the epoch that was best on validation. Needs the folder
that GRAPHMILL_TEST_DATA names. Models in the folder that GRAPHMILL_BENCH_DIR names are reused.

`python -m benchmarks.disk_quality --seeds 3` runs some of the pairs, and records a row for them.
"""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.disk_inputs import home
from benchmarks.record import record
from graphmill.assets.budgets.config import BudgetsConfig, BudgetsExecution, MemoryConfig
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.cache_plan.config import CachePlanTable, cache_plan_config
from graphmill.assets.cache_plan.stage import CACHE_PLAN
from graphmill.assets.packed_chunks.config import PackedConfig, PackedExecution
from graphmill.assets.packed_chunks.stage import PACKED_CHUNKS
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.samples.config import SamplesExecution, SamplesTable, samples_config
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.graphs import GraphArtifacts, build_graph

REUSE, TABLE, NUM_SEEDS = 10, "sage", 5
MEMORY = MemoryConfig(device="5%", host="10%", disk="4x")


def main(quick: bool, seeds: int = NUM_SEEDS) -> None:
    if not os.environ.get("GRAPHMILL_TEST_DATA"):
        print("disk_quality: skipped, GRAPHMILL_TEST_DATA names no folder with the graphs")
        return
    pipeline = load_pipeline("photo", TrainTable)
    (table,) = (table for table in pipeline.train if table.name == TABLE)
    sampling, scores = pipeline.sampling, []
    assert sampling is not None
    with home() as store:
        graph = build_graph(store, pipeline.graph)
        for seed in range(1 if quick else seeds):
            scores.append(compare(store, graph, table, sampling, seed))
            print(f"seed {seed}: test accuracy {scores[-1]}", flush=True)
    found = summarise(scores)
    for name, value in found.items():
        print(f"  {name}: {value}")
    scale = "quick" if quick else "full"
    record(
        "disk_quality",
        {"scale": scale, "graph": "photo", "epochs": table.epochs, "reuse": REUSE, "scores": scores} | found,
    )


def compare(
    store: Store, graph: GraphArtifacts, table: TrainTable, sampling: SamplingConfig, seed: int
) -> dict[str, float]:
    """Returns the test score of each contestant.

    Raises:
        AssertionError: training from disk gives another model than `minibatch` on the same samples.
    """
    rotating, stored = replace(sampling, reuse=REUSE), store_rows(store, graph, sampling, seed)
    models = {}
    for name, trainer, how in (
        ("disk", "disk", rotating),
        ("minibatch, same samples", "minibatch", rotating),
        ("minibatch", "minibatch", sampling),
    ):
        given: Any = {"reads": stored} if trainer == "disk" else {}
        wanted = replace(table, trainer=trainer)
        (models[name],) = train_table(store, graph.inputs, wanted, how, seed, report=lambda line: None, **given)
    for file in ("weights.safetensors", "metrics.jsonl"):
        assert models["disk"].files[file]["digest"] == models["minibatch, same samples"].files[file]["digest"], (
            seed,
            file,
        )
    return {name: round(100 * model.summary["numbers"]["test_accuracy"], 3) for name, model in models.items()}


def store_rows(
    store: Store,
    graph: GraphArtifacts,
    sampling: SamplingConfig,
    seed: int,
    *,
    memory: MemoryConfig = MEMORY,
    reuse: int = REUSE,
    packed: PackedConfig | None = None,
) -> dict[str, Artifact]:
    """Samples some epochs, plans within a memory and packs."""
    config = samples_config(SamplesTable(epochs=reuse), replace(sampling, reuse=reuse), seed)
    samples = materialize(store, SAMPLES, config, SamplesExecution(threads=2), {"graph": graph.graph})
    budgets = materialize(
        store, BudgetsStage(), BudgetsConfig(memory=memory), BudgetsExecution(), {"features": graph.features}
    )
    inputs = {"features": graph.features, "samples": samples, "budgets": budgets}
    plan = materialize(store, CACHE_PLAN, cache_plan_config(CachePlanTable(), seed), Threads(threads=2), inputs)
    inputs = {"features": graph.features, "samples": samples, "cache_plan": plan}
    chunks = materialize(store, PACKED_CHUNKS, packed or PackedConfig(), PackedExecution(threads=2), inputs)
    return {"samples": samples, "cache_plan": plan, "packed_chunks": chunks}


def summarise(scores: list[dict[str, float]]) -> dict[str, Any]:
    """Returns means, deviations, and the paired difference of rotation against new samples."""
    columns = {name: [each[name] for each in scores] for name in scores[0]}
    found: dict[str, Any] = {
        name: {"mean": round(statistics.fmean(values), 3), "deviation": round(statistics.pstdev(values), 3)}
        for name, values in columns.items()
    }
    differences = np.subtract(columns["disk"], columns["minibatch"])
    error = float(differences.std(ddof=1) / len(differences) ** 0.5) if len(differences) > 1 else 0.0
    return found | {
        "disk minus minibatch": {"mean": round(float(differences.mean()), 3), "standard_error": round(error, 3)}
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.disk_quality", description="Some pairs of the full run."
    )
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS)
    main(quick=False, seeds=parser.parse_args().seeds)
