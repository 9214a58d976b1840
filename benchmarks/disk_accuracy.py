"""Accuracy of training from disk beside that of other systems' sampling, of two models on two graphs (DiskGNN, Table 3).

    disk              five stored sampling epochs in rotation, rows from packed chunks
    minibatch         new samples in every epoch, among all neighbours: as Ginex and DGL on disk train
    resident 10 %     neighbours among the partitions in memory alone, with 10 % of the nodes there, as MariusGNN trains (`disk_resident`)
    resident 50 %     the same with half of the nodes

Graphs: a generated citation graph, whose 3 % training nodes are as few as those of ogbn-papers100M, and Cora, which needs the folder that
GRAPHMILL_TEST_DATA names. Models: GraphSAGE and GAT, three seeds. Test scores are those of the epoch that was best on validation, with all
neighbours. Equality first: with all nodes in memory, resident training gives the very model of `minibatch`; and on the same samples
training from disk does (GraphSAGE, seed 0).

    python -m benchmarks.disk_accuracy cora
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.charts import bar_chart
from benchmarks.command_line import asked_for
from benchmarks.disk_quality import store_rows
from benchmarks.disk_resident import resident_training
from benchmarks.record import record
from graphmill.assets.budgets.config import MemoryConfig
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.interface import GraphConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.graphs import GraphArtifacts, build_graph

SHARES = {"resident 10 %": 0.1, "resident 50 %": 0.5}
GRAPHS = ("citation", "cora")
MODELS = ("sage", "gat")
NUM_SEEDS, REUSE = 3, 5
MEMORY = MemoryConfig(device="5%", host="10%", disk="100x")
CITATION: dict[str, Any] = {
    "nodes": 200_000, "edges": 2_000_000, "features": 128, "classes": 16, "noise": 6.0, "train_ratio": 0.03, "valid_ratio": 0.02,
}  # fmt: skip
CITATION_TABLE: dict[str, Any] = {
    "layers": 2,
    "hidden": 128,
    "norm": "layer",
    "epochs": 20,
    "eval_every": 4,
    "lr": 0.003,
}
CITATION_SAMPLING = SamplingConfig(fanouts=(10, 10), batch_size=1024)
CORA_EPOCHS = 60
CORA_SAMPLING = SamplingConfig(fanouts=(10, 10), batch_size=140)
SMALL: dict[str, Any] = CITATION | {"nodes": 50_000, "edges": 500_000}
QUICK: dict[str, Any] = CITATION | {"nodes": 20_000, "edges": 200_000}


def main(quick: bool, graphs: Sequence[str] = GRAPHS) -> None:
    """Records a row for each graph and model."""
    for graph in graphs:
        if graph == "cora" and (quick or not os.environ.get("GRAPHMILL_TEST_DATA")):
            print("cora: left out of quick runs, and if GRAPHMILL_TEST_DATA names no folder with it")
            continue
        measure(graph, quick)


def measure(graph: str, quick: bool) -> None:
    """Records the rows of one graph."""
    models = MODELS[: 1 if quick else None]
    scores: dict[str, list[dict[str, float]]] = {model: [] for model in models}
    for seed in range(1 if quick else NUM_SEEDS):
        with tempfile.TemporaryDirectory() as folder:
            runs = Runs(Path(folder), graph, quick, seed)
            for model in models:
                scores[model].append(runs.compare(model))
                print(f"{graph}, {model}, seed {seed}: {scores[model][-1]}", flush=True)
    for model in models:
        found = {name: spread([each[name] for each in scores[model]]) for name in scores[model][0]}
        print(f"{graph}, {model}: {found}", flush=True)
        row = {"scale": "quick" if quick else "full", "graph": graph, "model": model, "reuse": REUSE}
        table = repr(recipe(graph, model, quick)[1])
        record("disk_accuracy", row | {"table": table, "scores": scores[model], "accuracy": found})


def recipe(graph: str, model: str, quick: bool) -> tuple[GraphConfig, TrainTable, SamplingConfig]:
    """Returns the graph, the table and the sampling of one cell."""
    if graph == "cora":
        pipeline = load_pipeline("cora", TrainTable)
        (table,) = (each for each in pipeline.train if each.name == model)
        return pipeline.graph, replace(table, seeds=(), epochs=CORA_EPOCHS, eval_every=4, threads=1), CORA_SAMPLING
    heads = {"heads": 4} if model == "gat" else {}
    table = TrainTable(name=model, model=model, eval="exact", threads=1, **heads, **CITATION_TABLE)
    size = QUICK if quick else SMALL
    return config_class("citation")(seed=1, **size), table, CITATION_SAMPLING


class Runs:
    """The trainings of one graph and seed, which share what is stored.

    Args:
        folder: folder of the stores.
        graph: name of the graph.
        quick: whether it is small.
        seed: seed of samples and models.
    """

    def __init__(self, folder: Path, graph: str, quick: bool, seed: int):
        self.folder, self.name, self.quick, self.seed = folder, graph, quick, seed
        self.config, _, self.sampling = recipe(graph, MODELS[0], quick)
        self.store = Store(folder / "all")
        self.graph = build_graph(self.store, self.config)
        self.stored = store_rows(self.store, self.graph, self.sampling, seed, memory=MEMORY, reuse=REUSE)

    def compare(self, model: str) -> dict[str, float]:
        """Returns the test score of each contestant, in percent."""
        _, table, sampling = recipe(self.name, model, self.quick)
        rotating, store, graph = replace(sampling, reuse=REUSE), self.store, self.graph
        models = {
            "disk": self._train(store, graph, replace(table, trainer="disk"), rotating, self.stored),
            "minibatch": self._train(store, graph, table, sampling),
        }
        if self.seed == 0 and model == MODELS[0]:
            same = self._train(store, graph, table, rotating)
            _require_equal(models["disk"], same, "from disk and online, on the same samples")
            _require_equal(models["minibatch"], self._resident("whole", table, 1.0), "with all nodes in memory")
        for name, share in SHARES.items():
            models[name] = self._resident(name, table, share)
        return {name: round(100 * each.summary["numbers"]["test_accuracy"], 3) for name, each in models.items()}

    def _train(
        self, store: Store, graph: GraphArtifacts, table: TrainTable, how: SamplingConfig, reads: Any = None
    ) -> Artifact:
        options: dict[str, Any] = {"reads": reads or {}, "report": lambda line: None}
        (model,) = train_table(store, graph.inputs, table, how, self.seed, **options)
        return model

    def _resident(self, name: str, table: TrainTable, share: float) -> Artifact:
        """Trains on resident partitions, in a store of its own."""
        store = Store(self.folder / name)
        graph = build_graph(store, self.config)
        with resident_training(np.array(graph.open().train_ids), share):
            return self._train(store, graph, table, self.sampling)


def _require_equal(one: Artifact, other: Artifact, how: str) -> None:
    """Compares weights and scores of two models, to the byte.

    Raises:
        AssertionError: they differ.
    """
    for file in ("weights.safetensors", "metrics.jsonl"):
        assert one.files[file]["digest"] == other.files[file]["digest"], (how, file)


def spread(values: list[float]) -> dict[str, float]:
    """Returns mean and standard deviation."""
    return {"mean": round(statistics.fmean(values), 2), "deviation": round(statistics.pstdev(values), 2)}


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws the accuracy of each contestant by graph and model (DiskGNN, Table 3)."""
    names = {
        "disk": "from disk, ours",
        "minibatch": "Ginex",
        "resident 10 %": "MariusGNN, 10 %",
        "resident 50 %": "MariusGNN, 50 %",
    }
    titles = {"citation": "citation", "cora": "Cora", "sage": "GraphSAGE", "gat": "GAT"}
    values = {
        f"{titles[row['graph']]}, {titles[row['model']]}": {
            label: row["accuracy"][name]["mean"] for name, label in names.items()
        }
        for row in rows
        if row["scale"] == "full"
    }
    says = "The bars are the mean test accuracy of three seeds, by all neighbours, at the epoch that was best on validation."
    return [
        bar_chart("diskgnn-accuracy", "Accuracy by way of sampling from disk", says, values, label="test accuracy, %")
    ]


if __name__ == "__main__":
    main(*asked_for(GRAPHS, "graph"))
