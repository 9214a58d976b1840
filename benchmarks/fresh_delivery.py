"""Epochs with embeddings of earlier steps, beside plain mini-batches with a cache of feature rows of the same bytes (FreshGNN 5, 7.2).

    link      misses cross a link of 1 GB/s that is kept to by waiting
    mapped    misses come from the mapped table, which is in the page cache: reading is nearly free
    waiting   nothing is kept (p_grad = 0): what it costs that a batch is pruned and gathered after the update before it and not meanwhile

`ahead` is `fresh` with lookahead = 1: a batch is decided one update earlier, and its rows come while the batch before it is trained on. The
last case is measured with all rows in memory, where reading is free. Its weights have to be those of `minibatch`. Ways are timed in drawn
order in one process, and what is compared is the last epoch of a training. A batch of the large graph takes 4 % of its nodes.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.elsewhere import beside
from benchmarks.factored_runs import SKEW, epoch_seconds, weights
from benchmarks.record import record
from graphmill.assets.budgets.config import BudgetsConfig, BudgetsExecution, MemoryConfig
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.fresh.settings import FreshSettings
from tests.graphs import build_graph

SMALL: dict[str, Any] = {"nodes": 50_000, "edges": 800_000, "features": 64, "train_ratio": 0.05}
LARGE: dict[str, Any] = {"nodes": 500_000, "edges": 8_000_000, "features": 256, "train_ratio": 0.02}
SAMPLING = SamplingConfig(fanouts=(20, 15, 10), batch_size=100)
SHARE, GBPS = "2%", 1.0
"""Of the bytes of all features: the cache, or the arena."""
FRESH: dict[str, Any] = {"arena": SHARE, "t_stale": 60}
NOTHING: dict[str, Any] = {"arena": SHARE, "p_grad": 0.0, "policy": "accuracy"}
KEYS: dict[str, Any] = {"name": "timed", "hidden": 64, "layers": 3, "epochs": 3, "eval": "exact", "eval_every": 3}


def ways(settings: dict[str, Any], plain: dict[str, Any], **keys: Any) -> dict[str, dict[str, Any]]:
    """Returns the keys of plain mini-batches, of `fresh`, and of `fresh` that looks ahead."""
    fresh = {"trainer": "fresh", "cache": "none"} | keys
    behind, ahead = (FreshSettings(lookahead=each, **settings) for each in (0, 1))
    return {"minibatch": keys | plain, "fresh": fresh | {"settings": behind}, "ahead": fresh | {"settings": ahead}}


CASES: dict[str, dict[str, dict[str, Any]]] = {
    "link": ways(FRESH, {}, link=f"{GBPS} GB/s"),
    "mapped": ways(FRESH, {}),
    "waiting": ways(NOTHING, {"cache": "none"}, features="memory"),
}


def main(quick: bool) -> None:
    """Measures, prints and records."""
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        trainings = Trainings(Store(Path(folder)), SMALL if quick else LARGE)
        found, others = beside(lambda: {name: compared(trainings, name, 1 if quick else 3) for name in CASES})
    print(f"other processes used {others:.2f} cores meanwhile")
    record(
        "fresh_delivery",
        {"scale": "quick" if quick else "full", "arena": SHARE, "gbps": GBPS, "cores_of_others": others} | found,
    )


class Trainings:
    """Trains on a generated graph with the artifacts that both ways need.

    Args:
        store: gets everything.
        size: of the graph.
    """

    def __init__(self, store: Store, size: dict[str, Any]):
        config: Any = config_class("rmat")(seed=1, valid_ratio=0.001, classes=16, **size, **SKEW)
        self.store, made = store, build_graph(store, config)
        self.inputs = made.inputs
        counted = hotness_config(HotnessTable(layers="inputs"), SAMPLING, 0)
        self.hotness = materialize(store, HOTNESS, counted, Threads(threads=2), {"graph": made.graph})
        budgets = BudgetsConfig(memory=MemoryConfig(device=SHARE, host="0"))
        asked = BudgetsStage(store.home), budgets, BudgetsExecution(), {"features": made.features}
        self.budgets = materialize(store, *asked)

    def __call__(self, options: dict[str, Any]) -> Artifact:
        """Returns a model that was trained anew."""
        fresh = options.get("trainer") == "fresh"
        inputs = self.inputs | ({"hotness": self.hotness} if fresh else {})
        cached = options.get("cache") != "none"
        reads = {"hotness": self.hotness, "budgets": self.budgets} if cached else {}
        table = TrainTable(**(KEYS | options))
        given = self.store, inputs, table, SAMPLING, 0
        (model,) = train_table(*given, reads=reads, retrain=True, report=lambda line: None)
        return model


def compared(trainings: Trainings, name: str, rounds: int) -> dict[str, Any]:
    """Returns and prints seconds of an epoch by way, and how many times as fast `fresh` is, behind updates and ahead of them."""
    case, draw = CASES[name], random.Random(0)
    seconds: dict[str, list[float]] = {way: [] for way in case}
    kept: dict[str, set[str]] = {way: set() for way in case}
    for _ in range(rounds):
        for way in draw.sample(list(case), len(case)):
            model = trainings(case[way])
            seconds[way].append(epoch_seconds(model))
            kept[way].add(weights(model))
    assert all(len(each) == 1 for each in kept.values()), "a training has other bits than before"
    assert name != "waiting" or kept["minibatch"] == kept["fresh"] == kept["ahead"], (
        "with nothing kept the bits are not those of minibatch"
    )
    plain, *others = (statistics.median(each) for each in seconds.values())
    ratio, ahead = (plain / each for each in others)
    print(
        f"{name:8} minibatch {plain:.2f} s, fresh {others[0]:.2f} s per epoch: {ratio:.2f} x; ahead {others[1]:.2f} s: {ahead:.2f} x"
    )
    return {"seconds": seconds, "ratio": round(ratio, 3), "ahead_ratio": round(ahead, 3)}
