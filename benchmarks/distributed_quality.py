"""Test accuracy over the number of parts (FastSample, sections 4 and 4.2: no loss in accuracy).

A part draws its batches from its own training nodes, and a step adds the gradients of one batch of every part. So parts change which
seeds form a batch, and ranks, schemes and caches change nothing: one part is `minibatch`, to the bit, which is checked first. The ways:

    batch per step    parts of METIS; all batches of a step together have the batch size of one part
    batch per part    parts of METIS; every part has this batch size, as every machine of the paper has: a step has P times the seeds,
                      and an epoch 1 / P of the steps
    random parts      as "batch per step", with parts at random

Graphs: Amazon Photo with the GraphSAGE and Cora with the GCN of the shipped recipes, in the folder that GRAPHMILL_TEST_DATA names; a quick
run trains on a small block model. Test scores are those of the epoch that was best on validation. Models in the folder that
GRAPHMILL_BENCH_DIR names are reused.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.charts import line_chart
from benchmarks.disk_inputs import home
from benchmarks.distributed import parts_of
from benchmarks.record import record
from graphmill.assets.building.materialize import materialize
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.shards.config import ShardsConfig, ShardsExecution
from graphmill.assets.shards.stage import SHARDS
from graphmill.assets.sources.interface import GraphConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.series import Series
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from tests.graphs import GraphArtifacts, build_graph

PARTS, NUM_SEEDS = (1, 2, 4, 8), 3
WAYS = {"batch per step": ("metis", True), "batch per part": ("metis", False), "random parts": ("random", True)}
"""Way -> method of the partitions, and whether the batch size is that of a step."""
TITLES = {"photo": "Amazon Photo, GraphSAGE", "cora": "Cora, GCN", "blocks": "block model, GraphSAGE"}


class Case(NamedTuple):
    """A graph, and how it is sampled and trained on; the batch size is that of one part."""

    graph: GraphConfig
    sampling: SamplingConfig
    table: TrainTable


def shipped(name: str, table_name: str, sampled: dict[str, Any], **keys: Any) -> Case:
    """Returns a table of a shipped recipe, sampled otherwise and with other keys."""
    pipeline = load_pipeline(name, TrainTable)
    (table,) = (each for each in pipeline.train if each.name == table_name)
    assert pipeline.sampling is not None
    sampling = replace(pipeline.sampling, **sampled)
    return Case(pipeline.graph, sampling, replace(table, seeds=(), threads=1, eval_every=2, **keys))


def blocks() -> Case:
    """Returns the small case of a quick run."""
    size = {"nodes": 2_000, "edges": 16_000, "features": 16, "classes": 4}
    table = TrainTable(name="sage", model="sage", layers=2, hidden=16, epochs=2, threads=1)
    return Case(config_class("sbm")(undirected=True, **size), SamplingConfig(fanouts=(5, 5), batch_size=128), table)


CASES = {
    "photo": lambda: shipped("photo", "sage", {"fanouts": (10, 5), "batch_size": 256}, hidden=64, epochs=24),
    "cora": lambda: shipped("cora", "gcn", {"batch_size": 32}, epochs=100),
    "blocks": blocks,
}


def main(quick: bool, graphs: Sequence[str] = ()) -> None:
    """Records a row for each graph."""
    if not quick and not os.environ.get("GRAPHMILL_TEST_DATA"):
        print("distributed_quality: skipped, GRAPHMILL_TEST_DATA names no folder with the graphs")
        return
    for name in graphs or (("blocks",) if quick else ("cora", "photo")):
        with home() as store:
            rows = measured(store, CASES[name](), PARTS[:2] if quick else PARTS, 1 if quick else NUM_SEEDS)
        record("distributed_quality", {"scale": "quick" if quick else "full", "graph": name, "rows": rows})


def measured(store: Store, case: Case, counts: Sequence[int], seeds: int) -> list[dict[str, Any]]:
    """Returns and prints a row for each way and number of parts."""
    graph = build_graph(store, case.graph)
    require_minibatch(store, graph, case)
    rows = []
    for way, (method, per_step) in WAYS.items():
        for parts in counts:
            # A single part is the same in all ways, so it is trained once.
            cut = parts_of(store, graph.graph, method if parts > 1 else "random", parts)
            sampling = replace(case.sampling, batch_size=case.sampling.batch_size // (parts if per_step else 1))
            models = [trained(store, graph, cut, case.table, sampling, seed) for seed in range(seeds)]
            tests = [round(100 * each.summary["numbers"]["test_accuracy"], 3) for each in models]
            row = {"way": way, "parts": parts, "batch_size": sampling.batch_size, "tests": tests, **spread(tests)}
            rows.append(row | {"steps": steps_of(graph, cut, sampling)})
            print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    return rows


def require_minibatch(store: Store, graph: GraphArtifacts, case: Case) -> None:
    """Trains one part, and without parts.

    Raises:
        AssertionError: weights or scores differ.
    """
    whole = parts_of(store, graph.graph, "random", 1)
    ours = trained(store, graph, whole, case.table, case.sampling, 0)
    (plain,) = train_table(store, graph.inputs, case.table, case.sampling, 0, report=lambda line: None)
    for file in ("weights.safetensors", "metrics.jsonl"):
        assert ours.files[file]["digest"] == plain.files[file]["digest"], f"one part differs from minibatch in {file}"


def trained(
    store: Store, graph: GraphArtifacts, cut: Artifact, table: TrainTable, sampling: SamplingConfig, seed: int
) -> Artifact:
    """Returns a model of the parts; one process trains it, since the number of ranks changes no bit."""
    inputs = graph.inputs | {"partitions": cut}
    shards = materialize(
        store, SHARDS, ShardsConfig(), ShardsExecution(), {"features": graph.features, "partitions": cut}
    )
    table = replace(table, trainer="distributed", settings=DistributedSettings())
    (model,) = train_table(store, inputs, table, sampling, seed, reads={"shards": shards}, report=lambda line: None)
    return model


def steps_of(graph: GraphArtifacts, partitions: Artifact, sampling: SamplingConfig) -> int:
    """Returns the optimiser steps of an epoch."""
    cut, train_ids = open_partitions(partitions), np.array(graph.open().train_ids)
    return PartPlan(train_ids, cut.part_of[train_ids], cut.num_parts, sampling.batch_size, seed=0).rounds


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns mean and standard deviation of scores; one score has the deviation 0."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": round(statistics.fmean(values), 2) + 0.0, "deviation": round(deviation, 2)}  # not -0.0


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws the difference of test accuracy to one part over the number of parts, a curve with its deviation for each way."""
    last = {row["graph"]: row["rows"] for row in rows if row["scale"] == "full"}
    return [_drawn(name, of) for name, of in last.items()]


def _drawn(name: str, rows: Sequence[dict[str, Any]]) -> ReportFigure:
    curves = []
    for way in WAYS:
        found = [row for row in rows if row["way"] == way]
        points = [difference(found[0]["tests"], row["tests"]) for row in found]
        low, high = ([at["mean"] + sign * at["deviation"] for at in points] for sign in (-1, 1))
        x, y = [row["parts"] for row in found], [at["mean"] for at in points]
        curves.append(Series(label=way, x=x, y=y, low=low, high=high))
    one = rows[0]
    says = f"Mean and deviation of {len(one['tests'])} seeds; one part has {one['mean']:.2f} %."
    axes: dict[str, Any] = {"x_label": "parts", "y_label": "difference to one part, points", "log": "x", "ticks": PARTS}
    return line_chart(
        f"fastsample-accuracy-{name}", f"Accuracy by number of parts, {TITLES[name]}", says, curves, **axes
    )


def difference(one: Sequence[float], several: Sequence[float]) -> dict[str, float]:
    """Returns mean and deviation of the differences of scores, seed by seed."""
    return spread([ours - theirs for ours, theirs in zip(several, one, strict=True)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed_quality", description=__doc__)
    parser.add_argument("graphs", nargs="*", choices=[*CASES, []], metavar="GRAPH", help="default: cora and photo")
    main(False, parser.parse_args().graphs)
