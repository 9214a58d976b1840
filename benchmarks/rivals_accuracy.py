"""Seconds of training to one validation accuracy: ours by mini-batches, `fresh`, full graph and from disk, beside DGL and GraphBolt.

    photo       7,650 products, 745 columns; needs the folder that GRAPHMILL_TEST_DATA names
    citation    400,000 nodes that cite, mostly in their class
    rmat        300,000 nodes; a class is a block of ids, which neighbours predict

All train 2-layer GraphSAGE of one width and dropout, with LayerNorm. Mini-batches have the same fan-outs, sizes and learning rate; passes
over the whole graph, one step an epoch, have a rate of their own. The model is scored after each epoch on the validation nodes, with all
their neighbours; scoring is not counted. The threshold of a graph is one that all reach. What `fresh` and `disk` prepare once is told
beside their seconds. DGL's mini-batches and passes over the whole graph, and GraphBolt's mini-batches, run as processes, "kept" and
"default".
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.disk_quality import REUSE, store_rows
from benchmarks.rival_process import RivalProcess, contestants, spec_of
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.fresh.settings import FreshSettings
from graphmill.trainers.techniques.fullgraph.settings import FullGraphSettings
from tests.graphs import GraphArtifacts, build_graph

THREADS = 2
DATA = "GRAPHMILL_TEST_DATA"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, how it is trained on, and when training is over."""

    threshold: float
    graph: dict[str, Any]
    fanouts: tuple[int, ...] = (10, 10)
    batch_size: int = 1024
    epochs: int = 6
    whole_epochs: int = 15
    hidden: int = 128
    lr: float = 0.003
    whole_lr: float = 0.01

    def config(self, name: str) -> Any:
        """Returns the configuration of the graph."""
        if not self.graph:
            return load_pipeline(name, TrainTable).graph
        more = {key: value for key, value in self.graph.items() if key != "source"}
        return config_class(self.graph["source"])(seed=1, **more)

    def table(self, model: str = "sage", **more: Any) -> TrainTable:
        """Returns a train table."""
        keys = {
            "layers": 2,
            "hidden": self.hidden,
            "norm": "layer",
            "epochs": self.epochs,
            "lr": self.lr,
            "features": "memory",
        }
        return TrainTable(name=model, model=model, threads=THREADS, eval="exact", **(keys | more))


CASES = {
    "photo": Case(
        threshold=0.9, graph={}, fanouts=(15, 10), batch_size=512, epochs=12, whole_epochs=200, lr=0.005
    ),
    "citation": Case(
        threshold=0.93,
        graph={
            "source": "citation", "nodes": 400_000, "edges": 4_000_000, "features": 128, "classes": 16, "noise": 6.0,
            "train_ratio": 0.03, "valid_ratio": 0.02,
        },
    ),
    "rmat": Case(
        threshold=0.83,
        graph={
            "source": "rmat", "nodes": 300_000, "edges": 3_000_000, "features": 128, "classes": 8, "noise": 6.0,
            "train_ratio": 0.05, "valid_ratio": 0.02,
        },
    ),
}  # fmt: skip
QUICK = {
    "citation": Case(
        threshold=0.6, epochs=6, whole_epochs=10, hidden=32, batch_size=256,
        graph={
            "source": "citation", "nodes": 10_000, "edges": 100_000, "features": 32, "classes": 4, "train_ratio": 0.2,
            "valid_ratio": 0.1,
        },
    )
}  # fmt: skip


def measure(quick: bool, name: str) -> dict[str, Any]:
    """Returns the seconds to the accuracy of a graph, and the ratios; without the graph's data an empty row."""
    if name == "photo" and not os.environ.get(DATA):
        print(f"photo: left out, {DATA} names no folder with it")
        return {}
    case = (QUICK if quick else CASES)[name]
    with tempfile.TemporaryDirectory() as home:
        row = _compare(Store(Path(home)), name, case, quick)
    print(f"  {name}, to {case.threshold}: seconds {row['seconds']}; {row['ratios']}", flush=True)
    return row


def _compare(store: Store, name: str, case: Case, quick: bool) -> dict[str, Any]:
    graph = build_graph(store, case.config(name), threads=THREADS)
    prepared, reads = _prepared(store, graph, case)
    runs = _ours(store, graph, case, reads) | _theirs(graph, case, quick)
    for way, found in runs.items():
        print(f"    {way}: {found}", flush=True)
    seconds = {way: found["seconds"] for way, found in runs.items()}
    missed = [way for way, each in seconds.items() if each is None]
    assert not missed, f"{name}: {', '.join(missed)} did not reach {case.threshold}"
    best = min((way for way in seconds if way.startswith("ours")), key=lambda way: seconds[way] or 0.0)
    ratios = {way: round((each or 0.0) / (seconds[best] or 1.0), 3) for way, each in seconds.items() if way != best}
    row = {"graph": name, "threshold": case.threshold, "seconds": seconds, "best": best, "ratios": ratios}
    return row | {"prepared_seconds": prepared, "runs": runs, "recipe": repr(case)}


def _prepared(store: Store, graph: GraphArtifacts, case: Case) -> tuple[dict[str, float], dict[str, Any]]:
    """Builds what `fresh` and `disk` need. Returns the seconds of each, and the artifacts."""
    sampling, began = SamplingConfig(fanouts=case.fanouts, batch_size=case.batch_size), time.perf_counter()
    counted = hotness_config(HotnessTable(layers="inputs"), sampling, 0)
    hotness = materialize(store, HOTNESS, counted, Threads(threads=THREADS), {"graph": graph.graph})
    after = time.perf_counter()
    packed = store_rows(store, graph, sampling, 0)
    seconds = {"ours, fresh": round(after - began, 3), "ours, disk": round(time.perf_counter() - after, 3)}
    return seconds, {"hotness": hotness, "packed": packed}


def _ours(store: Store, graph: GraphArtifacts, case: Case, made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Trains by each technique. Returns way -> seconds and epochs to the threshold."""
    plain = SamplingConfig(fanouts=case.fanouts, batch_size=case.batch_size)
    rotating = SamplingConfig(fanouts=case.fanouts, batch_size=case.batch_size, reuse=REUSE)
    fresh = FreshSettings(policy="accuracy", arena="200%")
    whole: dict[str, Any] = {"trainer": "fullgraph", "epochs": case.whole_epochs, "lr": case.whole_lr}
    whole["settings"] = FullGraphSettings(mode="device")
    inputs, hot = graph.inputs, graph.inputs | {"hotness": made["hotness"]}
    found: dict[str, dict[str, Any]] = {}
    for way, table, given, sampling, reads in (
        ("minibatch", case.table(), inputs, plain, {}),
        ("fresh", case.table(trainer="fresh", settings=fresh), hot, plain, {}),
        ("fullgraph", case.table(**whole), inputs, None, {}),
        ("disk", case.table(trainer="disk"), inputs, rotating, made["packed"]),
    ):
        (model,) = train_table(store, given, table, sampling, 0, reads=reads, report=lambda line: None)
        found[f"ours, {way}"] = reached(model, case.threshold)
    return found


def reached(model: Artifact, threshold: float) -> dict[str, Any]:
    """Returns the seconds of training and the epochs until a model's validation score was at the threshold, and its best score.

    The seconds are None if it never was.
    """
    rows = [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]
    scores = [row.get("valid", 0.0) for row in rows]
    return until(model.run_record()["epoch_seconds"]["train"], scores, threshold)


def until(seconds: Sequence[float], scores: Sequence[float], threshold: float) -> dict[str, Any]:
    """Returns the sum of seconds up to the first score at the threshold, its epoch from 1 (or None, None), and the best score."""
    first = next((place for place, score in enumerate(scores) if score >= threshold), None)
    best = round(max(scores), 4)
    if first is None:
        return {"seconds": None, "epochs": None, "best": best}
    return {"seconds": round(sum(seconds[: first + 1]), 3), "epochs": first + 1, "best": best}


def _theirs(graph: GraphArtifacts, case: Case, quick: bool) -> dict[str, dict[str, Any]]:
    """Trains the rivals until the threshold. Returns way -> seconds and epochs."""
    found = {}
    for system, ask in (("dgl", "epoch"), ("dgl", "whole_epoch"), ("graphbolt", "epoch")):
        whole = ask == "whole_epoch"
        config = case.table(lr=case.whole_lr if whole else case.lr).config
        for name, python, kept in contestants(system, quick):
            spec = spec_of(graph, config, case.fanouts, case.batch_size) | {"system": system, "seed": 0}
            with RivalProcess(python, spec, kept) as rival:
                rival.compare(graph, config)
                found[name.replace(",", " fullgraph,") if whole else name] = _trained(
                    rival, ask, case.whole_epochs if whole else case.epochs, case.threshold
                )
    return found


def _trained(rival: RivalProcess, ask: str, epochs: int, threshold: float) -> dict[str, Any]:
    seconds: list[float] = []
    scores: list[float] = []
    while len(seconds) < epochs and (not scores or scores[-1] < threshold):
        seconds.append(rival.ask(ask)["seconds"])
        scores.append(rival.ask("accuracy"))
    return until(seconds, scores, threshold)
