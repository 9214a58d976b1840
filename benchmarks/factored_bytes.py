"""Bytes that extraction moves to devices, counted exactly: by policy and cache ratio, and by feature width at fixed cache bytes.

FGNN, Figures 4, 11c and 12 (bytes). The visits of one epoch decide how many rows any cache serves; two trainers deliver the same epoch,
and their ledger has to say the same bytes.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.charts import line_chart
from graphmill.assets.budgets.config import BudgetsConfig, BudgetsExecution, MemoryConfig
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.read import open_hotness
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.series import Series
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Array
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.graphs import build_graph

SKEW = {"a": 0.57, "b": 0.19, "c": 0.19}
SAMPLING = SamplingConfig(fanouts=(10, 10), batch_size=500)
PERCENT = (1, 5, 10, 20, 40)
WIDTHS = (32, 64, 128, 256, 512, 1024)
CHECKED_WIDTH = 64


def counted(quick: bool, graph: str) -> dict[str, Any]:
    """Returns bytes by policy and ratio, and by policy and width, on a generated graph, and prints both.

    Args:
        quick: a smaller graph.
        graph: "rmat", whose hubs are in every batch, or "citation", with few seeds and milder hubs.
    """
    scale = 8 if quick else 1
    size = {"nodes": 400_000 // scale, "edges": 4_000_000 // scale, "classes": 4, "train_ratio": 0.02}
    if graph == "rmat":
        size |= SKEW | {"train_ratio": 0.1}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        semantic: Any = config_class(graph)(seed=1, features=CHECKED_WIDTH, **size)
        artifacts = build_graph(store, semantic)
        opened = artifacts.open()
        visits = epoch_visits(opened, np.array(opened.train_ids))
        orders = {"optimal": rank(visits)}
        stages = {}
        for policy in ("random", "degree", "presample", "bayes"):
            config = hotness_config(HotnessTable(policy=policy), SAMPLING, 0)  # pyright: ignore[reportArgumentType]
            stages[policy] = materialize(store, HOTNESS, config, Threads(threads=2), {"graph": artifacts.graph})
            orders[policy] = np.array(open_hotness(stages[policy]).order)
        check(store, artifacts, stages, visits, orders)
        print(f"\n{graph}: {len(visits):,} nodes, {opened.topology.num_edges:,} edges")
        return {
            "graph": graph,
            "ratios": by_ratio(visits, orders),
            "widths": by_width(visits, orders),
            "inputs": int(visits.sum()),
        }


def epoch_visits(graph: Any, train_ids: Array) -> Array:
    """Returns i64[N], how many batches of the first training epoch need each node."""
    plan = EpochPlan(train_ids, SAMPLING.batch_size, seed=0)
    counts, sampler = np.zeros(graph.topology.num_nodes, np.int64), Sampler(graph.topology, SAMPLING.fanouts, seed=0)
    for item in plan.batches(0):
        counts[sampler.sample(item.key, item.seeds, transpose="none")[0].src_ids] += 1
    return counts


def missed(visits: Array, order: Array, rows: int) -> int:
    """Returns how many rows of the epoch a cache of so many rows does not have."""
    return int(visits.sum() - visits[order[:rows]].sum())


def check(store: Store, artifacts: Any, stages: dict[str, Any], visits: Array, orders: dict[str, Array]) -> None:
    """Trains an epoch with two samplers and two trainers on a cache, and compares the ledger with the count.

    Raises:
        AssertionError: a single byte differs.
    """
    row_bytes, num_nodes = 4 * CHECKED_WIDTH, len(visits)
    for policy in ("degree", "presample"):
        memory = MemoryConfig(device="10%", host="0")
        budgets = materialize(
            store,
            BudgetsStage(store.home),
            BudgetsConfig(memory=memory),
            BudgetsExecution(),
            {"features": artifacts.features},
        )
        settings = FactoredSettings(samplers=2, trainers=2)
        table = TrainTable(
            name="bytes", trainer="factored", settings=settings, hidden=8, epochs=1, accumulate=2, trial=policy
        )
        (model,) = train_table(
            store, artifacts.inputs, table, SAMPLING, 0, reads={"hotness": stages[policy], "budgets": budgets},
            report=lambda line: None,
        )  # fmt: skip
        moves = json.loads(model.file("ledger.json").read_text())["moves"]
        moved = sum(row["moved_bytes"] for row in moves if row["link"] == "h2d" and row["kind"] == "feature")
        rows = num_nodes * row_bytes * 10 // 100 // row_bytes
        assert moved == missed(visits, orders[policy], rows) * row_bytes, (policy, moved)


def by_ratio(visits: Array, orders: dict[str, Array]) -> list[dict[str, Any]]:
    """Returns MB to devices in an epoch by policy and cached share of the rows (Figures 4 and 12)."""
    row_bytes, found = 4 * CHECKED_WIDTH, []
    print(
        f"\nMB extracted to devices in an epoch by cached share of the rows ({int(visits.sum()) * row_bytes / 1e6:.1f} without a cache)"
    )
    print("policy     " + "".join(f"{percent:>9} %" for percent in PERCENT))
    for policy, order in orders.items():
        moved = [missed(visits, order, len(visits) * percent // 100) * row_bytes for percent in PERCENT]
        found.append({"policy": policy, "percent": PERCENT, "bytes": moved})
        print(f"{policy:10} " + "".join(f"{each / 1e6:11.2f}" for each in moved))
    return found


def by_width(visits: Array, orders: dict[str, Array]) -> list[dict[str, Any]]:
    """Returns MB to devices in an epoch by policy and width of the features; the cache has the bytes of 10 % at 128 columns (Fig. 11c)."""
    cache_bytes, found = len(visits) * 4 * 128 // 10, []
    print(f"\nMB extracted to devices in an epoch by feature columns, {cache_bytes / 1e6:.1f} MB of cache")
    print("policy     " + "".join(f"{width:>11}" for width in WIDTHS))
    for policy, order in orders.items():
        moved = [missed(visits, order, cache_bytes // (4 * width)) * 4 * width for width in WIDTHS]
        found.append({"policy": policy, "widths": WIDTHS, "bytes": moved})
        print(f"{policy:10} " + "".join(f"{each / 1e6:11.2f}" for each in moved))
    return found


def width_figures(counted: dict[str, Any]) -> list[ReportFigure]:
    """Returns the figures of hit ratio and bytes of an epoch over the number of columns, with a cache of fixed bytes.

    Args:
        counted: what `counted` returned.
    """
    hits = hits_by_width(counted)
    curves = [Series(label=policy, x=WIDTHS, y=shares) for policy, shares in hits.items()]
    moved = [Series(label=row["policy"], x=WIDTHS, y=[n / 1e6 for n in row["bytes"]]) for row in counted["widths"]]
    says = "Citation graph of 400,000 nodes, [10, 10], batches of 500 of 2 % training nodes, a cache of 20.5 MB."
    axes: dict[str, Any] = {"x_label": "columns of a row", "ticks": WIDTHS}
    title = "of a cache of fixed bytes by number of columns"
    return [
        line_chart("fgnn-width-hits", f"Hit ratio {title}", says, curves, y_label="hit ratio, %", log="x", **axes),
        line_chart("fgnn-width-moved", f"Misses {title}", says, moved, y_label="moved per epoch, MB", log="xy", **axes),
    ]


def hits_by_width(counted: dict[str, Any]) -> dict[str, list[float]]:
    """Returns policy -> hit ratio of an epoch in percent, by width."""
    return {
        row["policy"]: [
            100 * (1 - moved / (4 * width * counted["inputs"]))
            for width, moved in zip(row["widths"], row["bytes"], strict=True)
        ]
        for row in counted["widths"]
    }
