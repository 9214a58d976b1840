"""Accuracy of `fresh` beside plain sampling, paired by seed (FreshGNN, Tables 2 and 3).

    minibatch                     plain neighbour sampling
    fresh                         p_grad = 0.9, t_stale = "epoch/6", and an arena that holds all that is admitted
    fresh, stabilise = "epoch/2"  keeps nothing in the first half of the first epoch (on Photo)

The graphs are Amazon Photo, with the layers of jobs/pipelines/photo.toml, and a stochastic block model of 200,000 nodes with three layers.
Batches are small, so that an epoch has 100 iterations or more. Test scores are those of the epoch that was best on validation. A
difference is tested by its 95 % interval (Student's t) over the pairs: it has to lie within one point.

Photo needs the folder that GRAPHMILL_TEST_DATA names. Models in the folder that GRAPHMILL_BENCH_DIR names are reused, so

    python -m benchmarks.fresh_quality --graphs photo --models sage --seeds 2

runs a piece of the whole, and `python -m benchmarks fresh_quality` then goes on where the pieces end.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.disk_inputs import home
from benchmarks.paired import paired
from benchmarks.record import record
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.fresh.settings import FreshSettings
from tests.graphs import build_graph

NUM_SEEDS, LIMIT = 5, 1.0

WAYS: dict[str, FreshSettings | None] = {
    "minibatch": None,
    "fresh": FreshSettings(policy="accuracy", arena="200%"),
    'fresh, stabilise = "epoch/2"': FreshSettings(policy="accuracy", arena="200%", stabilise="epoch/2"),
}
MODELS: dict[str, dict[str, Any]] = {"sage": {}, "gcn": {}, "gat": {"heads": 4}}
LONGER: dict[tuple[str, str], dict[str, Any]] = {("sbm", "gat"): {"epochs": 64}}
"""Keys of a graph and a model that has not reached its plateau in the epochs of its graph: seeds of plain GAT differed by five points."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, and how it is sampled and trained on."""

    sampling: SamplingConfig
    table: dict[str, Any]

    def config(self, name: str) -> Any:
        """Returns the configuration of the graph."""
        if name == "photo":
            return load_pipeline("photo", TrainTable).graph
        size = {"nodes": 200_000, "edges": 1_600_000, "features": 32, "classes": 8, "noise": 8.0, "p_in": 0.6}
        return config_class("sbm")(undirected=True, train_ratio=0.1, valid_ratio=0.1, **size)


CASES = {
    "photo": Case(
        sampling=SamplingConfig(fanouts=(10, 5), batch_size=45),
        table={
            "layers": 2,
            "hidden": 64,
            "norm": "layer",
            "residual": True,
            "epochs": 8,
            "lr": 0.004,
            "lr_schedule": "cosine",
            "eval_every": 2,
        },
    ),
    "sbm": Case(
        sampling=SamplingConfig(fanouts=(8, 5, 5), batch_size=200),
        table={
            "layers": 3,
            "hidden": 32,
            "norm": "layer",
            "residual": True,
            "epochs": 32,
            "lr": 0.005,
            "lr_schedule": "cosine",
            "eval_every": 16,
        },
    ),
}


def main(
    quick: bool,
    graphs: Sequence[str] = (),
    models: Sequence[str] = (),
    seeds: int = NUM_SEEDS,
    ways: Sequence[str] = (),
) -> None:
    for name in graphs or CASES:
        if name == "photo" and not os.environ.get("GRAPHMILL_TEST_DATA"):
            print("fresh_quality: photo is skipped, GRAPHMILL_TEST_DATA names no folder with it")
            continue
        for model in models or MODELS:
            with home() as store:
                scores = [_scores(store, name, model, seed, ways) for seed in range(2 if quick else seeds)]
            _report(name, model, scores, quick)


def _scores(store: Store, name: str, model: str, seed: int, ways: Sequence[str]) -> dict[str, dict[str, float]]:
    """Returns way -> test accuracy in percent, epochs until the best one, and the share of rows that was not loaded."""
    case = CASES[name]
    graph = build_graph(store, case.config(name))
    counted = hotness_config(HotnessTable(layers="inputs"), case.sampling, 0)
    hotness = materialize(store, HOTNESS, counted, Threads(threads=2), {"graph": graph.graph})
    found = {}
    for way, settings in WAYS.items():
        if settings is not None and ((settings.stabilise and name != "photo") or (ways and way not in ways)):
            continue
        options: dict[str, Any] = {} if settings is None else {"trainer": "fresh", "settings": settings}
        inputs = graph.inputs if settings is None else graph.inputs | {"hotness": hotness}
        keys = case.table | MODELS[model] | LONGER.get((name, model), {}) | options
        table = TrainTable(name=model, model=model, features="memory", **keys)
        (made,) = train_table(store, inputs, table, case.sampling, seed, report=lambda line: None)
        numbers, pruned = made.summary["numbers"], saving_of(made)
        found[way] = {"test": 100 * numbers["test_accuracy"], "best_epoch": numbers["best_epoch"], "pruned": pruned}
    print(f"{name} {model} seed {seed}: {found}", flush=True)
    return found


def saving_of(model: Any) -> float:
    """Returns the share of the input rows of plain sampling that pruning made unnecessary."""
    import json

    rows = json.loads(model.file("ledger.json").read_text())["counts"]
    counts = {row["name"]: row["n"] for row in rows if row["layer"] == 0}
    gone = counts.get("pruned_nodes", 0)
    return gone / (gone + counts["inputs"])


def _report(name: str, model: str, scores: list[dict[str, dict[str, float]]], quick: bool) -> None:
    """Prints the interval of each difference, and records it."""
    plain = [each["minibatch"]["test"] for each in scores]
    row: dict[str, Any] = {"graph": name, "model": model, "scale": "quick" if quick else "full", "scores": scores}
    row["minibatch"] = round(statistics.mean(plain), 3)
    for way in list(scores[0])[1:]:
        row[way] = found = paired(plain, [each[way]["test"] for each in scores])
        mean, half = found["difference"], found["half_interval"]
        found["within"] = within = abs(mean) + half < LIMIT
        print(f"{name} {model} {way}: {mean:+.2f} ± {half:.2f} points, {'within' if within else 'NOT within'} {LIMIT}")
    record("fresh_quality", row)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="*", default=())
    parser.add_argument("--models", nargs="*", default=())
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS)
    parser.add_argument("--ways", nargs="*", default=(), help="ways that are compared with minibatch; all by default")
    options = parser.parse_args()
    main(False, options.graphs, options.models, options.seeds, options.ways)
