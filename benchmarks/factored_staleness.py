"""What `staleness` of `factored` costs in accuracy, and what it gains in time (FGNN 5.2: bounded staleness).

    python -m benchmarks.factored_staleness accuracy     test scores and lacking updates by bound, paired by seed
    python -m benchmarks.factored_staleness time         seconds per epoch by bound and trainers, in drawn order

Without a word it is both. With `accumulate = 1` an update takes one batch: a bound of 0 lets one trainer work at a time, a bound of k lets
k + 1 of them. The weights of bound 0 are compared with those of `minibatch` before anything is shown, for every seed. The graphs are Amazon
Photo and a stochastic block model; epochs have 100 batches or more. Test scores are those of the epoch that was best on validation, and
differences are given with their 95 % interval (Student's t) over the pairs.

Photo needs the folder that GRAPHMILL_TEST_DATA names. Models in the folder that GRAPHMILL_BENCH_DIR names are reused by `accuracy`.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.disk_inputs import home
from benchmarks.factored_runs import epoch_seconds, weights
from benchmarks.fresh_quality import CASES
from benchmarks.paired import paired
from benchmarks.record import record
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.graphs import build_graph

PARTS = ("accuracy", "time")
BOUNDS = (0, 1, 2, 4)
TRAINERS, FEW = 5, 2
"""One more than the largest bound, so that it is reached, and as many as cores."""
NUM_SEEDS, ROUNDS = 4, 3
RATES = (0.001, 0.005)
"""A stale gradient is wrong by about the step that was made meanwhile, so a larger one shows more."""
TABLE: dict[str, Any] = {
    "layers": 2,
    "hidden": 64,
    "norm": "layer",
    "residual": True,
    "threads": 1,
    "features": "memory",
}


@dataclass(frozen=True, kw_only=True)
class StaleCase:
    """A graph, how it is sampled, and the epochs after which scores no longer rise."""

    sampling: SamplingConfig
    epochs: int

    def config(self, name: str) -> Any:
        """Returns the configuration of the graph."""
        if name == "photo":
            return CASES[name].config(name)
        size = {"nodes": 40_000, "edges": 320_000, "features": 32, "classes": 8, "noise": 8.0, "p_in": 0.6}
        return config_class("sbm")(undirected=True, train_ratio=0.125, valid_ratio=0.1, **size)


STALE_CASES = {
    "photo": StaleCase(sampling=SamplingConfig(fanouts=(10, 5), batch_size=45), epochs=8),
    "sbm": StaleCase(sampling=SamplingConfig(fanouts=(10, 5), batch_size=50), epochs=8),
}


def main(quick: bool, parts: Sequence[str] = PARTS, graphs: Sequence[str] = ()) -> None:
    """Measures parts on graphs, both all by default, and records a row for each of both."""
    for name in graphs or STALE_CASES:
        case = STALE_CASES[name]
        if name == "photo" and not os.environ.get("GRAPHMILL_TEST_DATA"):
            print("factored_staleness: photo is skipped, GRAPHMILL_TEST_DATA names no folder with it")
            continue
        for part in parts:
            with home() as store:
                found = (_accuracy if part == "accuracy" else _times)(store, name, case, quick)
            scale = "quick" if quick else "full"
            record("factored_staleness", {"graph": name, "part": part, "scale": scale, "cores": os.cpu_count()} | found)


def _train(store: Store, name: str, case: StaleCase, seed: int, options: dict[str, Any], anew: bool) -> Artifact:
    inputs = build_graph(store, case.config(name)).inputs
    table = TrainTable(name="stale", model="sage", **(TABLE | options))
    (model,) = train_table(store, inputs, table, case.sampling, seed, retrain=anew, report=lambda line: None)
    return model


def _factored(trainers: int, staleness: int) -> dict[str, Any]:
    settings = FactoredSettings(samplers=1, trainers=trainers, staleness=staleness, switching=False)
    return {"trainer": "factored", "settings": settings}


def _accuracy(store: Store, name: str, case: StaleCase, quick: bool) -> dict[str, Any]:
    """Returns learning rate -> bound -> scores and their difference to bound 0."""
    found = {}
    for rate in RATES:
        options = {"epochs": 2 if quick else case.epochs, "lr": rate, "eval_every": 2}
        by_seed = [_scores(store, name, case, seed, options) for seed in range(2 if quick else NUM_SEEDS)]
        found[str(rate)] = {str(bound): _compared(by_seed, bound) for bound in BOUNDS}
        for bound, row in found[str(rate)].items():
            print(
                f"{name} lr {rate} staleness {bound}: {row['mean']:.2f}, {row['difference']:+.2f} ± {row['half_interval']:.2f} "
                f"points, {row['lacking']:.2f} updates lacking",
                flush=True,
            )
    return {"rates": found}


def _scores(store: Store, name: str, case: StaleCase, seed: int, options: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Returns bound -> test score in percent and the mean number of updates that gradients of the last epoch lacked."""
    plain, found = _train(store, name, case, seed, options, False), {}
    for bound in BOUNDS:
        model = _train(store, name, case, seed, options | _factored(TRAINERS, bound), False)
        assert bound or weights(model) == weights(plain), f"seed {seed}: staleness 0 is not minibatch"
        counts = {int(n): count for n, count in model.run_record()["executors"]["updates_behind"].items()}
        assert max(counts) <= bound, f"{counts} exceed the bound {bound}"
        lacking = sum(n * count for n, count in counts.items()) / sum(counts.values())
        found[bound] = {"test": round(100 * model.summary["numbers"]["test_accuracy"], 3), "lacking": round(lacking, 3)}
    return found


def _compared(by_seed: list[dict[int, dict[str, Any]]], bound: int) -> dict[str, Any]:
    scores, lacking = ([each[bound][key] for each in by_seed] for key in ("test", "lacking"))
    found = paired([each[0]["test"] for each in by_seed], scores)
    return {"scores": scores, "mean": round(statistics.mean(scores), 3), **found} | {
        "lacking": round(statistics.mean(lacking), 3)
    }


def _times(store: Store, name: str, case: StaleCase, quick: bool) -> dict[str, Any]:
    """Returns seconds of the second epoch by way, medians of rounds in drawn order, and how many times as fast as bound 0 each is."""
    ways = {
        f"{trainers} trainers, {bound}": _factored(trainers, bound) for trainers in (FEW, TRAINERS) for bound in BOUNDS
    }
    ways = {"minibatch": {}, f"{FEW} trainers, accumulate {FEW}": _factored(FEW, 0) | {"accumulate": FEW}} | ways
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    options, digests, draw = {"epochs": 2, "eval_every": 2, "eval": "sampled"}, set[str](), random.Random(0)
    for _ in range(1 if quick else ROUNDS):
        for way in draw.sample(list(ways), len(ways)):
            model = _train(store, name, case, 0, options | ways[way], True)
            seconds[way].append(epoch_seconds(model))
            if way == "minibatch" or way.endswith(", 0"):
                digests.add(weights(model))
    assert len(digests) == 1, "staleness 0 is not minibatch"
    medians = {way: round(statistics.median(each), 4) for way, each in seconds.items()}
    base = medians[f"{FEW} trainers, 0"]
    for way, median in medians.items():
        print(f"{name} {way:<26} {median:.3f} s, {base / median:.2f} times as fast as bound 0")
    return {"seconds": medians}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.factored_staleness", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help="default: both")
    parser.add_argument("--graphs", nargs="*", choices=list(STALE_CASES), default=(), help="default: all")
    parser.add_argument("--quick", action="store_true", help="minutes")
    asked = parser.parse_args()
    main(asked.quick, tuple(asked.parts) or PARTS, asked.graphs)
