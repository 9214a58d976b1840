"""Accuracy of settings that change what is learnt, beside plain sampling in pairs of equal seeds: a mean loses at most 0.3 points.

    python -m benchmarks setting_quality [--parts photo,rmat,blocks]

    half the epochs    plain sampling in half of the epochs, which no bound holds: what more of them would still gain
    other products     matrix products by the library that this machine does not take (trainers/models/products.py)
    bf16               dtype = "bf16"
    reuse = 1          every epoch has the batches of the first one, as `samples = "stored"` with one stored epoch
    two parts          `distributed` in two parts of method "ldg", of half the batch size each
    fresh              embeddings of earlier steps, decided as in the paper, in an arena that holds all that is admitted
    lookahead = 1      the same, decided one update earlier
    shipped            the other keys of `[train.fresh]` of jobs/pipelines/payoff/link.toml, on its number of stored epochs

`disk`, `factored` and ranks of one part learn what plain sampling on the same batches learns, to the bit, so they are not among them.
Before anything is compared, `shipped` on packed rows in both orders must end with the weights of rows from the table.

The graphs are Amazon Photo, an R-MAT whose labels neighbours predict, and a stochastic block model, each with two layers of GraphSAGE and
about 100 steps an epoch. A score is the share of all validation and test nodes that the model of the last epoch classifies as they should
be: no epoch is chosen by them, and more nodes make a difference more certain.

A difference is "lost" if its mean is below the limit. With five pairs its 95 % interval (Student's t) may be wider than the limit: the
row says for each whether the whole interval lies above it.

Photo needs the folder that GRAPHMILL_TEST_DATA names. Models in the folder that GRAPHMILL_BENCH_DIR names are reused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args
from unittest import mock

from benchmarks.disk_inputs import home
from benchmarks.disk_quality import store_rows
from benchmarks.distributed import parts_of
from benchmarks.distributed_quality import trained
from benchmarks.factored_runs import weights
from benchmarks.fresh_quality import saving_of
from benchmarks.paired import paired
from benchmarks.payoff import FOLDER
from benchmarks.record import record
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.packed_chunks.config import PackedConfig
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.interface import GraphConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.models.products import Library, own_library
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.fresh.settings import FreshSettings
from graphmill.trainers.training import thread_count
from tests.graphs import GraphArtifacts, build_graph

NUM_SEEDS, LIMIT = 5, 0.3
ALL_ADMITTED: Mapping[str, Any] = {"policy": "accuracy", "arena": "200%"}
PLAIN = "plain"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a training differs from plain sampling.

    Attributes:
        keys: keys of `[[train]]`.
        reuse: sampling epochs that the training epochs take in turn; 0 = each draws its own.
        library: library of matrix products; None for the one of this machine.
        parts: parts of the graph, each with its share of the batch size.
        epoch_share: epochs over those of plain sampling.
    """

    keys: Mapping[str, Any] = field(default_factory=dict)
    reuse: int = 0
    library: Library | None = None
    parts: int = 1
    epoch_share: float = 1.0


def fresh(settings: FreshSettings, **more: Any) -> Setting:
    """Returns plain sampling with embeddings of earlier steps."""
    return Setting(keys={"trainer": "fresh", "settings": settings}, **more)


def shipped() -> Setting:
    """Returns the `[train.fresh]` of the pipeline that shows it, on as many stored epochs.

    On these small graphs its arena would hold all feature rows, and no embedding: it holds all that is admitted, so that nothing but the
    other keys decides what is reused.
    """
    pipeline = load_pipeline(FOLDER / "link.toml", TrainTable)
    (settings,) = (table.settings for table in pipeline.train if table.trainer == "fresh")
    assert pipeline.sampling is not None
    return fresh(replace(settings, rows="table", **ALL_ADMITTED), reuse=pipeline.sampling.reuse)


SETTINGS: dict[str, Setting] = {
    "half the epochs": Setting(epoch_share=0.5),
    "other products": Setting(library=next(each for each in get_args(Library) if each != own_library())),
    "bf16": Setting(keys={"dtype": "bf16"}),
    "reuse = 1": Setting(reuse=1),
    "two parts": Setting(parts=2),
    "fresh": fresh(FreshSettings(**ALL_ADMITTED)),
    "lookahead = 1": fresh(FreshSettings(**ALL_ADMITTED, lookahead=1)),
    "shipped": shipped(),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, how it is sampled, and the epochs of plain sampling."""

    graph: GraphConfig
    sampling: SamplingConfig
    keys: Mapping[str, Any]


# One thread, so that the other core samples.
KEYS: Mapping[str, Any] = {
    "model": "sage", "hidden": 64, "norm": "layer", "residual": True, "lr_schedule": "cosine",
    "eval": "exact", "eval_every": 0, "features": "memory", "threads": 1,
}  # fmt: skip
SIZE: Mapping[str, Any] = {"nodes": 50_000, "features": 32, "classes": 8, "undirected": True}
SPLIT: Mapping[str, Any] = {"train_ratio": 0.1, "valid_ratio": 0.1}
CASES: Mapping[str, tuple[Mapping[str, Any], int, Mapping[str, Any]]] = {
    "photo": ({}, 45, {"lr": 0.004, "epochs": 8}),
    "rmat": ({"edges": 500_000, "noise": 2.0}, 50, {"lr": 0.02, "epochs": 8}),
    "blocks": ({"edges": 400_000, "noise": 4.0, "p_in": 0.6}, 50, {"lr": 0.02, "epochs": 12}),
}
"""Name -> keys of the generator, none of a shipped graph; batch size; keys of `[[train]]` with which more epochs gain little."""


def case_of(name: str, quick: bool = False) -> Case:
    """Returns the case of a graph; a quick one is trained for a quarter of the epochs."""
    drawn, batch_size, keys = CASES[name]
    source = config_class("rmat" if name == "rmat" else "sbm")
    graph = source(**SIZE, **SPLIT, **drawn) if drawn else load_pipeline(name, TrainTable).graph
    sampling = SamplingConfig(fanouts=(10, 5), batch_size=batch_size)
    return Case(graph=graph, sampling=sampling, keys={**KEYS, **keys, "epochs": keys["epochs"] // (4 if quick else 1)})


def main(quick: bool, parts: Sequence[str] | None = None) -> None:
    """Measures each graph, prints the differences, and records a row for each; ends with an error if a setting lost more."""
    lost = list[str]()
    for name in parts or CASES:
        if name == "photo" and not os.environ.get("GRAPHMILL_TEST_DATA"):
            print("setting_quality: photo is skipped, GRAPHMILL_TEST_DATA names no folder with it")
            continue
        with home() as store:
            row = measured(store, case_of(name, quick), SETTINGS, 2 if quick else NUM_SEEDS)
        print(f"{name}: plain sampling {sum(row[PLAIN]) / len(row[PLAIN]):.2f} %")
        for each in row["settings"]:
            print(f"  {told(each)}", flush=True)
        same = [each["name"] for each in row["settings"] if not each["changed"]]
        assert not same, (
            f"{', '.join(same)} ended with the weights of plain sampling on {name}, and nothing was compared"
        )
        lost += [f"{each['name']} on {name}" for each in row["settings"] if each["bounded"] and not each["held"]]
        record("setting_quality", {"graph": name, "scale": "quick" if quick else "full", "limit": LIMIT} | row)
    assert quick or not lost, f"more than {LIMIT} points lost: {', '.join(lost)}"


def told(found: Mapping[str, Any]) -> str:
    """Returns a line about a setting."""
    verdict = "held" if found["shown"] else "held by the mean alone" if found["held"] else "LOST"
    verdict = verdict if found["bounded"] else "not bounded"
    spared = f", {100 * found['saving']:.0f} % of the rows spared" if found["saving"] else ""
    return f"{found['name']:<16} {found['difference']:+.2f} ± {found['half_interval']:.2f} points, {verdict}{spared}"


def measured(store: Store, case: Case, settings: Mapping[str, Setting], seeds: int) -> dict[str, Any]:
    """Returns the scores of plain sampling and of settings, in percent, and their differences.

    Raises:
        AssertionError: packed rows change weights.
    """
    trainings = Trainings(store, case)
    for setting in settings.values():
        if setting.reuse and setting.keys.get("trainer") == "fresh":
            trainings.require_packed(setting)
    plain_models = [trainings.model(Setting(), seed) for seed in range(seeds)]
    plain = [trainings.score(model) for model in plain_models]
    rows = []
    for name, setting in settings.items():
        models = [trainings.model(setting, seed) for seed in range(seeds)]
        scores = [trainings.score(model) for model in models]
        found = paired(plain, scores)
        changed = all(weights(ours) != weights(theirs) for ours, theirs in zip(plain_models, models, strict=True))
        rows.append(
            {"name": name, "scores": scores, "changed": changed, "bounded": setting.epoch_share == 1, **found}
            | {"held": found["difference"] >= -LIMIT, "shown": found["difference"] - found["half_interval"] >= -LIMIT}
            | {"saving": sum(map(saving_of, models)) / seeds if setting.keys.get("trainer") == "fresh" else 0.0}
        )
    return {"epochs": case.keys["epochs"], "steps": trainings.steps, PLAIN: plain, "settings": rows}


class Trainings:
    """Trains the model of a case by a setting, or finds it in the store."""

    def __init__(self, store: Store, case: Case):
        self.store, self.case = store, case
        self.graph: GraphArtifacts = build_graph(store, case.graph)
        opened = self.graph.open()
        self.counts = {"valid": len(opened.valid_ids), "test": len(opened.test_ids)}
        self.steps = -(-len(opened.train_ids) // case.sampling.batch_size)

    @cached_property
    def inputs(self) -> dict[str, Artifact]:
        """What `fresh` reads."""
        counted = hotness_config(HotnessTable(layers="inputs"), self.case.sampling, 0)
        hotness = materialize(self.store, HOTNESS, counted, Threads(threads=2), {"graph": self.graph.graph})
        return self.graph.inputs | {"hotness": hotness}

    def table(self, setting: Setting, **more: Any) -> TrainTable:
        """Returns the `[[train]]` table of a setting."""
        epochs = max(1, round(setting.epoch_share * self.case.keys["epochs"]))
        return TrainTable(name="quality", **{**self.case.keys, "epochs": epochs, **setting.keys, **more})

    def sampling(self, setting: Setting) -> SamplingConfig:
        """Returns the `[sampling]` table of a setting."""
        given = self.case.sampling
        return replace(given, reuse=setting.reuse, batch_size=-(-given.batch_size // setting.parts))

    def model(self, setting: Setting, seed: int, reads: Mapping[str, Artifact] | None = None, **more: Any) -> Artifact:
        """Returns the model of a seed."""
        sampling = self.sampling(setting)
        if setting.parts > 1:
            cut = parts_of(self.store, self.graph.graph, "ldg", setting.parts)
            return trained(self.store, self.graph, cut, self.table(setting), sampling, seed)
        inputs = self.inputs if setting.keys.get("trainer") == "fresh" else self.graph.inputs
        # The version of a model does not depend on the library.
        more |= {"trial": setting.library} if setting.library else {}
        table, library = self.table(setting, **more), setting.library or own_library()
        with mock.patch.object(thread_count, "own_library", lambda: library):
            (made,) = train_table(self.store, inputs, table, sampling, seed, reads=reads, report=lambda line: None)
        return made

    def score(self, model: Artifact) -> float:
        """Returns the share of validation and test nodes that a model classifies as they should be, in percent."""
        right = sum(count * model.summary["numbers"][f"{name}_accuracy"] for name, count in self.counts.items())
        return round(100 * right / sum(self.counts.values()), 3)

    def require_packed(self, setting: Setting) -> None:
        """Trains two epochs by a setting of `fresh` on packed rows in both orders, and on rows from the table.

        Raises:
            AssertionError: weights differ.
        """
        digests, settings = {}, setting.keys["settings"]
        for order in ("table", "nodes", "reads"):
            keys, reads = dict(setting.keys), None
            if order != "table":
                packed = PackedConfig(order=order)
                reads = store_rows(
                    self.store, self.graph, self.sampling(setting), 0, reuse=setting.reuse, packed=packed
                )
                keys |= {"settings": replace(settings, rows="packed"), "samples": "stored"}
            model = self.model(replace(setting, keys=keys), 0, reads, trial=order, epochs=2)
            digests[order] = weights(model)
        assert len(set(digests.values())) == 1, f"packed rows change weights: {digests}"
