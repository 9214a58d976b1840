"""How far embeddings of earlier steps are from exact ones, and how far a step moves them (FreshGNN, Figures 1 and 3).

At every 20th step of a training, before its update, three things are measured with the weights of that moment and without dropout:

    error of a batch     the logits of its seeds, and the rows that its last layer reads, as the step computes them from kept rows and from
                         drawn neighbours, against the same rows from all neighbours: the mean of |approximated - exact| / |exact|
    error of kept rows   the same of the rows that come from the history alone
    cosine               of the exact embeddings of all nodes with those of 20 steps before, in the last hidden layer: its distribution

Plain sampling has an error, too, that of drawn neighbours: what is above it is the history's. The ways of keeping rows:

    plain sampling            nothing is kept
    fresh                     p_grad = 0.9, t_stale = "epoch/6"
    all, for an epoch         p_grad = 1, t_stale of an epoch: like GAS, where a node's row is written once in an epoch
    all, for ever             p_grad = 1, t_stale = "forever": a row is written once

Checked before: the logits from all neighbours are those of the trainer's exact evaluation, and a training that is observed has the losses
of one that is not. Graphs are those of
fresh_thresholds; Photo needs the folder that GRAPHMILL_TEST_DATA names.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.charts import line_chart
from benchmarks.disk_inputs import home
from benchmarks.fresh_quality import MODELS
from benchmarks.fresh_thresholds import GRID_CASES, TITLES
from benchmarks.record import record
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Silent
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.store import Store
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.series import Series
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Array, BatchKey, Block, Stream
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.inference.gathered import EVALUATION
from graphmill.trainers.models.ops import splice
from graphmill.trainers.recipe.config import ModelConfig, TrainTable
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import RowIds
from graphmill.trainers.techniques.fresh.settings import FreshSettings
from graphmill.trainers.training.training import RunExecution, Training
from tests.graphs import GraphArtifacts, build_graph

LAG, NUM_SEEDS, EPOCHS, STABLE = 20, 3, 5, 0.8
PERCENTILES = (5, 25, 50, 75, 95)
PLAIN, FRESH = "plain sampling", "fresh"
ALL: dict[str, Any] = {"policy": "accuracy", "arena": "200%", "p_grad": 1.0}
WAYS: dict[str, FreshSettings | None] = {
    PLAIN: None,
    FRESH: FreshSettings(policy="accuracy", arena="200%"),
    "all, for an epoch": FreshSettings(t_stale="epoch/1", **ALL),
    "all, for ever": FreshSettings(t_stale="forever", **ALL),
}


def main(
    quick: bool, graphs: Sequence[str] = (), models: Sequence[str] = ("sage", "gcn"), seeds: int = NUM_SEEDS
) -> None:
    for name in graphs or (("blocks",) if quick else GRID_CASES):
        if name == "photo" and not os.environ.get("GRAPHMILL_TEST_DATA"):
            print("fresh_drift: photo is skipped, GRAPHMILL_TEST_DATA names no folder with it")
            continue
        for model in models:
            with home() as store:
                row = _measure(store, name, model, 1 if quick else seeds, 1 if quick else EPOCHS)
            _report(row)
            record("fresh_drift", row | {"scale": "quick" if quick else "full"})


def _measure(store: Store, name: str, model: str, seeds: int, epochs: int) -> dict[str, Any]:
    """Returns the row of a graph and a model."""
    case = GRID_CASES[name]
    graph = build_graph(store, case.config(name))
    counted = hotness_config(HotnessTable(layers="inputs"), case.sampling, 0)
    hotness = materialize(store, HOTNESS, counted, Threads(threads=2), {"graph": graph.graph})
    inputs = graph.inputs | {"hotness": hotness}

    def opened(way: str, seed: int, epochs: int) -> Training:
        used = graph.inputs if WAYS[way] is None else inputs
        return _training(used, _options(name, model, way, epochs), case.sampling, seed, store.home)

    _require_equal(opened(FRESH, 0, 1), Watch(opened(FRESH, 0, 1), graph).training)
    ways: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS if model == "sage" or way in (PLAIN, FRESH)}
    for seed in range(seeds):
        for way, found in ways.items():
            watch = Watch(opened(way, seed, epochs), graph)
            watch.training.train()
            found.append(watch.found)
            print(f"{name} {model} {way} seed {seed}: {watch.in_words()}", flush=True)
    return {"graph": name, "model": model, "lag": LAG, "ways": {way: mean_of(found) for way, found in ways.items()}}


def _options(name: str, model: str, way: str, epochs: int) -> dict[str, Any]:
    """Returns the keys of a train table; one thread, since many benchmarks share the cores."""
    more = {"epochs": epochs, "eval_every": epochs, "lr_schedule": "constant", "threads": 1, "features": "memory"}
    fresh = {} if WAYS[way] is None else {"trainer": "fresh", "settings": WAYS[way]}
    return GRID_CASES[name].table | MODELS[model] | more | fresh | {"model": model}


def _training(inputs: Any, options: dict[str, Any], sampling: SamplingConfig, seed: int, folder: Path) -> Training:
    table = TrainTable(name="drift", model=options.pop("model"), **options)
    semantic = ModelConfig(seed=seed, train=table.config, sampling=sampling)
    execution = RunExecution(**vars(table.execution), checkpoints=folder / "checkpoints", epoch_lines="none")
    return Training(inputs, {}, semantic, execution, "0" * 64, Silent())


def _require_equal(plain: Training, watched: Training) -> None:
    """Trains both, and compares their losses: to be observed changes nothing."""
    for each in (plain, watched):
        each.train()
    losses = [each.loop.state.history[-1]["loss"] for each in (plain, watched)]
    assert losses[0] == losses[1], f"an observed training has loss {losses[1]}, another {losses[0]}"


class Watch:
    """Measures errors and cosines at every 20th step of a training; takes the place of its gradient.

    Args:
        training: the training, not begun.
        graph: its graph.

    Attributes:
        found: name -> one value for each measured step.
    """

    def __init__(self, training: Training, graph: GraphArtifacts):
        self.training, self.topology = training, graph.open().topology
        self.executor: Any = training.loop.executor
        self.gradient, self.executor.gradient = self.executor.gradient, self
        ids = np.arange(self.topology.num_nodes, dtype=self.topology.indices.dtype)
        sampler = Sampler(self.topology, (-1,), seed=0)
        (self.block,) = sampler.sample(BatchKey(Stream.PROBE, 0, 0), ids, transpose="none")
        attach_weights((self.block,), self.topology, training.run.model.edge_weight)
        source = training.features.table
        self.x = torch.empty((len(ids), source.width))
        source.gather(RowIds(ids), self.x, Ledger())
        self.step, self.before = 0, None
        self.found: dict[str, list[Any]] = {
            name: [] for name in ("steps", "logits", "hidden", "kept", "kept_share", "cosine", "stable")
        }

    def __call__(self, batch: Any, *between: Any) -> Any:
        """Measures if it is time to, and computes the batch's gradient."""
        if self.step % LAG == 0:
            with torch.no_grad():
                self.measure(batch)
        self.step += 1
        return self.gradient(batch, *between)

    def measure(self, batch: Any) -> None:
        """Adds the values of a step."""
        exact = self.exact()
        if not self.step:
            self.compare(exact[-1])
        passed: dict[int, tuple[Array, Tensor, Array]] = {}

        def between(layer: int, block: Block, h: Tensor) -> Tensor:
            kept = np.zeros(0, np.int64)
            if block.splice is not None:
                rows = self.executor.history.arena.embeddings
                h = splice(h, torch.as_tensor(rows[block.splice.hist_slot]), block.splice)
                kept = np.asarray(block.splice.hist_pos)
            passed[layer] = (np.asarray(block.src_ids), h, kept)
            return h

        logits = self.training.run.model(batch.blocks, batch.x, EVALUATION, between)
        last = len(batch.blocks) - 1
        kept = [errors(h[at], exact[layer - 1][ids[at]]) for layer, (ids, h, at) in passed.items()]
        ids, h, at = passed[last]
        values = {
            "steps": self.step,
            "logits": _mean(errors(logits, exact[-1][batch.seeds])),
            "hidden": _mean(errors(h, exact[last - 1][ids])),
            "kept": _mean(torch.cat(kept)),
            "kept_share": len(at) / len(ids),
        }
        if self.before is not None:
            cosine = torch.nn.functional.cosine_similarity(exact[last - 1], self.before, dim=1).numpy()
            values |= {"cosine": np.percentile(cosine, PERCENTILES).tolist(), "stable": float((cosine > STABLE).mean())}
        self.before = exact[last - 1]
        for name, value in values.items():
            self.found[name].append(value)

    def exact(self) -> list[Tensor]:
        """Returns the outputs of all layers from all neighbours, float[N, H] each, and in the place of the last one's the logits."""
        model: Any = self.training.run.model
        model.eval()
        h, outputs = model.input(self.x, self.block.src_ids, EVALUATION), []
        for index in range(len(model.layers)):
            h = model.forward_layer(index, self.block, h, EVALUATION)
            outputs.append(h)
        return [*outputs[:-1], model.head([h])]

    def compare(self, logits: Tensor) -> None:
        """Compares logits with those of the trainer's evaluation."""
        training = self.training
        ids = np.array(training.run.graph.valid_ids)
        theirs = training.run.infer(
            training.run.model, ids, training.execution.checkpoints, Silent(), self._no_source, None, None
        )
        assert torch.allclose(logits[ids], theirs, rtol=1e-3, atol=1e-4), "the logits differ from the trainer's"

    def _no_source(self, plan: Any) -> Any:
        raise AssertionError("the evaluation is not exact")

    def in_words(self) -> str:
        """Returns the last values."""
        last = {name: values[-1] for name, values in self.found.items()}
        return ", ".join(f"{name} {np.round(value, 3)}" for name, value in last.items())


def errors(rows: Tensor, exact: Tensor) -> Tensor:
    """Returns float[m], |rows - exact| / |exact| of the rows of which exact ones are not zero.

    Args:
        rows, exact: float[n, H] each.
    """
    norms = exact.norm(dim=1)
    return ((rows - exact).norm(dim=1) / norms)[norms > 0]


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else 0.0


def mean_of(found: Sequence[dict[str, list[Any]]]) -> dict[str, Any]:
    """Returns the means over seeds: name -> one value for each measured step, and under "range" the least and largest error of logits.

    Args:
        found: name -> values, of each seed.
    """
    means = {name: np.mean([each[name] for each in found], axis=0).round(5).tolist() for name in found[0]}
    logits = np.array([each["logits"] for each in found])
    return means | {"range": [logits.min(axis=0).round(5).tolist(), logits.max(axis=0).round(5).tolist()]}


def _report(row: dict[str, Any]) -> None:
    print(f"{row['graph']} {row['model']}: errors in percent, means over the second half of the training")
    for way, found in row["ways"].items():
        half = len(found["steps"]) // 2
        words = [
            f"{name} {100 * np.mean(found[name][half:]):.1f}" for name in ("logits", "hidden", "kept", "kept_share")
        ]
        cosine = np.mean(found["cosine"][half:], axis=0).round(3).tolist()
        print(
            f"  {way:18} {', '.join(words)}; cosine {cosine}, above {STABLE}: {100 * np.mean(found['stable'][half:]):.1f} %"
        )


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws the error of logits over the steps (FreshGNN, Figure 1), and the distribution of cosines (Figure 3)."""
    last = {(row["graph"], row["model"]): row["ways"] for row in rows if row["scale"] == "full"}
    found = []
    for name, title in TITLES.items():
        if (name, "sage") in last:
            found.append(_errors_drawn(name, title, last[name, "sage"]))
        if (name, "gcn") in last:
            found.append(_cosines_drawn(name, title, last[name, "gcn"][PLAIN]))
    return found


def _errors_drawn(name: str, title: str, ways: dict[str, dict[str, Any]]) -> ReportFigure:
    curves = [
        Series(label=way, x=of["steps"], y=_percent(of["logits"]), low=_percent(low), high=_percent(high))
        for way, of in ways.items()
        for low, high in [of["range"]]
    ]
    says = "Distance of the logits of a batch from those of all neighbours, GraphSAGE, mean and range of the seeds."
    title = f"Errors of embeddings, {title}"
    return line_chart(f"fresh-error-{name}", title, says, curves, x_label="step", y_label="error of logits, %")


def _cosines_drawn(name: str, title: str, plain: dict[str, Any]) -> ReportFigure:
    cosines = np.array(plain["cosine"])
    curves = [
        Series(label=f"{percentile} % are below", x=plain["steps"][1:], y=cosines[:, place].tolist())
        for place, percentile in enumerate(PERCENTILES)
    ]
    says = f"Cosine of the embeddings of all nodes with those of {LAG} steps before, GCN, plain sampling, mean of the seeds."
    title = f"Embeddings {LAG} steps apart, {title}"
    return line_chart(f"fresh-cosine-{name}", title, says, curves, x_label="step", y_label="cosine similarity")


def _percent(shares: Sequence[float]) -> list[float]:
    return [100 * each for each in shares]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="*", default=())
    parser.add_argument("--models", nargs="*", default=("sage", "gcn"))
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS)
    options = parser.parse_args()
    main(False, options.graphs, options.models, options.seeds)
