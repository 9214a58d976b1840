"""Training from disk from end to end, on graphs whose full packing is many times the features: samples, plan, chunks, epochs.

    low skew          R-MAT with nearly equal corners, 1M nodes and 20M edges, 10% training nodes, 200 batches of [10, 10];
                      three epochs of a 2-layer GraphSAGE (hidden 256) by the trainer
    low skew, 5%      the same with twice the nodes and edges and 5% training nodes, as the default corners have them; loading as `disk`
                      measures it, and one epoch of the trainer's source without a step
    default corners   R-MAT as the generator makes it, 4M nodes and 59M edges, 5% training nodes, 196 batches of [20, 15, 10];
                      one epoch of the source without a step, for 196 steps on 2 cores would take minutes

Plans are counted for several budgets; some are packed and read. The ledger must equal the plan. Loading is set against DGL on disk: a pread
of O_DIRECT for each row of a batch, no row cached. Where a model is trained, the seconds of preprocessing (samples, plan, chunks) are set
against its epochs: DiskGNN trains 50 epochs on two of its graphs and 20 on another, and says that preprocessing takes at most 5% of the
training time (Fig. 8). A graph's row stands by itself: `python -m benchmarks.disk_graphs --graphs "low skew, 5%"` measures some graphs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.disk_baselines import merged_rows
from benchmarks.disk_bytes import check_ledger
from benchmarks.disk_epoch import make_source
from benchmarks.disk_inputs import SEED, THREADS, Case, build_case, drop_pages, home
from benchmarks.disk_loading import measure_loading
from benchmarks.record import record
from benchmarks.sampled_batches import LOW_SKEW
from graphmill.assets.cache_plan.read import open_placement
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.rows.direct_io import PageReader, ReadExecution
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.ledger import Timeline
from graphmill.trainers.rows.packed_loader import PackedLoader, loader_reading
from graphmill.trainers.run import train_table

FEATURES = {"features": 128, "classes": 16, "valid_ratio": 0.01}
EQUAL_CORNERS = dict(zip("abc", LOW_SKEW, strict=False))
SETUPS: dict[str, dict[str, Any]] = {
    "packed only": {"device": "0", "host": "5%", "disk": "100x"},
    "3x": {"device": "0", "host": "5%", "disk": "3x"},
    "3x, one copy": {"device": "0", "host": "5%", "disk": "3x", "order": "filled"},
    "5x": {"device": "0", "host": "5%", "disk": "5x"},
    "segments of 50": {"device": "0", "host": "10%", "disk": "100x", "segment_size": 50},
}
DGL_BATCHES, DGL_ROWS = 5, 30_000
PAPER_EPOCHS = (20, 50)
"""DiskGNN, section 7.1: on IGB; on Papers100M and MAG240M."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A graph, its batches, which plans are packed, and the epochs that are trained (0 = the source alone, one epoch)."""

    size: dict[str, Any]
    train_ratio: float
    fanouts: tuple[int, ...]
    batch_size: int
    packed: tuple[str, ...]
    epochs: int
    queue: str = "1GiB"
    loading: bool = False


GRAPHS = {
    "quick": Setting(
        size={"nodes": 100_000, "edges": 1_000_000} | EQUAL_CORNERS, train_ratio=0.1, fanouts=(10, 10), batch_size=200,
        packed=("3x", "segments of 50"), epochs=2,
    ),
    "low skew": Setting(
        size={"nodes": 1_000_000, "edges": 10_000_000} | EQUAL_CORNERS, train_ratio=0.1, fanouts=(10, 10), batch_size=500,
        packed=("3x", "5x", "segments of 50"), epochs=3,
    ),
    "low skew, 5%": Setting(
        size={"nodes": 2_000_000, "edges": 20_000_000} | EQUAL_CORNERS, train_ratio=0.05, fanouts=(10, 10), batch_size=500,
        packed=("packed only", "3x", "5x"), epochs=0, loading=True,
    ),
    "default corners": Setting(
        size={"nodes": 4_000_000, "edges": 30_000_000}, train_ratio=0.05, fanouts=(20, 15, 10), batch_size=1024,
        packed=("3x",), epochs=0, queue="4GiB",
    ),
}  # fmt: skip
LARGE = tuple(name for name in GRAPHS if name != "quick")


def main(quick: bool, graphs: Sequence[str] = LARGE) -> None:
    keep_freed_memory()
    for name in ("quick",) if quick else graphs:
        measure(name)


def measure(name: str) -> None:
    """Records the row of one graph."""
    setting = GRAPHS[name]
    with home() as store, tempfile.TemporaryDirectory(dir=store.home) as folder:
        started = time.perf_counter()
        case = build_case(store, FEATURES | setting.size, setting.train_ratio, setting.fanouts, setting.batch_size)
        seconds = {"graph and samples": time.perf_counter() - started} | {"samples": _seconds(case.samples)}
        numbers = case.graph.summary["numbers"]
        print(f"{name}: {numbers['num_nodes']:,} nodes, {numbers['num_edges']:,} edges, {case.num_batches} batches")
        plans = {setup: case.plan(**budgets) for setup, budgets in SETUPS.items()}
        row: dict[str, Any] = {"planned": {setup: planned(setup, plan) for setup, plan in plans.items()}}
        row["times_the_packed_bytes"] = _merged(case, plans["packed only"])
        row["read"], packs = {}, {}
        for setup in setting.packed:
            packed = _pack(case, Store(store.home / folder), plans[setup])
            chunks = packs[setup] = PackedChunks(packed, plans[setup], case.samples)
            row["read"][setup] = check_ledger(case, plans[setup], chunks) | {"pack_seconds": _seconds(packed)}
            if setup == "3x":
                row["dgl_on_disk"] = _against_dgl(case, chunks)
                seconds |= {"plan": _seconds(plans[setup]), "pack": _seconds(packed)}
                row["epochs"] = (
                    _train(case, setting, plans[setup], packed) if setting.epochs else _source(case, chunks, setting)
                )
        if setting.loading:
            row["loading"] = measure_loading(case, packs, rounds=15, batches=2)
        row |= _preprocessing(seconds, row["epochs"])
    record("disk_graphs", {"graph": name, "size": setting.size, "batches": case.num_batches} | row)


def _seconds(artifact: Artifact) -> float:
    """Seconds of building: the parent's own and those of its parts, which share the processes."""
    parts = [artifact.open_part(name).run_record() for name in artifact.parts] if artifact.parts else []
    workers = [int(part["execution"].get("workers") or 1) for part in parts]
    total = sum(part["seconds"] / each for part, each in zip(parts, workers, strict=True))
    return round(artifact.run_record()["seconds"] + total, 2)


def planned(setup: str, plan: Artifact) -> dict[str, Any]:
    """Returns what a plan says of its bytes, its space relative to the features, and its segments, and prints it."""
    numbers = plan.summary["numbers"]
    found = {
        "amplification": round(numbers["amplification"], 6),
        "amplification_by_id": round(numbers["amplification_by_id"], 4),
        "space": round(numbers["disk_bytes"] / numbers["feature_bytes"], 3),
        "full_packing": round(numbers["full_packing_bytes"] / numbers["feature_bytes"], 3),
        "segment_size": numbers["segment_size"],
        "order": numbers["order"],
        "runs_a_batch": numbers["num_page_runs"] // numbers["num_batches"],
        "plan_seconds": _seconds(plan),
    }
    assert numbers["disk_bytes"] <= numbers["disk_budget_bytes"], numbers
    print(f"  planned, {setup}: {found}")
    return found


def _merged(case: Case, plan: Artifact) -> float:
    """Counts the bytes of sorted and merged reads of the same missed rows, for each byte that packed rows take."""
    batches, slot = case.batches(), np.asarray(open_placement(plan).slot)
    merged = merged_rows(batches.ptr, batches.node_ids, slot, case.opened.features.row_bytes, THREADS).moved_bytes
    ratio = merged / plan.summary["numbers"]["moved_bytes"]
    print(f"  sorted and merged reads: {ratio:.3f} times the bytes of packed rows")
    return round(ratio, 3)


def _pack(case: Case, packs: Store, plan: Artifact) -> Artifact:
    for artifact in (case.samples, case.graph, case.features):
        drop_pages(artifact)
    packed = case.pack(packs, plan).artifact
    drop_pages(packed)
    return packed


def _train(case: Case, setting: Setting, plan: Artifact, packed: Artifact) -> dict[str, Any]:
    """Trains by the trainer and compares the model's ledger with the plan."""
    layers = len(setting.fanouts)
    options: dict[str, Any] = {
        "layers": layers,
        "hidden": 256,
        "epochs": setting.epochs,
        "threads": THREADS,
        "queue": setting.queue,
    }
    table = TrainTable(name="disk", trainer="disk", eval="sampled", eval_every=setting.epochs, **options)
    sampling = SamplingConfig(fanouts=setting.fanouts, batch_size=setting.batch_size, reuse=1)
    reads = {"samples": case.samples, "cache_plan": plan, "packed_chunks": packed}
    (model,) = train_table(
        case.store, {"graph": case.graph, "features": case.features}, table, sampling, SEED, reads=reads
    )
    _check(json.loads(model.file("ledger.json").read_text())["moves"], plan, setting.epochs)
    seconds = model.run_record()["epoch_seconds"]["train"]
    print(f"  epochs of a {layers}-layer GraphSAGE from disk: {seconds} s")
    return {"model": f"{layers}-layer GraphSAGE, hidden 256", "seconds": [round(each, 2) for each in seconds]}


def _source(case: Case, chunks: PackedChunks, setting: Setting) -> dict[str, Any]:
    """Takes an epoch from the trainer's source and compares its ledger with the plan."""
    source = make_source(case, chunks, Timeline(), queue_bytes=int(setting.queue.removesuffix("GiB")) << 30)
    started = time.perf_counter()
    batches = sum(1 for _ in source.batches(0))
    seconds = time.perf_counter() - started
    assert batches == case.num_batches
    plan = chunks.artifact.inputs["cache_plan"]["version"]
    _check(source.batching.ledger.rows()["moves"], case.store.open("cache_plan", plan), 1)
    print(f"  an epoch of the source without a step: {seconds:.1f} s")
    return {"model": "none", "seconds": [round(seconds, 2)]}


def _check(moves: list[dict[str, Any]], plan: Artifact, epochs: int) -> None:
    """Bytes of rows from disk are the plan's, times the epochs.

    Raises:
        AssertionError: they are not.
    """
    rows = [row for row in moves if (row["link"], row["kind"]) == ("disk", "feature")]
    found = {name: sum(row[name] for row in rows) for name in ("asked_bytes", "moved_bytes")}
    assert found == {name: epochs * plan.summary["numbers"][name] for name in found}, (found, plan.summary["numbers"])


def _against_dgl(case: Case, chunks: PackedChunks) -> dict[str, Any]:
    """Seconds a batch: ours load what comes from disk, DGL's rows of other batches are read one by one; page cache out of play."""
    table, batches = case.opened.features, case.batches()
    pool, reading = BufferPool(), loader_reading(fallback="error")
    loader, ours, theirs = PackedLoader(chunks, table.width, table.dtype, table.row_bytes, pool, reading), [], []
    reader = PageReader(ReadExecution(method="pread", fallback="error"))
    options: dict[str, Any] = {"row_bytes": table.row_bytes, "offset": table.offset, "merge": False}
    with reader.open(table.path) as file:
        for number in np.linspace(1, chunks.num_batches - 2, DGL_BATCHES).astype(int).tolist():
            started = time.perf_counter()
            loader.load(number).release()
            ours.append(time.perf_counter() - started)
            ids = batches.node_ids[batches.ptr[number + 1] : batches.ptr[number + 2]]
            few = np.array(ids[:DGL_ROWS])
            out = np.zeros((len(few), table.row_bytes), np.uint8)
            started = time.perf_counter()
            reader.read_rows(file, few, out=out, **options)
            theirs.append((time.perf_counter() - started) * len(ids) / len(few))
    loader.close()
    found = {"seconds_a_batch": round(statistics.median(theirs), 3), "ours": round(statistics.median(ours), 4)}
    found["ratio"] = round(found["seconds_a_batch"] / statistics.median(ours), 1)
    print(f"  DGL on disk: {found}")
    return found


def _preprocessing(seconds: dict[str, float], epochs: dict[str, Any]) -> dict[str, Any]:
    """Sets the seconds of preprocessing against training, where a model was trained."""
    spent = seconds["samples"] + seconds["plan"] + seconds["pack"]
    rounded = {name: round(value, 2) for name, value in seconds.items()}
    if epochs["model"] == "none":
        print(f"  preprocessing {spent:.1f} s {rounded}")
        return {"preprocessing_seconds": rounded}
    epoch = statistics.median(epochs["seconds"])
    shares = {str(count): round(spent / (count * epoch), 4) for count in PAPER_EPOCHS}
    print(f"  preprocessing {spent:.1f} s {rounded}; an epoch {epoch:.1f} s; share of so many epochs: {shares}")
    return {"preprocessing_seconds": rounded, "preprocessing_share_of_epochs": shares}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.disk_graphs", description="Some graphs of the full run."
    )
    parser.add_argument("--graphs", nargs="+", choices=LARGE, default=LARGE)
    main(quick=False, graphs=parser.parse_args().graphs)
