"""Time of the Extract stage by caching policy: rows over a link of 1 GB/s, and rows from a file past the page cache (FGNN, Figures 4a, 12).

Batches are sampled before anything is timed, so that a gather and its wait are all that is measured. Four workloads: [15, 10, 5] uniform
(the paper's GCN) and weighted (its GCN (W.)), [10, 25] uniform (GraphSAGE), and random walks [5, 5, 5] (PinSAGE). A device holds 10 % of
the rows by policy. Over the link the other rows come from memory; by direct reads (trainers/rows/direct.py) they come from the disk, as
they would if features were larger than the memory. What a host below a virtual disk caches cannot be seen.

Equality first: every row that is gathered, and the bytes that the ledger says against a count of the misses. `optimal` ranks by the epoch
that the timed batches come from.

    python -m benchmarks extract
    python -m benchmarks.extract rmat [--quick]
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.charts import bar_chart, line_chart
from benchmarks.command_line import asked_for
from benchmarks.factored_runs import SKEW
from benchmarks.hotness import SEED, Case, open_method
from benchmarks.record import interleave, record
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.store import Store
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.series import Series
from graphmill.kernels.hotness.presample import count_batches
from graphmill.kernels.hotness.ranking import random_ranking, rank
from graphmill.kernels.hotness.visits import VisitCounter
from graphmill.kernels.rows.placement import place_rows
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.types import Array, Stream, Topology
from graphmill.trainers.devices.link import Link
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.cache import CachedSource
from graphmill.trainers.rows.direct import DirectSource
from graphmill.trainers.rows.source import FeatureSource, LinkedSource, MemorySource, RowIds
from tests.graphs import build_graph

GRAPHS: dict[str, dict[str, Any]] = {
    "rmat": {"nodes": 500_000, "edges": 4_000_000, "train_ratio": 0.1} | SKEW,
    "citation": {"nodes": 500_000, "edges": 4_000_000, "train_ratio": 0.02},
}
WORKLOADS = {
    "GCN": ("uniform", (15, 10, 5)),
    "GCN (W.)": ("weighted", (15, 10, 5)),
    "GraphSAGE": ("uniform", (10, 25)),
    "PinSAGE": ("random_walk", (5, 5, 5)),
}
"""The paper's name -> way of sampling and fan-outs."""
POLICIES = ("random", "degree", "PreSC#1", "optimal")
BATCH, COLUMNS, GBPS, CACHED = 200, 128, 1.0, 10
BATCHES = {"link": 6, "disk": 2}
"""Batches that are timed."""
PERCENT = (0, 1, 5, 10, 20, 40)
"""Cached shares of Figure 4a."""

Batches = list[Array]


def main(quick: bool, graphs: Sequence[str] = tuple(GRAPHS)) -> None:
    """Measures the graphs and records a row for each."""
    keep_freed_memory()
    torch.set_num_threads(1)
    for graph in graphs:
        size = GRAPHS[graph] | {"features": COLUMNS, "classes": 4}
        if quick:
            size |= {"nodes": size["nodes"] // 10, "edges": size["edges"] // 10}
        with tempfile.TemporaryDirectory() as folder:
            opened = build_graph(Store(Path(folder)), config_class(graph)(seed=SEED, **size)).open()
            topology = Topology(
                **{
                    name: np.array(getattr(opened.topology, name))
                    for name in ("indptr", "indices", "in_degree", "out_degree")
                }
            )
            extracting = Extracting(opened.features, topology, np.array(opened.train_ids), 1 if quick else 3)
            print(f"\n{graph}: {topology.num_nodes:,} nodes, {topology.num_edges:,} edges; milliseconds per batch")
            found: dict[str, Any] = {"workloads": [extracting.workload(name) for name in WORKLOADS]}
            found["ratios"] = extracting.by_ratio()
        row = {"scale": "quick" if quick else "full", "graph": graph, "size": size, "batch": BATCH, "gbps": GBPS}
        record("extract", row | {"cached_percent": CACHED, "edges": topology.num_edges} | found)


class Extracting:
    """Batches of one graph, and sources that deliver their rows.

    Args:
        table: the features.
        topology: the graph.
        train_ids: ids[T], the seeds of an epoch.
        repeats: how often each source is timed.
    """

    def __init__(self, table: FeatureTable, topology: Topology, train_ids: Array, repeats: int):
        self.table, self.topology, self.train_ids, self.repeats = table, topology, train_ids, repeats
        self.memory = MemorySource(table)
        # Its threads have buffers of their own, so one reader serves all policies.
        self.direct = DirectSource(table)

    def workload(self, name: str) -> dict[str, Any]:
        """Returns rows, hits, bytes and seconds of a batch by policy."""
        batches, orders = self.ranked(name)
        rows = len(self.table.open()) * CACHED // 100
        caches = {"none": np.empty(0, np.int64)} | {policy: order[:rows] for policy, order in orders.items()}
        needed = float(np.mean([len(ids) for ids in batches]))
        found = {policy: {"hit_ratio": round(hit_ratio(batches, ids), 4)} for policy, ids in caches.items()}
        for way in BATCHES:
            timed = batches[: BATCHES[way]]
            sources = {policy: self.source(ids, way) for policy, ids in caches.items()}
            seconds = self.timed(sources, timed, caches)
            for policy, source in sources.items():
                moves = deliver(source, timed).rows()["moves"]
                moved = sum(
                    each["moved_bytes"]
                    for each in moves
                    if each["link"] in ("h2d", "disk") and each["kind"] == "feature"
                )
                found[policy][f"{way}_ms"] = round(1000 * statistics.median(seconds[policy]) / len(timed), 2)
                found[policy][f"{way}_bytes"] = round(moved / len(timed))
        touched = needed / self.topology.num_nodes
        print(f"{name}: {needed:,.0f} rows a batch, {100 * touched:.0f} % of the nodes")
        for policy, row in found.items():
            told = {way: f"{row[f'{way}_ms']:.1f} ms, {row[f'{way}_bytes'] / 1e6:.1f} MB" for way in BATCHES}
            print(f"  {policy:8} {100 * row['hit_ratio']:5.1f} % hits, link {told['link']}, disk {told['disk']}")
        return {"workload": name, "rows": round(needed), "touched_ratio": round(touched, 4), "policies": found}

    def by_ratio(self) -> list[dict[str, Any]]:
        """Returns hit ratio and milliseconds of a batch by the cached share, for the first workload and PreSC#1 (Figure 4a)."""
        batches, orders = self.ranked("GCN")
        num_nodes, order = self.topology.num_nodes, orders["PreSC#1"]
        caches = {str(percent): order[: num_nodes * percent // 100] for percent in PERCENT}
        seconds = self.timed({name: self.source(ids, "link") for name, ids in caches.items()}, batches, caches)
        found = []
        for percent, (name, ids) in zip(PERCENT, caches.items(), strict=True):
            milliseconds = round(1000 * statistics.median(seconds[name]) / len(batches), 2)
            row = {"percent": percent, "hit_ratio": round(hit_ratio(batches, ids), 4), "link_ms": milliseconds}
            found.append(row)
            print(f"  {percent:2} % cached: {100 * row['hit_ratio']:5.1f} % hits, link {milliseconds:8.1f}")
        return found

    def ranked(self, name: str) -> tuple[Batches, dict[str, Array]]:
        """Returns the input nodes of the timed batches, and the order of the nodes by policy."""
        method, fanouts = WORKLOADS[name]
        case = Case(graph="", train_ratio=0, batch_size=BATCH, fanouts=fanouts, method=method)
        samplers, _ = open_method(case, self.topology)
        visits = {}
        for stream in (Stream.PRESAMPLE, Stream.TRAIN):
            counter = VisitCounter(self.topology.num_nodes, len(fanouts))
            plan = EpochPlan(self.train_ids, BATCH, seed=SEED, stream=stream)
            count_batches(samplers, plan.batches(0), counter)
            visits[stream] = counter.visits
        plan = EpochPlan(self.train_ids, BATCH, seed=SEED, stream=Stream.TRAIN)
        planned = itertools.islice(plan.batches(0), BATCHES["link"])
        batches = [samplers[0].sample(each.key, each.seeds, transpose="none")[0].src_ids for each in planned]
        return [np.array(ids) for ids in batches], {
            "random": random_ranking(self.topology.num_nodes, SEED),
            "degree": rank(self.topology.out_degree),
            "PreSC#1": rank(visits[Stream.PRESAMPLE]),
            "optimal": rank(visits[Stream.TRAIN]),
        }

    def source(self, cached: Array, way: str) -> FeatureSource:
        """Returns a source with these rows on the device, and the others behind a link or on the disk."""
        order = np.concatenate([cached, np.setdiff1d(np.arange(self.topology.num_nodes), cached)])
        behind = self.memory if way == "link" else self.direct
        source = CachedSource(self.table, behind, place_rows(order, len(cached), 0), LogicalDevice())
        return LinkedSource(source, Link(GBPS)) if way == "link" else source

    def timed(
        self, sources: Mapping[str, FeatureSource], batches: Batches, caches: Mapping[str, Array]
    ) -> dict[str, list[float]]:
        """Returns the seconds of all batches by source, in drawn order.

        Raises:
            AssertionError: a row or a byte is not the one that was asked for.
        """
        for name, source in sources.items():
            ledger, rows = deliver(source, batches[:1]), self.memory.rows
            out = torch.empty((len(batches[0]), COLUMNS))
            source.gather(RowIds(batches[0]), out, Ledger())
            assert np.array_equal(out.numpy(), rows[batches[0]]), name
            missed = round(len(batches[0]) * (1 - hit_ratio(batches[:1], caches[name])))
            if isinstance(source, LinkedSource):
                assert ledger.moved_bytes("h2d") == missed * source.row_bytes, name
            else:
                assert (
                    sum(r["asked_bytes"] for r in ledger.rows()["moves"] if r["link"] == "disk")
                    == missed * source.row_bytes
                )
        return interleave({name: partial(deliver, source, batches) for name, source in sources.items()}, self.repeats)


def deliver(source: FeatureSource, batches: Batches) -> Ledger:
    """Gathers the rows of all batches, and returns the ledger."""
    ledger = Ledger()
    for ids in batches:
        source.gather(RowIds(ids), torch.empty((len(ids), COLUMNS)), ledger)
    return ledger


def hit_ratio(batches: Batches, cached: Array) -> float:
    """Returns the share of the batches' rows that are among the cached nodes."""
    hits = sum(int(np.isin(ids, cached).sum()) for ids in batches)
    return hits / sum(len(ids) for ids in batches)


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws milliseconds of extraction by policy and workload, and by the cached share (FGNN, Figures 12 and 4a)."""
    last = {row["graph"]: row for row in rows if row["scale"] == "full"}
    found, ratios = [], []
    for graph, row in last.items():
        for way, where in (("link", "over a link of 1 GB/s"), ("disk", "from the disk")):
            values = {
                each["workload"]: {name: policy[f"{way}_ms"] for name, policy in each["policies"].items()}
                for each in row["workloads"]
            }
            title = f"Extraction {where} by policy, {graph}"
            says = f"A bar for each policy; {row['size']['nodes']:,} nodes, a cache of {CACHED} % of the rows, batches of {BATCH}."
            found.append(bar_chart(f"fgnn-extract-{graph}-{way}", title, says, values, label="milliseconds per batch"))
        x = [each["percent"] for each in row["ratios"]]
        ratios += [Series(label=f"{graph}, ms per batch", x=x, y=[each["link_ms"] for each in row["ratios"]])]
        ratios += [Series(label=f"{graph}, hits in %", x=x, y=[100 * each["hit_ratio"] for each in row["ratios"]])]
    says = "PreSC#1, [15, 10, 5], batches of 200, a link of 1 GB/s."
    axes = {"x_label": "rows in the cache, %", "y_label": "ms, and hits in %"}
    return [*found, line_chart("fgnn-extract-ratios", "Hit ratio and time of extraction", says, ratios, **axes)]


if __name__ == "__main__":
    main(*asked_for(tuple(GRAPHS), "graph"))
