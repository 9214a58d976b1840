"""Orders of segment disk caches: pages that batches touch under MinHash, Gray code, and Gray code with filled pages (the stage's default).

The graphs of `cache_plan`: R-MAT 4M nodes, 59M edges, 5% training nodes, 200 batches of [20, 15, 10]; low skew 1M/20M with 10% and 2M/40M
with 5% training nodes, 200 batches of [10, 10]; segments of 50. The hottest nodes of the epoch (5% or 10%) are in memory; a segment's cache
holds the other nodes that at least 1, 2 or 3 of its batches want. Equality first: each order equals its NumPy reference on a small
segment, and holds every node of every segment once.
"""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.cache_plan import GRAPHS, segments
from benchmarks.record import record
from benchmarks.sampled_batches import sample_batches
from graphmill.kernels.disk_cache.orders import (
    gray_order,
    gray_order_reference,
    minhash_order,
    minhash_order_reference,
)
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.rows.pages import PAGE_BYTES, touched_pages
from graphmill.kernels.types import Array

SEGMENT, SEED, THREADS = 50, 1, 2
HOT_RATIOS, LEAST_VISITS = (0.05, 0.1), (1, 2, 3)
ROW_BYTES = (512, 400, 688, 1200, 1536)  # 128, 100, 172, 300 x f32 and 768 x f16
ORDERS = {
    "minhash": lambda ptr, ids, row_bytes: minhash_order(ptr, ids, seed=SEED),
    "gray": lambda ptr, ids, row_bytes: gray_order(ptr, ids, threads=THREADS),
    "filled": lambda ptr, ids, row_bytes: gray_order(ptr, ids, row_bytes=row_bytes, threads=THREADS),
}


def main(quick: bool) -> None:
    scale = "quick" if quick else "full"
    for name in GRAPHS[scale]:
        measure(scale, name)


def measure(scale: str, name: str) -> None:
    """Records the row of one graph."""
    batches = sample_batches(*GRAPHS[scale][name], threads=THREADS)
    visits = np.bincount(batches.node_ids, minlength=batches.num_nodes)
    hottest, whole, rows = rank(visits), list(segments(batches, SEGMENT)), []
    print(f"{name}: {batches.num_nodes:,} nodes, {batches.num_edges:,} edges, {len(batches.ptr) - 1} batches")
    check_equality(whole[0])
    for hot_ratio, least in itertools.product(HOT_RATIOS, LEAST_VISITS):
        hot = np.zeros(batches.num_nodes, bool)
        hot[hottest[: int(hot_ratio * batches.num_nodes)]] = True
        kept = [cached(*segment, hot, least) for segment in whole]
        for row_bytes in ROW_BYTES if (hot_ratio, least) == (0.1, 2) else ROW_BYTES[:1]:
            rows.append({"hot_ratio": hot_ratio, "least_visits": least} | compare(kept, row_bytes))
            show(rows[-1])
    record("orders", {"scale": scale, "graph": name, "batches": len(batches.ptr) - 1, "rows": rows}, ("numpy",))


def cached(ptr: Array, node_ids: Array, hot: Array, least: int) -> tuple[Array, Array]:
    """(ptr, ids) of a segment's disk cache: what its batches want of nodes that are not hot and wanted often enough."""
    kept = (np.bincount(node_ids, minlength=len(hot))[node_ids] >= least) & ~hot[node_ids]
    return np.concatenate([[0], np.cumsum(kept)])[ptr], node_ids[kept]


def check_equality(segment: tuple[Array, Array]) -> None:
    """The native orders equal the references on 1,500 nodes."""
    ptr, node_ids = segment
    chosen = np.random.default_rng(0).choice(np.unique(node_ids), 1500, replace=False)
    kept = np.isin(node_ids, chosen)
    few = np.concatenate([[0], np.cumsum(kept)])[ptr], node_ids[kept]
    assert np.array_equal(minhash_order(*few, seed=SEED), minhash_order_reference(*few, SEED))
    for row_bytes in (0, 512, 688):
        order = gray_order(*few, row_bytes=row_bytes)
        assert np.array_equal(order, gray_order_reference(*few, row_bytes))


def compare(kept: list[tuple[Array, Array]], row_bytes: int) -> dict[str, Any]:
    """Pages, runs and seconds of each order over all segments; amplification is moved over asked bytes."""
    found: dict[str, Any] = {"row_bytes": row_bytes, "nodes": 0, "asked_rows": sum(int(ptr[-1]) for ptr, _ in kept)}
    for name, make in ORDERS.items():
        pages, runs, seconds = 0, 0, []
        for ptr, ids in kept:
            started = time.perf_counter()
            order = make(ptr, ids, row_bytes)
            seconds.append(time.perf_counter() - started)
            nodes, place = np.unique(ids, return_inverse=True)
            assert np.array_equal(np.sort(order), nodes), name
            touched = touched_pages(ptr, np.argsort(order)[place], len(nodes), row_bytes, THREADS)
            pages, runs = pages + int(touched[0].sum()), runs + int(touched[1].sum())
            found["nodes"] += len(order) if name == "minhash" else 0
        found[name] = {"pages": pages, "runs": runs, "seconds": round(statistics.median(seconds), 3)}
        found[name]["amplification"] = round(pages * PAGE_BYTES / (found["asked_rows"] * row_bytes), 3)
    for name in ("gray", "filled"):
        found[f"{name}_ratio"] = round(found[name]["pages"] / found["minhash"]["pages"], 4)
    return found


def show(row: dict[str, Any]) -> None:
    print(
        f"hot {row['hot_ratio']:.0%}, wanted by {row['least_visits']}+ batches, {row['row_bytes']} bytes a row:"
        f" {row['nodes']:,} cached, {row['asked_rows']:,} asked"
    )
    for name in ORDERS:
        each = row[name]
        print(
            f"  {name:8s} {each['pages']:>10,} pages ({each['pages'] / row['minhash']['pages']:.3f} of MinHash),"
            f" amplification {each['amplification']:.2f}, {each['pages'] / each['runs']:.2f} pages a run,"
            f" {each['seconds']:.2f} s a segment"
        )
