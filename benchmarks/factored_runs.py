"""A graph with a cache that is trained on in any way, for the measurements of factored training."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

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
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.graphs import build_graph

SKEW = {"a": 0.57, "b": 0.19, "c": 0.19}
CACHE = "20%"


class Runs:
    """Trainings on a generated graph.

    Args:
        store: gets everything.
        size: what the R-MAT graph is like besides its skew.
        sampling: how its batches are drawn.

    Attributes:
        seconds: what came before the first epoch, by name.
    """

    def __init__(self, store: Store, size: Mapping[str, Any], sampling: SamplingConfig):
        self.store, self.sampling = store, sampling
        semantic: Any = config_class("rmat")(seed=1, **size, **SKEW)
        self.seconds: dict[str, float] = {}
        made = self._timed("graph and features", lambda: build_graph(store, semantic))
        self.inputs = made.inputs
        budgets = BudgetsConfig(memory=MemoryConfig(device=CACHE, host="0"))
        ranked = self._timed("presampling", self._ranked)
        self.reads = {
            "hotness": ranked,
            "budgets": materialize(
                store, BudgetsStage(store.home), budgets, BudgetsExecution(), {"features": made.features}
            ),
        }

    def _ranked(self) -> Artifact:
        config = hotness_config(HotnessTable(), self.sampling, 0)
        return materialize(self.store, HOTNESS, config, Threads(threads=2), {"graph": self.inputs["graph"]})

    def _timed(self, name: str, call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        found = call()
        self.seconds[name] = round(time.perf_counter() - started, 3)
        return found

    def train(self, options: Mapping[str, Any], **more: Any) -> Artifact:
        """Trains a model anew; what is measured is its last epoch.

        Args:
            options: of the system.
            more: of the model and the run; they go before.
        """
        table: dict[str, Any] = {"name": "timed", "hidden": 64, "epochs": 2, "threads": 1, "accumulate": 2, "eval": "sampled",
                                 "topology": "device" if "trainer" in options else "host"} | dict(options) | more  # fmt: skip
        table["eval_every"] = table["epochs"]
        (model,) = train_table(
            self.store,
            self.inputs,
            TrainTable(**table),
            self.sampling,
            0,
            reads={} if table.get("cache") == "none" else self.reads,
            retrain=True,
            report=lambda line: None,
        )
        return model


def epoch_seconds(model: Artifact) -> float:
    """Returns the seconds of a model's last epoch."""
    return model.run_record()["epoch_seconds"]["train"][-1]


def weights(model: Artifact) -> str:
    """Returns the digest of a model's weights."""
    return model.files["weights.safetensors"]["digest"]
