"""Hit ratio of every hotness policy against the optimum (FGNN, Fig. 10, Table 2), the bytes that a cache leaves to move in an epoch (Fig. 5
and 11), and what presampling costs (Table 6).

The optimum ranks by ten training epochs themselves; every other policy is measured on the same ten, none of which it has seen. Nothing is
claimed where a batch touches more than 30 % of the nodes: there most rows are needed anyway. Costs are interleaved on one thread. First
the counts of the sampler are compared with those taken from its blocks.

The twelve cells of Fig. 10 are four graphs and three ways of sampling: uniform, weighted (the weights are those of sources, drawn from a
Pareto distribution, as FGNN's are the years in which users registered) and random walks (5 neighbours from 4 paths of length 3).
`--quick` has the cells of graphs a twentieth as large.

    python -m benchmarks.hotness --graph sbm --methods weighted random_walk

measures some of them; the costs belong to uniform sampling.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.charts import bar_chart, line_chart
from benchmarks.record import interleave, ratio, record
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.series import Series
from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.graph.generate import citation_edges, citation_labels, rmat_edges, sbm_edges
from graphmill.kernels.hotness.bayes import Reach, visit_rates
from graphmill.kernels.hotness.presample import count_batches
from graphmill.kernels.hotness.push import reverse_pagerank
from graphmill.kernels.hotness.ranking import cache_sizes, hit_ratios, random_ranking, rank, similarity
from graphmill.kernels.hotness.reach import ReachModel, reciprocity
from graphmill.kernels.hotness.visits import Layers, VisitCounter
from graphmill.kernels.hotness.walk_reach import WalkReach
from graphmill.kernels.hotness.weighted_reach import WeightedReach
from graphmill.kernels.rng import key, permutation
from graphmill.kernels.sampling.alias import build_alias
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.sampling.walk import Walks, WalkSampler
from graphmill.kernels.sampling.weighted import WeightedSampler
from graphmill.kernels.types import Array, Stream, Topology

SEED, THREADS, EPOCHS, ROUNDS = 1, 2, 10, 2
POLICIES = {
    "random": "random", "pagerank": "reverse PageRank", "degree": "degree", "presample#1": "PreSC#1", "bayes#1": "bayes",
    "optimal": "optimal",
}  # fmt: skip
"""Policies of the figures, and their names there."""
RATIOS = (0.01, 0.05, 0.1, 0.2)
TENTHS = {
    "uniform": {
        "R-MAT, 3 hops": "rmat, 10 % training, batch 1000, uniform [15, 10, 5]",
        "citation, 2 hops": "citation, 5 % training, batch 1000, fanouts [10, 10]",
        "SBM, 2 hops": "sbm, 5 % training, batch 1000, fanouts [10, 10]",
        "environment, 2 hops": "python-environment, 50 % training, batch 100, uniform [10, 10]",
    },
    "weighted": {
        "R-MAT, 3 hops": "rmat, 10 % training, batch 1000, weighted [15, 10, 5]",
        "citation, 3 hops": "citation, 5 % training, batch 1000, weighted [15, 10, 5]",
        "SBM, 3 hops": "sbm, 5 % training, batch 1000, weighted [15, 10, 5]",
        "environment, 2 hops": "python-environment, 50 % training, batch 100, weighted [10, 10]",
    },
    "random_walk": {
        "R-MAT, 3 layers": "rmat, 10 % training, batch 1000, random_walk [5, 5, 5]",
        "citation, 3 layers": "citation, 5 % training, batch 1000, random_walk [5, 5, 5]",
        "SBM, 3 layers": "sbm, 5 % training, batch 1000, random_walk [5, 5, 5]",
        "environment, 2 layers": "python-environment, 50 % training, batch 100, random_walk [5, 5]",
    },
}
"""Way of sampling -> graph -> title of its case in Figure 10; with [15, 10, 5] a uniform batch of two of the graphs touches too much."""
MOVED = {
    "uniform": ("rmat, 10 % training, batch 1000, uniform [15, 10, 5]", "R-MAT"),
    "weighted": ("rmat, 10 % training, batch 1000, weighted [15, 10, 5]", "R-MAT"),
    "one-class": ("one-class, 1.1 % training, batch 200, uniform [15, 10, 5]", "Citation graph"),
}
"""Figure of the bytes that are moved -> title of its case, and its graph."""
ROW_BYTES = 4 * 128
"""Bytes of a row, 128 float32 columns as in OGB-Papers, for the bytes that are moved."""
MOST_TOUCHED = 0.3
FANOUTS = (15, 10, 5), (10, 10)
METHODS = ("uniform", "weighted", "random_walk")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph and how it is sampled."""

    graph: str
    train_ratio: float
    batch_size: int
    fanouts: tuple[int, ...]
    method: str = "uniform"

    @property
    def title(self) -> str:
        return f"{self.graph}, {100 * self.train_ratio:g} % training, batch {self.batch_size}, {self.method} {list(self.fanouts)}"


def cases(graph: str, train_ratios: Sequence[float], batch_size: int, fanouts: Sequence[tuple[int, ...]]) -> list[Case]:
    return [
        Case(graph=graph, train_ratio=each, batch_size=batch_size, fanouts=fanout)
        for each in train_ratios
        for fanout in fanouts
    ]


def cells(graph: str, train_ratio: float, batch_size: int, fanouts: tuple[int, ...]) -> list[Case]:
    """A graph's cells of Fig. 10, but for uniform sampling, which stands among the other cases."""
    common: dict[str, Any] = {"graph": graph, "train_ratio": train_ratio, "batch_size": batch_size}
    return [
        Case(**common, fanouts=fanouts, method="weighted"),
        Case(**common, fanouts=(5,) * len(fanouts), method="random_walk"),
    ]


FULL = {
    "rmat": cases("rmat", (0.1, 0.01), 1000, FANOUTS) + cells("rmat", 0.1, 1000, FANOUTS[0]),
    "citation": cases("citation", (0.05, 0.01), 1000, FANOUTS) + cells("citation", 0.05, 1000, FANOUTS[0]),
    "sbm": cases("sbm", (0.05, 0.01), 1000, FANOUTS) + cells("sbm", 0.05, 1000, FANOUTS[0]),
    "python-environment": cases("python-environment", (0.1, 0.5), 100, ((10, 10), (5, 5)))
    + cells("python-environment", 0.5, 100, (10, 10)),
    "one-class": cases("one-class", (0.011,), 200, FANOUTS),
}
QUICK = {
    "rmat": cases("rmat", (0.1, 0.01), 100, ((10, 10),)) + cells("rmat", 0.1, 100, (10, 10)),
    "citation": cases("citation", (0.05,), 100, ((5, 5),)) + cells("citation", 0.05, 100, (5, 5)),
    "sbm": cases("sbm", (0.05,), 100, ((5, 5),)) + cells("sbm", 0.05, 100, (5, 5)),
    "python-environment": cases("python-environment", (0.1,), 100, ((5, 5),))
    + cells("python-environment", 0.1, 100, (5, 5)),
    "one-class": cases("one-class", (0.011,), 20, ((5, 5),)),
}
"""Graphs; "one-class" is the citation graph with all training nodes in one of its 50 classes, as OGB-Papers' are of one archive."""


def main(quick: bool) -> None:
    for graph in QUICK if quick else FULL:
        run(graph, quick)


def run(graph: str, quick: bool, methods: Sequence[str] = METHODS) -> None:
    """Measures the cases of one graph and records them as one row; the costs are those of R-MAT and uniform sampling."""
    topology, rows, costs = build(graph, 20 if quick else 1), [], []
    print(f"\n{graph}: {topology.num_nodes:,} nodes, {topology.num_edges:,} edges", flush=True)
    if graph == "rmat" and "uniform" in methods:
        costs = [cost(topology, fanouts, 100 if quick else 1000, 3 if quick else 5) for fanouts in FANOUTS]
    for case in (case for case in (QUICK if quick else FULL)[graph] if case.method in methods):
        rows.append(measure(case, topology))
        show(rows[-1])
    row = {"scale": "quick" if quick else "full", "graph": graph, "epochs": EPOCHS, "cases": rows, "costs": costs}
    record("hotness", row, ("numpy",))


def build(graph: str, scale: int) -> Topology:
    """The graph, its counts divided by `scale`; the Python environment is as large as it is."""
    if graph == "python-environment":
        from graphmill.assets.building.materialize import materialize
        from graphmill.assets.graph.read import open_graph
        from graphmill.assets.graph.stage import GRAPH
        from graphmill.assets.sources.registry import config_class
        from graphmill.assets.storage.store import Store

        with TemporaryDirectory() as home:
            artifact = materialize(
                Store(Path(home)), GRAPH, config_class(graph)(), GRAPH.Execution(threads=THREADS), {}
            )  # pyright: ignore[reportCallIssue]
            stored = open_graph(artifact).topology
            names = ("indptr", "indices", "in_degree", "out_degree")
            return Topology(**{name: np.array(getattr(stored, name)) for name in names})
    num_nodes = {"rmat": 2_000_000, "citation": 1_000_000, "one-class": 1_000_000, "sbm": 1_000_000}[graph] // scale
    if graph == "rmat":
        ends = rmat_edges(num_nodes, 16_500_000 // scale, SEED, (0.5, 0.1, 0.1, 0.3), threads=THREADS)
    elif graph in ("citation", "one-class"):
        ends = citation_edges(num_nodes, 8 * num_nodes, 50, 0.8, 0.3, SEED, threads=THREADS)
    else:
        ends = sbm_edges(num_nodes, 8 * num_nodes, 50, 0.8, SEED, threads=THREADS)
    csc = build_csc(*ends, num_nodes, undirected=True, duplicates="merge", self_loops="drop", threads=THREADS)
    return Topology(indptr=csc.indptr, indices=csc.indices, in_degree=csc.in_degree, out_degree=csc.out_degree)


def node_weights(topology: Topology) -> Array:
    """f64[N], a Pareto-distributed weight of each node: few nodes are far more likely to be drawn than the others."""
    return np.random.default_rng(SEED).pareto(1.5, topology.num_nodes) + 0.1


def open_method(case: Case, topology: Topology) -> tuple[list[Sampler], Callable[[], Reach]]:
    """Returns one sampler per thread, and what makes the model of it."""
    back = reciprocity(topology, SEED)
    if case.method == "random_walk":
        samplers: list[Sampler] = [WalkSampler(topology, Walks(), case.fanouts, seed=SEED) for _ in range(THREADS)]
        return samplers, lambda: WalkReach(topology, Walks(), back, threads=THREADS)
    if case.method == "weighted":
        tables = build_alias(topology, node_weights(topology), of_nodes=True, threads=THREADS)
        samplers = [WeightedSampler(topology, tables, case.fanouts, seed=SEED) for _ in range(THREADS)]
        return samplers, lambda: WeightedReach(topology, tables, back, threads=THREADS)
    samplers = [Sampler(topology, case.fanouts, seed=SEED) for _ in range(THREADS)]
    return samplers, lambda: ReachModel(topology, back, THREADS)


def train_nodes(case: Case, num_nodes: int) -> Array:
    """Returns ids[T], the training nodes, ascending: drawn from all nodes, or from those of class 0."""
    ids = permutation(key(SEED, Stream.SPLITS), num_nodes)
    if case.graph == "one-class":
        ids = ids[citation_labels(num_nodes, 50, SEED)[ids] == 0]
    return np.sort(ids[: int(case.train_ratio * num_nodes)])


def measure(case: Case, topology: Topology) -> dict[str, Any]:
    """Ranks by every policy, and measures all on the same training epochs."""
    num_nodes = topology.num_nodes
    train_ids = train_nodes(case, num_nodes)
    samplers, model = open_method(case, topology)
    plans = {each: EpochPlan(train_ids, case.batch_size, seed=SEED, stream=each) for each in Stream}
    orders, seconds = {}, {}
    counter = VisitCounter(num_nodes, len(case.fanouts), "visits")
    for rounds in range(1, ROUNDS + 1):
        started = time.perf_counter()
        count_batches(samplers, plans[Stream.PRESAMPLE].batches(rounds - 1), counter)
        counted = time.perf_counter()
        rates = visit_rates(
            topology, train_ids, case.fanouts, num_batches=plans[Stream.TRAIN].num_batches, rounds=rounds,
            visits=counter.visits, layer_visits=counter.layer_visits, seed=SEED, threads=THREADS,
            model=model(),
        )  # fmt: skip
        seconds |= {f"epoch{rounds}": counted - started, f"bayes{rounds}": time.perf_counter() - counted}
        orders |= {f"presample#{rounds}": rank(counter.visits), f"bayes#{rounds}": rank(rates)}
    orders["degree"], orders["random"] = rank(topology.out_degree), random_ranking(num_nodes, SEED)
    orders["pagerank"] = rank(reverse_pagerank(topology, train_ids, threads=THREADS))
    visits, similarities, inputs = count_epochs(samplers, plans[Stream.TRAIN], topology)
    sizes = cache_sizes(RATIOS, num_nodes)
    best = hit_ratios(rank(visits), visits, sizes)
    shares = {name: hit_ratios(order, visits, sizes) / best for name, order in orders.items()}
    touched = inputs / (EPOCHS * plans[Stream.TRAIN].num_batches) / num_nodes
    moved = {
        name: [inputs / EPOCHS * ROW_BYTES * (1 - ratio) for ratio in hit_ratios(order, visits, sizes)]
        for name, order in {"optimal": rank(visits), **orders}.items()
    }
    return {
        "case": case.title,
        "method": case.method,
        "nodes": num_nodes,
        "edges": topology.num_edges,
        "batches": plans[Stream.TRAIN].num_batches,
        "touched_ratio": round(touched, 4),
        "claimed": touched <= MOST_TOUCHED,
        "similarity": round(float(np.mean(similarities)), 4),
        "cache_ratios": list(RATIOS),
        "optimal_hit_ratio": best.round(4).tolist(),
        "share_of_optimal": {name: share.round(4).tolist() for name, share in shares.items()},
        "epoch_bytes": round(inputs / EPOCHS * ROW_BYTES),
        "moved_bytes": {name: [round(each) for each in values] for name, values in moved.items()},
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
    }


def count_epochs(samplers: list[Sampler], plan: EpochPlan, topology: Topology) -> tuple[Array, list[float], int]:
    """Returns u64[N] visits of the evaluated epochs, the similarity of each to the one before, and all inputs."""
    total, similarities, last, inputs = np.zeros(topology.num_nodes, np.uint64), [], None, 0
    for epoch in range(EPOCHS):
        counter = VisitCounter(topology.num_nodes, len(samplers[0].fanouts))
        inputs += count_batches(samplers, plan.batches(epoch), counter).num_inputs
        if last is not None:
            similarities.append(similarity(last, counter.visits))
        total, last = total + counter.visits, counter.visits
    return total, similarities, inputs


def cost(topology: Topology, fanouts: tuple[int, ...], batch_size: int, repeats: int) -> dict[str, Any]:
    """Times the same 40 batches as training samples them, presampled, and counted from their blocks, on one thread."""
    train_ids = np.sort(permutation(key(SEED, Stream.SPLITS), topology.num_nodes)[: topology.num_nodes // 10])
    plan = EpochPlan(train_ids, batch_size, seed=SEED, stream=Stream.PRESAMPLE)
    planned = [batch for batch, _ in zip(plan.batches(0), range(40), strict=False)]
    sampler = Sampler(topology, fanouts, seed=SEED)
    blocks = [sampler.sample(each.key, each.seeds, transpose="none") for each in planned]
    own, taken = (
        VisitCounter(topology.num_nodes, len(fanouts)),
        sampler.take_visits(np.zeros(topology.num_nodes, np.uint32)),
    )
    for each in blocks:
        own.add(each)
    assert (own.visits == taken).all(), "the sampler and the counter disagree"

    def sample(transpose: Any) -> Iterator[Any]:
        return (sampler.sample(each.key, each.seeds, transpose=transpose) for each in planned)

    def count(layers: Layers) -> Callable[[], object]:
        counter = VisitCounter(topology.num_nodes, len(fanouts), layers)
        return lambda: count_batches([sampler], planned, counter)

    def from_blocks() -> None:
        for each in sample("none"):
            own.add(each)

    runs = {
        "training's sampling": lambda: [None for _ in sample("hidden")],
        "sampling": lambda: [None for _ in sample("none")],
        "presample": count("none"),
        "presample, layers": count("visits"),
        "presample, inputs under": count("inputs"),
        "sampling, counted from blocks": from_blocks,
    }
    seconds = interleave(runs, repeats)
    shares = {name: round(ratio(seconds, name, "sampling"), 3) for name in runs}
    print(f"\ncost of {len(planned)} batches, fanouts {list(fanouts)}, relative to sampling without transposes "
          f"({statistics.median(seconds['sampling']):.3f} s):")  # fmt: skip
    for name, share in shares.items():
        print(f"  {name:32} {share:.3f}")
    return {"fanouts": list(fanouts), "relative": shares, "seconds": seconds}


def show(row: dict[str, Any]) -> None:
    claim = "" if row["claimed"] else "; a batch touches more than 30 %: nothing is claimed"
    print(f"{row['case']}\n  {row['batches']} batches an epoch, each touches {100 * row['touched_ratio']:.1f} % of the nodes, "
          f"similarity {row['similarity']:.3f}{claim}")  # fmt: skip
    print("  cache             " + "".join(f"{100 * each:8.0f} %" for each in row["cache_ratios"]))
    print("  optimal hit ratio " + "".join(f"{100 * each:8.2f} %" for each in row["optimal_hit_ratio"]))
    for name, shares in row["share_of_optimal"].items():
        print(f"  {name:18}" + "".join(f"{100 * each:8.2f} %" for each in shares))
    print(f"  MB moved in an epoch, {row['epoch_bytes'] / 1e6:.0f} without a cache")
    for name, moved in row["moved_bytes"].items():
        print(f"  {name:18}" + "".join(f"{each / 1e6:10.0f}" for each in moved))
    spent = row["seconds"]
    print(f"  seconds: presampled epoch {spent['epoch1']}, model {spent['bayes1']}", flush=True)


def _parse() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hotness", description="Measures some cases.")
    parser.add_argument("--graph", choices=FULL, action="append", help="which graphs; all where none is named")
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=METHODS, help="ways of sampling")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    for graph in chosen.graph or (QUICK if chosen.quick else FULL):
        run(graph, chosen.quick, chosen.methods)


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws the bytes that a cache leaves to move in an epoch, and the hit ratios of one of 10 % (FGNN, Figures 5, 10, 11a and 11b)."""
    return [*_moved_figures(rows), *_hit_figures(rows)]


def _moved_figures(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    found = []
    for name, (title, says) in MOVED.items():
        case = [each for row in rows for each in row["cases"] if each["case"] == title and "moved_bytes" in each][-1]
        sizes = [0.0, *(100 * share for share in case["cache_ratios"])]
        curves = [
            Series(label=label, x=sizes, y=[n / 1e9 for n in (case["epoch_bytes"], *case["moved_bytes"][policy])])
            for policy, label in POLICIES.items()
        ]
        says = f"{says} of {case['nodes']:,} nodes and {case['edges']:,} edges, {title.split(', ', 1)[1]}."
        axes = {"x_label": "rows in the cache, % of the nodes", "y_label": "moved per epoch, GB"}
        heading = f"Bytes to devices by policy and size of a cache, {name.replace('-', ' ')}"
        found.append(line_chart(f"fgnn-moved-{name}", heading, says, curves, **axes))
    return found


def _hit_figures(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    return [
        bar_chart(
            f"fgnn-hits-{method.replace('_', '-')}",
            f"Hit ratio of a cache of 10 % of the rows, {method.replace('_', ' ')} sampling",
            "A bar for each policy; the graphs and their batches are those of the tables.",
            tenths(rows, cells),
            label="hit ratio, %",
        )
        for method, cells in TENTHS.items()
    ]


def tenths(rows: Sequence[dict[str, Any]], cells: dict[str, str]) -> dict[str, dict[str, float]]:
    """Returns graph -> policy -> hit ratio of a cache of 10 % of the rows, in percent, of the last full row that has the case.

    Args:
        rows: recorded rows, oldest first.
        cells: graph -> title of the case.
    """
    found = {}
    for graph, title in cells.items():
        cases = [each for row in rows if row["scale"] == "full" for each in row["cases"] if each["case"] == title]
        case, place = cases[-1], RATIOS.index(0.1)
        best = case["optimal_hit_ratio"][place]
        shares = {"optimal": [1.0] * len(RATIOS)} | case["share_of_optimal"]
        found[graph] = {label: round(100 * best * shares[policy][place], 2) for policy, label in POLICIES.items()}
    return found


if __name__ == "__main__":
    _parse()
