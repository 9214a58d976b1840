"""Accuracy and saved rows of `fresh` over p_grad, t_stale and the first step whose rows are kept (FreshGNN, Figure 13, Table 3).

The arena holds all that is admitted, and no feature rows, so that the thresholds alone decide what is kept: policy = "accuracy". The saving
is the share of the input rows of plain sampling that no batch loads, since a kept row stands for what is under it. An epoch has 100 steps
(Photo 102). Test scores are those of the epoch that was best on validation, paired by seed with plain sampling.

    blocks    a block model of 40,000 nodes and 320,000 edges, 12.5 % training nodes, three layers of GraphSAGE, batches of 50
    photo     Amazon Photo as in fresh_quality, two layers; it needs the folder that GRAPHMILL_TEST_DATA names

Checked before: with t_stale = 0 the test score is that of plain sampling, and no row is saved. Models in the folder that
GRAPHMILL_BENCH_DIR names are reused, so a measurement that was cut off goes on where it ended.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.charts import line_chart
from benchmarks.disk_inputs import home
from benchmarks.fresh_quality import CASES, Case, saving_of
from benchmarks.paired import paired
from benchmarks.record import record
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.series import Series
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.fresh.settings import FreshSettings
from tests.graphs import build_graph

NUM_SEEDS = 3
P_GRADS = (0.5, 0.9, 1.0)
T_STALES = (17, 100, 300)
STARTS = (0, 17, 33, 67)
"""Steps of 100: the shares of an epoch that 0, 200, 400 and 800 of 1,200 are in the paper's Table 3."""

START_STALE = 17
"""t_stale of the runs with a start: "epoch/6"."""

TITLES = {"blocks": "a block model", "photo": "Amazon Photo"}


class Blocks(Case):
    """A block model that is small enough for a grid of trainings."""

    def config(self, name: str) -> Any:
        """Returns the configuration of the graph."""
        size = {"nodes": 40_000, "edges": 320_000, "features": 32, "classes": 8, "noise": 8.0, "p_in": 0.6}
        return config_class("sbm")(undirected=True, train_ratio=0.125, valid_ratio=0.1, **size)


GRID_CASES = {
    "blocks": Blocks(
        sampling=SamplingConfig(fanouts=(8, 5, 5), batch_size=50),
        table=CASES["sbm"].table | {"epochs": 40, "eval_every": 5},
    ),
    "photo": CASES["photo"],
}


def main(quick: bool, graphs: Sequence[str] = (), seeds: int = NUM_SEEDS) -> None:
    """Measures the grid and the starts on graphs, all by default, and records a row for each."""
    for name in graphs or (("blocks",) if quick else GRID_CASES):
        if name == "photo" and not os.environ.get("GRAPHMILL_TEST_DATA"):
            print("fresh_thresholds: photo is skipped, GRAPHMILL_TEST_DATA names no folder with it")
            continue
        with home() as store:
            row = _measure(store, name, 2 if quick else seeds, quick)
        show(row)
        record("fresh_thresholds", row | {"scale": "quick" if quick else "full"})


def _measure(store: Store, name: str, seeds: int, quick: bool) -> dict[str, Any]:
    """Returns the row of a graph."""
    trainings = _Trainings(store, name, 1 if quick else None)
    plain = [trainings(seed, None) for seed in range(seeds)]
    nothing = trainings(0, FreshSettings(policy="accuracy", arena="200%", t_stale=0))
    assert nothing == plain[0], f"plain sampling has {plain}, a history that keeps nothing {nothing}"

    def cell(p_grad: float, t_stale: int, stabilise: int) -> dict[str, Any]:
        keys = {"p_grad": p_grad, "t_stale": t_stale, "stabilise": stabilise}
        settings = FreshSettings(policy="accuracy", arena="200%", **keys)  # pyright: ignore[reportArgumentType]
        made = [trainings(seed, settings) for seed in range(seeds)]
        found = keys | compared(plain, made)
        print(f"{name} {found}", flush=True)
        return found

    stales = T_STALES[:2] if quick else T_STALES
    return {
        "graph": name,
        "plain": [test for test, _ in plain],
        "starts": [cell(0.9, START_STALE, start) for start in STARTS],
        "grid": [cell(p_grad, t_stale, 0) for p_grad in P_GRADS for t_stale in stales],
    }


class _Trainings:
    """Trains the model of a graph, or finds it in the store."""

    def __init__(self, store: Store, name: str, epochs: int | None):
        self.store, self.case = store, GRID_CASES[name]
        self.more = {} if epochs is None else {"epochs": epochs, "eval_every": epochs}
        graph = build_graph(store, self.case.config(name))
        counted = hotness_config(HotnessTable(layers="inputs"), self.case.sampling, 0)
        self.plain = graph.inputs
        self.inputs: dict[str, Artifact] = graph.inputs | {
            "hotness": materialize(store, HOTNESS, counted, Threads(threads=2), {"graph": graph.graph})
        }

    def __call__(self, seed: int, settings: FreshSettings | None) -> tuple[float, float]:
        """Returns the test accuracy in percent, and the share of input rows that was not loaded."""
        options: dict[str, Any] = {} if settings is None else {"trainer": "fresh", "settings": settings}
        # One thread: many benchmarks share the cores.
        keys = self.case.table | {"features": "memory", "threads": 1} | self.more | options
        table, inputs = TrainTable(name="sage", model="sage", **keys), self.plain if settings is None else self.inputs
        (made,) = train_table(self.store, inputs, table, self.case.sampling, seed, report=lambda line: None)
        return 100 * made.summary["numbers"]["test_accuracy"], saving_of(made)


def compared(plain: Sequence[tuple[float, float]], made: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Returns `paired` of test accuracies in points, and the mean saving.

    Args:
        plain, made: (test accuracy in percent, saving in [0, 1]) of each seed.
    """
    saving = float(np.mean([saved for _, saved in made]))
    return paired([test for test, _ in plain], [test for test, _ in made]) | {"saving": round(saving, 4)}


def show(row: dict[str, Any]) -> None:
    """Prints a row."""
    print(
        f"{row['graph']}: plain sampling {np.mean(row['plain']):.2f} %; differences in points, and rows saved in percent"
    )
    for each in row["starts"]:
        print(f"  from step {each['stabilise']:3}    {_words(each)}")
    for each in row["grid"]:
        print(f"  p_grad {each['p_grad']:4} t_stale {each['t_stale']:3}    {_words(each)}")


def _words(cell: dict[str, float]) -> str:
    return f"{cell['difference']:+.2f} ± {cell['half_interval']:.2f}, {100 * cell['saving']:.1f} %"


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws test accuracy and saved rows over t_stale, a curve for each p_grad (FreshGNN, Figure 13)."""
    last = {row["graph"]: row for row in rows if row["scale"] == "full"}
    return [figure for name, row in last.items() for figure in _drawn(name, row)]


def _drawn(name: str, row: dict[str, Any]) -> list[ReportFigure]:
    axes: dict[str, Any] = {"x_label": "t_stale, steps", "log": "x", "ticks": T_STALES}
    test = float(np.mean(row["plain"]))
    says = f"Mean of {len(row['plain'])} seeds; plain sampling has {test:.2f} %."
    nothing = Series(label="plain sampling", x=[T_STALES[0], T_STALES[-1]], y=[0.0, 0.0])
    scores = [nothing, *_curves(row, "difference", 1)]
    saved = _curves(row, "saving", 100)
    title = TITLES[name]
    return [
        line_chart(
            f"fresh-accuracy-{name}",
            f"Accuracy over t_stale, {title}",
            says,
            scores,
            y_label="difference, points",
            **axes,
        ),
        line_chart(
            f"fresh-saving-{name}", f"Rows saved over t_stale, {title}", says, saved, y_label="rows saved, %", **axes
        ),
    ]


def _curves(row: dict[str, Any], value: str, times: float) -> list[Series]:
    """Returns a value of the cells of a row over t_stale, a curve for each p_grad."""
    cells = {p_grad: [each for each in row["grid"] if each["p_grad"] == p_grad] for p_grad in P_GRADS}
    return [
        Series(label=f"p_grad = {p_grad:g}", x=[each["t_stale"] for each in of], y=[times * each[value] for each in of])
        for p_grad, of in cells.items()
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="*", default=())
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS)
    options = parser.parse_args()
    main(False, options.graphs, options.seeds)
