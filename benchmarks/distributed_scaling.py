"""An epoch of `distributed` by the number of ranks and by scheme (FastSample, Figure 6), and what of it one rank has to do.

    python -m benchmarks distributed_scaling
    python -m benchmarks.distributed_scaling --graphs showcase rmat

One citation graph is cut into four parts by METIS, and one recipe is trained on it by 1, 2 and 4 ranks, in the paper's three schemes:
vanilla, hybrid with the two-step sampler, hybrid with the fused one. One rank has nothing to ask for, so `vanilla` begins with two. First
of all the trainings are compared: weights after all epochs are equal to the bit for every number of ranks and every scheme, rounds are
counted at the calls, and bytes of fetched rows are those of a count outside of the trainer.

Ranks are processes of this machine and share its cores, one thread computing in each. So seconds beyond as many ranks as cores are those of
a machine that is too small, and say how much work the ranks have together. What a machine of its own would have to do per rank is counted
beside them: batches, rounds, bytes that it receives, CPU seconds, and what it holds. The network is modelled: a time per call and 1 GB/s
per rank. On the graph of the shipped pipeline `showcase`, and on an R-MAT of 1M nodes and 10M edges that is cut by LDG, it is the
machine's own, and the scheme hybrid and fused: there 4 ranks on two cores are to lose nothing beside 2.

Each latency is a run and a row of its own; 1, 2 and 4 ranks start in drawn order, and so do the epochs of a start. Several runs of one
latency are drawn as one: the medians of all their epochs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.charts import bar_chart, line_chart
from benchmarks.disk_inputs import home
from benchmarks.distributed import GBPS, SCHEMES, parts_of, remote_rows
from benchmarks.elsewhere import beside
from benchmarks.record import record
from graphmill.assets.building.materialize import materialize
from graphmill.assets.shards.config import ShardsConfig, ShardsExecution
from graphmill.assets.shards.stage import SHARDS
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.series import Series
from graphmill.trainers.ranks.launch import run_ranks
from tests.graphs import GraphArtifacts, build_graph

PARTS, WORLDS = 4, (1, 2, 4)
LATENCIES = (100.0, 5000.0)
"""Microseconds of a call."""
MADE: dict[str, Any] = {"classes": 16, "undirected": True, "train_ratio": 0.1}
SAMPLING: dict[str, Any] = {"fanouts": [10, 5, 5], "batch_size": 256}


class Graph(NamedTuple):
    """A generated graph, and how it is trained on.

    Attributes:
        source, full, quick: the generator, and its sizes.
        method: how it is cut.
        sampling: how its batches are drawn, with a fan-out per layer.
        gbps: speed of the modelled network per rank; 0 for the machine's own.
    """

    source: str
    full: dict[str, Any]
    quick: dict[str, Any]
    method: str
    sampling: dict[str, Any] = SAMPLING
    gbps: float = 0.0


GRAPHS = {
    "citation": Graph(
        "citation",
        {"nodes": 120_000, "edges": 1_200_000, "features": 128},
        {"nodes": 20_000, "edges": 200_000, "features": 128},
        "metis",
        gbps=GBPS,
    ),
    "showcase": Graph(
        "citation",
        {"nodes": 150_000, "edges": 1_500_000, "features": 256, "noise": 12.0},
        {"nodes": 15_000, "edges": 150_000, "features": 256, "noise": 12.0},
        "metis",
        {"fanouts": [10, 10], "batch_size": 256},
    ),
    "rmat": Graph(
        "rmat",
        {"nodes": 1_000_000, "edges": 5_000_000, "features": 128},
        {"nodes": 50_000, "edges": 250_000, "features": 128},
        "ldg",
        {"fanouts": [10, 10], "batch_size": 1024},
    ),
}
LABELS = {"vanilla": "vanilla", "unfused": "hybrid", "hybrid": "hybrid, fused"}
MB = 1e6


def main(quick: bool, latencies: Sequence[float] | None = None, graphs: Sequence[str] = tuple(GRAPHS)) -> None:
    """Measures each latency of each graph and records a row for it."""
    for name in graphs:
        modelled = (LATENCIES[1:] if quick else LATENCIES) if latencies is None else latencies
        with home() as store:
            inputs = Inputs(store, GRAPHS[name], quick)
            for latency in modelled if inputs.graph.gbps else (0.0,):
                rows, cores = beside(
                    lambda inputs=inputs, latency=latency: measured(inputs, latency, 1 if quick else 3)
                )
                print(f"{name}, {latency / 1000:g} ms per call; of the rank with the most:")
                show(rows)
                print(f"other processes used {cores:.2f} cores meanwhile")
                run = {"scale": "quick" if quick else "full", "case": name, "graph": inputs.size, "parts": PARTS}
                run |= {"gbps": inputs.graph.gbps, "latency_us": latency, "cores_of_others": cores, "rows": rows}
                record("distributed_scaling", run)


class Inputs:
    """The graph in parts, and the rows that its batches fetch by number of ranks.

    Args:
        store: gets the artifacts.
        quick: whether the graph is small.
    """

    def __init__(self, store: Store, graph: Graph, quick: bool):
        self.store, self.graph = store, graph
        self.size = graph.quick if quick else graph.full
        self.built: GraphArtifacts = build_graph(store, config_class(graph.source)(**self.size, **MADE))
        self.cut = parts_of(store, self.built.graph, graph.method, PARTS)
        rows = {"features": self.built.features, "partitions": self.cut}
        shards = materialize(store, SHARDS, ShardsConfig(), ShardsExecution(), rows)
        self.artifacts: dict[str, Artifact] = {"graph": self.built.graph, **rows, "shards": shards}

    def order(self, world: int, latency: float, repeats: int) -> dict[str, Any]:
        """Returns the order of the ranks of a start."""
        sampling, gbps = self.graph.sampling, self.graph.gbps
        schemes = SCHEMES if gbps else SCHEMES[-1:]  # without a modelled network, ours alone
        return {
            "home": str(self.store.home), "result": str(self.store.home / "result.json"), "repeats": repeats, "gbps": gbps,
            "schemes": [scheme for scheme in schemes if world > 1 or scheme != "vanilla"], "latencies": [latency],
            "artifacts": {name: each.version for name, each in self.artifacts.items()}, "sampling": sampling,
            "table": {"layers": len(sampling["fanouts"]), "hidden": 64, "epochs": 1, "threads": 1, "dropout": 0.0},
        }  # fmt: skip

    def fetched_bytes(self, world: int, epochs: int) -> int:
        """Returns the bytes of rows that ranks fetch, counted from the batches alone."""
        graph = self.built.open()
        return remote_rows(graph, self.cut, self.graph.sampling, epochs, world) * graph.features.row_bytes


def measured(inputs: Inputs, latency: float, repeats: int) -> list[dict[str, Any]]:
    """Returns a row for each number of ranks and scheme, after all checks."""
    found: dict[int, list[dict[str, Any]]] = {}
    for world in random.sample(WORLDS, len(WORLDS)):
        order = inputs.order(world, latency, repeats)
        run_ranks([sys.executable, "-m", "benchmarks.distributed_rank"], order, world)
        found[world] = json.loads(Path(order["result"]).read_text())["rows"]
    weights = {row["weights"] for rows in found.values() for row in rows}
    assert len(weights) == 1, "ranks or schemes differ in weights"
    rows = []
    for world in WORLDS:
        wanted = inputs.fetched_bytes(world, repeats + 1)
        for row in found[world]:
            require_counts(row, world, wanted, len(inputs.graph.sampling["fanouts"]))
            rows.append({"ranks": world, "scheme": row["scheme"]} | of_epoch(row, repeats + 1))
    return rows


def require_counts(row: dict[str, Any], world: int, wanted: int, layers: int = len(SAMPLING["fanouts"])) -> None:
    """Checks rounds and bytes of a training.

    Raises:
        AssertionError: they are not those of the scheme, or of a count outside of the trainer.
    """
    rounds = 0 if world == 1 else 2 * layers if row["scheme"] == "vanilla" else 2
    assert row["rounds"] == rounds * row["batches"], (world, row["scheme"], row["rounds"], row["batches"])
    assert row["feature_bytes"] == wanted, (world, row["scheme"], row["feature_bytes"], wanted)


def of_epoch(row: dict[str, Any], epochs: int) -> dict[str, Any]:
    """Returns seconds of each timed epoch, and what the rank with the most of each has of an epoch.

    Args:
        row: what was measured of a training.
        epochs: its epochs, the first one included, which is not timed.
    """
    found: dict[str, Any] = {"seconds": [round(each, 4) for each in row["seconds"]]}
    found["rank_cpu_seconds"] = [round(max(each), 4) for each in row["cpu_seconds"]]
    for name in ("batches", "rounds", "feature_bytes", "topology_bytes", "gradient_bytes"):
        found[f"rank_{name}"] = max(each[name] for each in row["by_rank"]) // epochs
    for name in ("topology_bytes", "feature_bytes"):
        found[f"held_{name}"] = max(each[name] for each in row["memory"])
    return found


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Prints the rows of a latency."""
    for row in rows:
        between = ", ".join(
            f"{row[f'rank_{kind}_bytes'] / MB:.1f} MB of {kind}" for kind in ("feature", "topology", "gradient")
        )
        seconds, cores = statistics.median(row["seconds"]), statistics.median(row["rank_cpu_seconds"])
        print(
            f"  {titled(row['ranks']):>7}, {LABELS[row['scheme']]:>13}: {seconds:5.2f} s, {cores:5.2f} CPU s, "
            f"{row['rank_batches']} batches, {row['rank_rounds']} rounds, receives {between}; "
            f"holds {row['held_topology_bytes'] / MB:.1f} MB of topology, {row['held_feature_bytes'] / MB:.1f} MB of features"
        )


def titled(ranks: int) -> str:
    """Returns a number of ranks in words."""
    return f"{ranks} rank" if ranks == 1 else f"{ranks} ranks"


def medians(rows: Sequence[dict[str, Any]], value: str) -> dict[float, dict[tuple[int, str], float]]:
    """Returns the median of a value over the epochs of all full runs with a modelled network, by latency and by ranks and scheme."""
    found: dict[float, dict[tuple[int, str], list[float]]] = {}
    for run in rows:
        for row in run["rows"] if run["scale"] == "full" and run["latency_us"] else ():
            of = found.setdefault(run["latency_us"], {}).setdefault((row["ranks"], row["scheme"]), [])
            of += row[value]
    return {latency: {case: statistics.median(each) for case, each in of.items()} for latency, of in found.items()}


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws an epoch by ranks and scheme (FastSample, Figure 6), and the CPU seconds of the busiest rank."""
    figures = [_epochs_drawn(latency, of) for latency, of in sorted(medians(rows, "seconds").items())]
    cores = medians(rows, "rank_cpu_seconds")
    latency = max(cores)
    curves = []
    for scheme, label in LABELS.items():
        found = {ranks: seconds for (ranks, of), seconds in cores[latency].items() if of == scheme}
        curves.append(Series(label=label, x=list(found), y=list(found.values())))
    says = f"Processor time of an epoch, on the rank that uses the most, {latency / 1000:g} ms per call."
    axes: dict[str, Any] = {"x_label": "ranks", "y_label": "CPU seconds", "ticks": WORLDS}
    return [*figures, line_chart("fastsample-rank-work", "Work of one rank by number of ranks", says, curves, **axes)]


def _epochs_drawn(latency: float, found: dict[tuple[int, str], float]) -> ReportFigure:
    values: dict[str, dict[str, float]] = {}
    # From the most ranks downwards: those have bars of all schemes, in the paper's order.
    for (ranks, scheme), seconds in sorted(found.items(), key=lambda item: (-item[0][0], SCHEMES.index(item[0][1]))):
        values.setdefault(titled(ranks), {})[LABELS[scheme]] = seconds
    name = f"fastsample-ranks-{latency / 1000:g}ms".replace(".", "-")
    title = f"Epochs by ranks and scheme, {latency / 1000:g} ms per call"
    says = "The bars are medians of an epoch; all ranks share two cores."
    return bar_chart(name, title, says, values, label="seconds")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed_scaling", description=__doc__)
    parser.add_argument("--latencies", nargs="*", type=float, help="microseconds of a call, of the citation graph")
    parser.add_argument("--graphs", nargs="*", choices=tuple(GRAPHS), default=tuple(GRAPHS))
    options = parser.parse_args()
    main(False, options.latencies, options.graphs)
