"""Orders of segment disk caches: pages that batches touch under MinHash, Gray code, and Gray code with filled pages (the stage's default).

R-MAT 4M nodes, 58M edges, 5% training nodes, fanouts [20, 15, 10], batches of 1,024, segments of 50 batches. The hottest nodes of the
epoch (5% or 10%) are in memory; a segment's cache holds the other nodes that at least 1, 2 or 3 of its batches want. Equality
first: each order equals its NumPy reference on a small segment, and holds every node of every segment once.
"""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.record import record
from kernels.csc import build_csc
from kernels.generate import rmat_edges
from kernels.orders import (
    gray_order,
    gray_order_reference,
    minhash_order,
    minhash_order_reference,
    pages_touched,
)
from kernels.pages import PAGE_BYTES
from kernels.plan import EpochPlan
from kernels.rng import key, permutation
from kernels.sample import Sampler
from kernels.types import Array, Stream, Topology

FULL = {"nodes": 4_000_000, "edges": 58_000_000, "batch_size": 1024, "segment": 50}
QUICK = {"nodes": 200_000, "edges": 2_900_000, "batch_size": 128, "segment": 50}
FANOUTS, TRAIN_RATIO, SEED, THREADS = [20, 15, 10], 0.05, 1, 2
HOT_RATIOS, LEAST_VISITS = (0.05, 0.1), (1, 2, 3)
ROW_BYTES = (512, 400, 688, 1200, 1536)  # 128, 100, 172, 300 x f32 and 768 x f16
ORDERS = {
    "minhash": lambda ptr, ids, row_bytes: minhash_order(ptr, ids, seed=SEED),
    "gray": lambda ptr, ids, row_bytes: gray_order(ptr, ids, threads=THREADS),
    "filled": lambda ptr, ids, row_bytes: gray_order(ptr, ids, row_bytes=row_bytes, threads=THREADS),
}


def main(quick: bool) -> None:
    size = QUICK if quick else FULL
    batches = sample_epoch(size)
    visits = np.bincount(np.concatenate(batches), minlength=size["nodes"])
    hottest = np.lexsort([np.arange(len(visits)), -visits])
    check_equality(batches[: size["segment"]])
    rows = []
    for hot_ratio, least in itertools.product(HOT_RATIOS, LEAST_VISITS):
        hot = np.zeros(size["nodes"], bool)
        hot[hottest[: int(hot_ratio * size["nodes"])]] = True
        starts = range(0, len(batches), size["segment"])
        segments = [cached(batches[first : first + size["segment"]], hot, least) for first in starts]
        for row_bytes in ROW_BYTES if (hot_ratio, least) == (0.1, 2) else ROW_BYTES[:1]:
            rows.append({"hot_ratio": hot_ratio, "least_visits": least} | compare(segments, row_bytes))
            show(rows[-1])
    record("orders", {"scale": "quick" if quick else "full", "graph": size, "rows": rows}, ("numpy",))


def sample_epoch(size: dict[str, int]) -> list[Array]:
    """The ascending input ids of every batch of an epoch."""
    src, dst = rmat_edges(size["nodes"], size["edges"], SEED, threads=THREADS)
    csc = build_csc(src, dst, size["nodes"], undirected=False, duplicates="merge", self_loops="drop", threads=THREADS)
    del src, dst
    graph = Topology(indptr=csc.indptr, indices=csc.indices, in_degree=csc.in_degree, out_degree=csc.out_degree)
    train = permutation(key(SEED, Stream.SPLITS), size["nodes"])[: int(size["nodes"] * TRAIN_RATIO)]
    plan, sampler = EpochPlan(train, size["batch_size"], seed=SEED), Sampler(graph, FANOUTS, seed=SEED, threads=THREADS)
    planned = plan.batches(0)
    return [np.sort(sampler.sample(each.key, each.seeds, transpose="none")[0].src_ids) for each in planned]


def cached(batches: list[Array], hot: Array, least: int) -> tuple[Array, Array]:
    """(ptr, ids) of a segment's disk cache: what its batches want of nodes that are not hot and wanted often enough."""
    visits = np.bincount(np.concatenate(batches), minlength=len(hot))
    kept = [ids[(visits[ids] >= least) & ~hot[ids]] for ids in batches]
    return np.concatenate([[0], np.cumsum([len(ids) for ids in kept])]), np.concatenate(kept)


def check_equality(batches: list[Array]) -> None:
    """The native orders equal the references on 1,500 nodes."""
    chosen = np.random.default_rng(0).choice(np.unique(np.concatenate(batches)), 1500, replace=False)
    few = [ids[np.isin(ids, chosen)] for ids in batches]
    segment = np.concatenate([[0], np.cumsum([len(ids) for ids in few])]), np.concatenate(few)
    assert np.array_equal(minhash_order(*segment, seed=SEED), minhash_order_reference(*segment, SEED))
    for row_bytes in (0, 512, 688):
        order = gray_order(*segment, row_bytes=row_bytes)
        assert np.array_equal(order, gray_order_reference(*segment, row_bytes))


def compare(segments: list[tuple[Array, Array]], row_bytes: int) -> dict[str, Any]:
    """Pages, runs and seconds of each order over all segments; amplification is moved over asked bytes."""
    found: dict[str, Any] = {"row_bytes": row_bytes, "nodes": 0, "asked_rows": sum(int(ptr[-1]) for ptr, _ in segments)}
    for name, make in ORDERS.items():
        pages, runs, seconds = 0, 0, []
        for ptr, ids in segments:
            started = time.perf_counter()
            order = make(ptr, ids, row_bytes)
            seconds.append(time.perf_counter() - started)
            assert np.array_equal(np.sort(order), np.unique(ids)), name
            touched = pages_touched(order, ptr, ids, row_bytes=row_bytes, threads=THREADS)
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
