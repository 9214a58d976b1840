"""Epochs with embeddings of earlier steps, beside plain mini-batches with a cache of feature rows of the same bytes (FreshGNN 5, 7.2).

    link      misses cross a link of 1 GB/s that is kept to by waiting
    mapped    misses come from the mapped table, which is in the page cache: reading is nearly free
    waiting   nothing is kept (p_grad = 0): what it costs that a batch is pruned and gathered after the update before it and not meanwhile

The last is measured with all rows in memory, where reading is free. Its weights have to be those of `minibatch`. Ways are timed in drawn
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
FRESH = FreshSettings(arena=SHARE, t_stale=60)
NOTHING = FreshSettings(arena=SHARE, p_grad=0.0, policy="accuracy")
KEYS: dict[str, Any] = {"name": "timed", "hidden": 64, "layers": 3, "epochs": 3, "eval": "exact", "eval_every": 3}
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "link": {
        "minibatch": {"link": f"{GBPS} GB/s"},
        "fresh": {"link": f"{GBPS} GB/s", "trainer": "fresh", "settings": FRESH, "cache": "none"},
    },
    "mapped": {"minibatch": {}, "fresh": {"trainer": "fresh", "settings": FRESH, "cache": "none"}},
    "waiting": {
        "minibatch": {"features": "memory", "cache": "none"},
        "fresh": {"features": "memory", "cache": "none", "trainer": "fresh", "settings": NOTHING},
    },
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
    """Returns and prints seconds of an epoch by way, and how many times as fast `fresh` is."""
    ways, draw = CASES[name], random.Random(0)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    kept: dict[str, set[str]] = {way: set() for way in ways}
    for _ in range(rounds):
        for way in draw.sample(list(ways), len(ways)):
            model = trainings(ways[way])
            seconds[way].append(epoch_seconds(model))
            kept[way].add(weights(model))
    assert all(len(each) == 1 for each in kept.values()), "a training has other bits than before"
    assert name != "waiting" or kept["minibatch"] == kept["fresh"], (
        "with nothing kept the bits are not those of minibatch"
    )
    medians = {way: statistics.median(each) for way, each in seconds.items()}
    ratio = medians["minibatch"] / medians["fresh"]
    print(f"{name:8} minibatch {medians['minibatch']:.2f} s, fresh {medians['fresh']:.2f} s per epoch: {ratio:.2f} x")
    return {"seconds": seconds, "ratio": round(ratio, 3)}
