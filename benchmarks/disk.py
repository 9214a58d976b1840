"""Training from disk: bytes, feature loading, peak memory and overlap, on the stages' own artifacts (DiskGNN, Figures 5 to 8).

R-MAT with 4M nodes and 58M edges, 5% training nodes, an epoch of 196 batches of [20, 15, 10], rows of 512 bytes: a table of 2 GB. The page
cache is out of play: features, chunks and caches are read with O_DIRECT by us and by the baselines, and forgotten
when they are written. What a host below a virtual disk caches cannot be seen from here, so rounds take other batches.

    bytes     an epoch's ledger equals the plan, to the byte and the request; against other systems by counting (disk_bytes.py)
    loading   seconds to load rows of batches against one request a row, beside the rooflines of the same run (disk_loading.py)
    memory    its peak, seen from outside, against what was promised (disk_memory.py)
    overlap   an epoch with an emulated device against its longest stage and against no overlap (disk_epoch.py)

Packs go into a store of their own and take up to 20 GB until the end of the run. Packing them is measured by `disk_packing`.
`python -m benchmarks.disk --parts loading overlap` measures some parts at full size, and records a row for them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.disk_bytes import against_systems, check_ledger
from benchmarks.disk_epoch import measure_epochs
from benchmarks.disk_inputs import FULL, QUICK, Case, build_case, drop_pages, home
from benchmarks.disk_loading import measure_loading
from benchmarks.disk_memory import measure_memory
from benchmarks.record import record
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.devices.malloc import keep_freed_memory

SETUPS: dict[str, dict[str, Any]] = {
    "packed only": {"device": "0", "host": "5%", "disk": "100x"},
    "3x": {"device": "0", "host": "5%", "disk": "3x"},
    "5x": {"device": "0", "host": "5%", "disk": "5x"},
    "segments of 50": {"device": "0", "host": "10%", "disk": "100x", "segment_size": 50},
    "5% device, 5% host": {"device": "5%", "host": "5%", "disk": "100x"},
    "1% host": {"device": "0", "host": "1%", "disk": "3x"},
    "3% host": {"device": "0", "host": "3%", "disk": "3x"},
    "10% host": {"device": "0", "host": "10%", "disk": "100x"},
}
"""Budgets, as `[memory]` and `[cache_plan]` give them."""

PACKED = ("packed only", "3x", "segments of 50")
"""What is packed and read; the others are planned only."""


PARTS = ("planned", "read", "systems", "loading", "overlap", "memory")


def main(quick: bool, parts: Sequence[str] = PARTS) -> None:
    keep_freed_memory()
    size, ratio, fanouts, batch = (QUICK, 0.1, (10, 10), 200) if quick else (FULL, 0.05, (20, 15, 10), 1024)
    with home() as store, tempfile.TemporaryDirectory(dir=store.home) as folder:
        case = build_case(store, size, ratio, fanouts, batch)
        numbers = case.graph.summary["numbers"]
        print(f"R-MAT {numbers['num_nodes']:,} nodes, {numbers['num_edges']:,} edges, {case.num_batches} batches")
        row = {"scale": "quick" if quick else "full", "graph": size, "batches": case.num_batches}
        row |= run(case, Store(store.home / folder), quick, parts)
    record("disk", row)


def run(case: Case, packs: Store, quick: bool, parts: Sequence[str]) -> dict[str, Any]:
    """Measures in an order in which each part finds what it reads."""
    plans = {name: case.plan(**setup) for name, setup in SETUPS.items()}
    planned = {name: _planned(name, plan) for name, plan in plans.items()}
    chunks = {name: case.pack(packs, plans[name]) for name in PACKED}
    for each in chunks.values():
        drop_pages(each.artifact)
    measures: dict[str, Callable[[], Any]] = {
        "planned": lambda: planned,
        "read": lambda: {name: check_ledger(case, plans[name], chunks[name]) for name in PACKED},
        "systems": lambda: against_systems(case, plans["packed only"]),
        "loading": lambda: measure_loading(case, chunks, rounds=2 if quick else 15, batches=2),
        "overlap": lambda: measure_epochs(case, chunks["packed only"]),
        "memory": lambda: measure_memory(case, plans["packed only"], chunks["packed only"]),
    }
    return {part: measures[part]() for part in PARTS if part in parts}


def _planned(name: str, plan: Artifact) -> dict[str, Any]:
    found = plan.summary["numbers"]
    row = {
        "amplification": round(found["amplification"], 6),
        "space": round(found["disk_bytes"] / found["feature_bytes"], 3),
        "segment_size": found["segment_size"],
        "moved_bytes": found["moved_bytes"],
    }
    print(f"{name}: {row}")
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.disk", description="Some parts of the full run.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    main(quick=False, parts=parser.parse_args().parts)
