"""What a cache of hot rows saves: bytes over the link between host and device, and time under links of a stated speed (FGNN, section 6).

One epoch of batches is drawn once and its visits are counted: from them follows exactly how many rows any cache will serve. Then the same
epoch is delivered through the trainer's own source with a device tier of 1, 5, 10 and 20 % of the rows, by policy, and its ledger must say
that count and those bytes, to the byte. Times are of delivery alone (sampling, gathering, waiting for the link; no model), so that a slow
processor's step does not hide the link; each stands beside the least that its bytes take, bytes / speed. `optimal` ranks by the very
epoch that is measured.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.record import interleave, record
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.hotness.config import HotnessTable, Policy, hotness_config
from graphmill.assets.hotness.read import open_hotness
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.rows.placement import Placement, place_rows
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Array
from graphmill.trainers.batches.batch import Batching
from graphmill.trainers.batches.source import OnlineSource
from graphmill.trainers.devices.link import Link
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.cache import CachedSource
from graphmill.trainers.rows.source import FeatureSource, LinkedSource, MappedSource
from tests.graphs import OpenedGraph, build_graph

SKEW = {"a": 0.57, "b": 0.19, "c": 0.19}  # Graph500's corners
QUICK = {"nodes": 100_000, "edges": 1_000_000, "features": 128, "classes": 16, "train_ratio": 0.1} | SKEW
FULL = {"nodes": 2_000_000, "edges": 16_500_000, "features": 128, "classes": 16, "train_ratio": 0.1} | SKEW
SAMPLING = SamplingConfig(fanouts=(15, 10), batch_size=1000)
PERCENT = (1, 5, 10, 20)
TIMED_PERCENT = 10
GBPS = (12.0, 1.0)
EPOCH, SEED = 3, 0


def main(quick: bool) -> None:
    keep_freed_memory()
    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        semantic = config_class("rmat")(seed=1, valid_ratio=0.01, **size)
        artifacts = build_graph(store, semantic)
        artifact, graph = artifacts.graph, artifacts.open()
        delivery = Delivery(graph)
        visits, num_inputs = delivery.visits()
        orders = {name: make() for name, make in policies(store, artifact, visits).items()}
        row_bytes, num_rows = graph.features.row_bytes, graph.features.num_rows
        whole = num_inputs * row_bytes
        print(f"R-MAT {num_rows:,} nodes, {graph.topology.num_edges:,} edges, {graph.features.width} features; an epoch of "
              f"{delivery.plan.num_batches} batches needs {num_inputs:,} rows, {whole / 1e9:.2f} GB")  # fmt: skip
        counted, timed = [], {"none": MappedSource(graph.features)}
        for name, order in orders.items():
            for percent in PERCENT:
                source = delivery.cached(place_rows(order, num_rows * percent // 100, 0))
                counted.append({"policy": name, "percent": percent} | check(delivery, source, visits, num_inputs))
                if percent == TIMED_PERCENT or name == "presample":
                    timed[f"{name} {percent} %"] = source
        print_counts(counted, whole)
        times = [measured(delivery, timed, gbps, 2 if quick else 3) for gbps in GBPS]
        print_times(times)
    row = {"scale": "quick" if quick else "full", "graph": size, "fanouts": SAMPLING.fanouts, "rows": num_inputs}
    record("cache", row | {"bytes": whole, "counted": counted, "times": times})


class Delivery:
    """One epoch of batches, delivered from any source."""

    def __init__(self, graph: OpenedGraph):
        self.graph, self.table = graph, MappedSource(graph.features)
        self.plan = EpochPlan(np.array(graph.train_ids), SAMPLING.batch_size, seed=SEED)
        self._sources: dict[int, OnlineSource] = {}

    def cached(self, placement: Placement) -> CachedSource:
        return CachedSource(self.graph.features, self.table, placement, LogicalDevice())

    def run(self, features: FeatureSource) -> Ledger:
        """Delivers the epoch and returns its ledger."""
        ledger = Ledger()
        # A source makes its samplers once, as in training; 8 bytes a node are not part of an epoch.
        source = self._sources.setdefault(id(features), self._open(features))
        source.batching = replace(source.batching, ledger=ledger)
        for batch in source.batches(EPOCH):
            del batch
        return ledger

    def visits(self) -> tuple[Array, int]:
        """Returns i64[N], how many batches of the epoch need each node, and their sum, without any feature source."""
        counts = np.zeros(self.graph.topology.num_nodes, np.int64)
        sampler = self._open(self.table).samplers[0]
        for item in self.plan.batches(EPOCH):
            blocks = sampler.sample(item.key, item.seeds, transpose="none")
            counts[blocks[0].src_ids] += 1
        return counts, int(counts.sum())

    def _open(self, features: FeatureSource) -> OnlineSource:
        topology, labels = self.graph.topology, self.graph.labels
        batching = Batching(topology=topology, labels=labels, plan=self.plan, edge_weight=None, queue_bytes=1 << 30)
        return OnlineSource(batching, features, [Sampler(topology, SAMPLING.fanouts, seed=SEED)])


def policies(store: Store, graph: Any, visits: Array) -> dict[str, Callable[[], Array]]:
    """Returns policy -> what makes its order: the hotness stage, and the oracle."""

    def ordered(policy: Policy) -> Array:
        config = hotness_config(HotnessTable(policy=policy), SAMPLING, SEED)
        return np.array(open_hotness(materialize(store, HOTNESS, config, Threads(threads=2), {"graph": graph})).order)

    wanted = [name for name in ("random", "degree", "presample", "bayes") if name in get_args(Policy)]
    return {name: partial(ordered, name) for name in wanted} | {"optimal": partial(rank, visits)}


def check(delivery: Delivery, source: CachedSource, visits: Array, num_inputs: int) -> dict[str, Any]:
    """Delivers the epoch and compares its ledger with the count.

    Raises:
        AssertionError: a single row or byte differs.
    """
    ledger = delivery.run(source)
    hits = int(visits[source.placement.device_ids].sum())
    counts = {row["name"]: row["n"] for row in ledger.rows()["counts"] if row["layer"] == 0}
    assert counts["hits_device"] == hits and counts["hits_device"] + counts["misses"] == counts["inputs"] == num_inputs
    moved = (num_inputs - hits) * source.row_bytes
    assert ledger.moved_bytes("h2d") == moved and ledger.moved_bytes("d2d") == hits * source.row_bytes
    return {"hits": hits, "hit_ratio": round(hits / num_inputs, 4), "h2d_bytes": moved}


def measured(delivery: Delivery, sources: dict[str, FeatureSource], gbps: float, repeats: int) -> dict[str, Any]:
    """Times epochs of all sources in turn over a link, and returns seconds and the least that the bytes take."""
    linked = {name: LinkedSource(source, Link(gbps)) for name, source in sources.items()}
    seconds = interleave({name: partial(delivery.run, source) for name, source in linked.items()}, repeats)
    rows = {}
    for name, source in linked.items():
        epoch_bytes = delivery.run(source.source).moved_bytes("h2d")
        # The round that is not counted went over the link as well.
        assert source.link.charged_bytes == (repeats + 1) * epoch_bytes
        found = {
            "median_seconds": round(statistics.median(seconds[name]), 3),
            "least_seconds": round(epoch_bytes / gbps / 1e9, 3),
        }
        rows[name] = found | {"seconds": [round(each, 3) for each in seconds[name]]}
    return {"gbps": gbps, "sources": rows}


def print_counts(counted: list[dict[str, Any]], whole: int) -> None:
    print("\nGB from host to device in an epoch (share of the rows that the device has); none moves "
          f"{whole / 1e9:.3f}")  # fmt: skip
    print("policy     " + "".join(f"{percent:>18} %" for percent in PERCENT))
    for name in dict.fromkeys(row["policy"] for row in counted):
        rows = [row for row in counted if row["policy"] == name]
        cells = [f"{row['h2d_bytes'] / 1e9:10.3f} ({100 * row['hit_ratio']:5.1f} %)" for row in rows]
        print(f"{name:10} " + " ".join(f"{cell:>19}" for cell in cells))


def print_times(times: list[dict[str, Any]]) -> None:
    print("\nseconds to deliver an epoch (least that its bytes take)")
    print(f"{'':16}" + "".join(f"{each['gbps']:>18.0f} GB/s" for each in times))
    for name in times[0]["sources"]:
        rows = [each["sources"][name] for each in times]
        cells = [f"{row['median_seconds']:.2f} ({row['least_seconds']:.2f})" for row in rows]
        print(f"{name:16}" + "".join(f"{cell:>23}" for cell in cells))
