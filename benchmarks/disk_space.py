"""Disk space and bytes of plans from disk, all counted (DiskGNN, Figures 5, 11, 12 and 13).

    space by memory        features packed for every batch, relative to the features, by the share of them that the host holds (Figure 12)
    bytes by space         amplification within a bound of the disk (Figure 11: an epoch that the disk bounds takes as many times as long)
    segments               amplification and space by number of batches in a segment and order of its rows (Figure 13)
    bytes by batch         pages of each batch under an order, relative to those by node id; of one disk cache for all batches, and of
                           segments (Figure 5b)

The graphs are those of `disk_graphs`: one without hubs, as Friendster has few, and R-MAT with its default corners. Equality first: a plan
that is packed and read moves the bytes that it says (`disk_graphs`, `disk`); here each plan's bytes within its bound are compared with the
bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.cache_plan import segments
from benchmarks.charts import bar_chart, line_chart
from benchmarks.disk_graphs import EQUAL_CORNERS, FEATURES, planned
from benchmarks.disk_inputs import THREADS, Case, build_case, home
from benchmarks.orders import cached
from benchmarks.record import record
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.series import Series
from graphmill.kernels.disk_cache.orders import gray_order, minhash_order
from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.rows.pages import touched_pages
from graphmill.kernels.types import Array

HOSTS, DISKS = ("5%", "10%", "20%", "30%", "50%"), ("100x", "7x", "5x", "3x", "2x", "1.5x")
SEGMENTS = (50, 100, 150)
ORDERS = (("minhash", "100x"), ("filled", "100x"), ("copies", "2x"), ("copies", "4x"), ("copies", "100x"))
"""Orders of the rows of segments, and bounds of the disk: only copies take what they are given."""
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
GRAPHS: dict[str, dict[str, Any]] = {
    "quick": {
        "size": {"nodes": 100_000, "edges": 1_000_000} | EQUAL_CORNERS, "train_ratio": 0.1, "fanouts": (10, 10), "batch": 100,
    },
    "low skew": {
        "size": {"nodes": 1_000_000, "edges": 10_000_000} | EQUAL_CORNERS, "train_ratio": 0.1, "fanouts": (10, 10), "batch": 500,
    },
    "default corners": {
        "size": {"nodes": 2_000_000, "edges": 15_000_000}, "train_ratio": 0.1, "fanouts": (10, 10), "batch": 1000,
    },
}  # fmt: skip


def main(quick: bool) -> None:
    """Records a row for each graph."""
    for name in ("quick",) if quick else tuple(GRAPHS)[1:]:
        measure(name)


def measure(name: str) -> None:
    """Records the row of one graph."""
    setting = GRAPHS[name]
    with home() as store:
        case = build_case(
            store, FEATURES | setting["size"], setting["train_ratio"], setting["fanouts"], setting["batch"]
        )
        numbers = case.graph.summary["numbers"]
        print(f"{name}: {numbers['num_nodes']:,} nodes, {numbers['num_edges']:,} edges, {case.num_batches} batches")
        row: dict[str, Any] = {
            "space_by_memory": {host: _plan(case, host=host) for host in HOSTS},
            "bytes_by_space": {disk: _plan(case, disk=disk) for disk in DISKS},
            "segments": {
                f"{size} {order} {disk}": _plan(case, segment_size=size, order=order, disk=disk)
                for size in SEGMENTS
                for order, disk in ORDERS
            },
            "by_batch": by_batch(case),
        }
    record("disk_space", {"graph": name, "batches": case.num_batches} | setting | row, ("numpy",))


def _plan(case: Case, *, host: str = "5%", disk: str = "100x", **how: Any) -> dict[str, Any] | None:
    """Counts a plan; None if nothing fits into the bound."""
    title = f"host {host}, disk {disk}" + "".join(f", {key} {value}" for key, value in how.items())
    try:
        return planned(title, case.plan(device="0", host=host, disk=disk, **how))
    except InputError as error:
        print(f"  planned, {title}: {error.problem}")
        return None


def by_batch(case: Case) -> dict[str, Any]:
    """Returns quantiles over batches of pages relative to those by node id, with the hottest 5 % of the rows in memory.

    A disk cache holds the rows that at least two batches want: of all batches for the global one, of 50 for a segment's.
    """
    batches, row_bytes = case.batches(), case.opened.features.row_bytes
    hot = np.zeros(batches.num_nodes, bool)
    hot[rank(np.bincount(batches.node_ids, minlength=batches.num_nodes))[: batches.num_nodes // 20]] = True
    found = {}
    for title, size in (("global", len(batches.ptr) - 1), ("segments of 50", 50)):
        kept = [cached(*segment, hot, 2) for segment in segments(batches, size)]
        for name in ("minhash", "filled"):
            ratios = np.concatenate([_ratios(*each, name, row_bytes) for each in kept])
            found[f"{title}, {name}"] = np.quantile(ratios, QUANTILES).round(3).tolist()
            print(f"  pages of a batch by {name}, {title}, relative to those by id: {found[f'{title}, {name}']}")
    return found


def _ratios(ptr: Array, node_ids: Array, name: str, row_bytes: int) -> Array:
    """Returns f64[batches], pages under an order relative to those by node id; without batches that want no row of the cache."""
    order = (
        minhash_order(ptr, node_ids, seed=1)
        if name == "minhash"
        else gray_order(ptr, node_ids, row_bytes=row_bytes, threads=THREADS)
    )
    nodes, place = np.unique(node_ids, return_inverse=True)
    by_id = touched_pages(ptr, place, len(nodes), row_bytes, THREADS)[0]
    ordered = touched_pages(ptr, np.argsort(order)[place], len(nodes), row_bytes, THREADS)[0]
    return ordered[by_id > 0] / by_id[by_id > 0]


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws space by memory, bytes by space, segments, and bytes by batch (DiskGNN, Figures 12, 11, 13 and 5b)."""
    last = {row["graph"]: row for row in rows if row["graph"] != "quick"}
    graph = last["low skew"]
    says = "Counted on a graph of 1M nodes without hubs, and on R-MAT of 2M nodes; 200 batches of [10, 10], rows of 512 bytes."
    return [
        line_chart(
            "diskgnn-space-by-memory",
            "Disk space of full packing by memory of the host",
            says,
            [_curve(name, row["space_by_memory"], "space", HOSTS) for name, row in last.items()],
            x_label="rows on the host, %",
            y_label="space, in features",
        ),
        line_chart(
            "diskgnn-bytes-by-space",
            "Bytes of an epoch by bound of the disk",
            f"{says} 5 % of the rows on the host.",
            [_curve(name, row["bytes_by_space"], "amplification", DISKS[:0:-1]) for name, row in last.items()],
            x_label="bound, in features",
            y_label="bytes read / asked for",
        ),
        _segments(graph["segments"]),
        line_chart(
            "diskgnn-bytes-by-batch",
            "Pages of each batch under an order of the disk cache",
            "Graph of 1M nodes without hubs. Batches in the order of their ratio to the pages by node id.",
            [
                Series(label=name, x=[100 * each for each in QUANTILES], y=values)
                for name, values in graph["by_batch"].items()
            ],
            x_label="batches, %",
            y_label="pages / pages by id",
        ),
    ]


def _curve(graph: str, plans: dict[str, dict[str, Any]], number: str, bounds: Sequence[str]) -> Series:
    """Returns a number of plans over their bounds."""
    found = [bound for bound in bounds if plans[bound]]
    return Series(
        label=graph, x=[float(each.rstrip("%x")) for each in found], y=[plans[each][number] for each in found]
    )


def _segments(plans: dict[str, dict[str, Any] | None]) -> ReportFigure:
    """Draws amplification and space by segment size and order of rows."""
    values: dict[str, dict[str, float]] = {}
    for size in SEGMENTS:
        by_order = {order: plans[f"{size} {order} 100x"] for order in ("minhash", "filled", "copies")}
        assert all(by_order.values())
        plan = by_order["minhash"] or {}
        bars = {"by node id": plan["amplification_by_id"]}
        bars |= {
            {"minhash": "MinHash", "filled": "filled pages", "copies": "copies"}[order]: (each or {})["amplification"]
            for order, each in by_order.items()
        }
        values[f"bytes, segments of {size}"] = bars
    for size in SEGMENTS:
        once, copied = plans[f"{size} minhash 100x"] or {}, plans[f"{size} copies 100x"] or {}
        values[f"space, segments of {size}"] = {"MinHash": once["space"], "copies": copied["space"]}
    title = "Bytes and space of segmented disk caches by order of rows"
    says = (
        "Graph of 1M nodes without hubs, 5 % of the rows on the host. Upper bars: bytes read / asked for; lower bars: disk space. "
        "Copies take as much space as lowers the bytes."
    )
    return bar_chart("diskgnn-segments", title, says, values, label="ratio; space in features")
