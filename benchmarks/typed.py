"""A typed graph with features on one of its node types: what is stored, moved and learned without rows of zeros.

A folder in MAG240M's form is written: authors, institutions and papers, of which papers alone have features (float16). The pipeline
imports it, stores samples, plans and packs, and trains once online behind a cache and once from disk; both models must have the same
bytes. Then law 3 is checked from outside: the inputs of stored batches are gathered from the mapped table, from a cache and from packed
chunks, and compared with the rows of the written file itself. The same features with a row of zeros for every other node, as one table
[N, F] would hold them, are the baseline: their bytes stored, and the bytes that an epoch moves.
"""

from __future__ import annotations

import gzip
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.record import record
from graphmill.assets.features.read import open_features
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.samples.read import open_samples
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.jobs.launch import Launch, launch
from graphmill.kernels.rows.placement import place_bytes
from graphmill.kernels.types import BatchKey, Stream
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.cache import CachedSource, PackedRows
from graphmill.trainers.rows.packed_loader import loader_reading
from graphmill.trainers.rows.source import MappedSource, RowIds

SIZES: dict[bool, dict[str, int]] = {
    True: {"author": 70_000, "institution": 20_000, "paper": 10_000, "width": 64, "edges": 200_000},
    False: {"author": 7_000_000, "institution": 2_000_000, "paper": 1_000_000, "width": 256, "edges": 20_000_000},
}
RECIPE = """
name = "typed"
[graph]
source = "ogb"
path = "typed"
memory_limit = "1GiB"
[sampling]
fanouts = [10, 10]
batch_size = 1024
reuse = 1
[hotness]
policy = "degree"
[samples]
[memory]
device = "5%"
host = "10%"
disk = "4x"
[cache_plan]
[[train]]
name = "online"
hidden = 32
epochs = 1
eval = "sampled"
[[train]]
name = "disk"
trainer = "disk"
hidden = 32
epochs = 1
eval = "sampled"
"""
COMPARED = 8
"""Batches whose rows are compared."""


def main(quick: bool) -> None:
    """Writes, imports, trains, compares, prints and records."""
    size = SIZES[quick]
    with tempfile.TemporaryDirectory(prefix="graphmill-typed-") as name:
        folder, lines = Path(name), []
        write_folder(folder / "typed", size)
        (folder / "typed.toml").write_text(RECIPE)
        pipeline = load_pipeline(folder / "typed.toml", TrainTable)
        started = time.perf_counter()
        made = launch(Launch(pipeline=pipeline, home=folder / "home", report=lines.append, in_process=False)).artifacts
        seconds = time.perf_counter() - started
        (online,), (disk,) = made["online"], made["disk"]
        assert online.files["weights.safetensors"] == disk.files["weights.safetensors"], "the weights differ"
        assert online.files["metrics.jsonl"] == disk.files["metrics.jsonl"], "the losses differ"
        artifacts = {stage: found[0] for stage, found in made.items()}
        counts = compare_rows(artifacts, np.load(folder / "typed/processed/paper/node_feat.npy", mmap_mode="r"), size)
        table = open_features(artifacts["features"])
        stored, whole = artifacts["features"].num_bytes, table.num_nodes * table.row_bytes
        moved = {role: _feature_bytes(model) for role, model in (("online", online), ("disk", disk))}
        print(f"{table.num_nodes:,} nodes, of which {table.num_rows:,} have {table.width} {table.dtype}: {format_bytes(stored)} "
              f"stored, where a row for each node takes {format_bytes(whole)}")  # fmt: skip
        print(f"an epoch has {counts['inputs']:,} inputs, of which {counts['without_features']:,} have no features; with rows of zeros "
              f"it would move {counts['inputs'] / max(1, counts['inputs'] - counts['without_features']):.1f} times the bytes")  # fmt: skip
        print(
            f"weights from disk and online are equal to the bit; {COMPARED} batches compared row by row in three sources"
        )
        print(
            f"{seconds:.0f} s in all: "
            + ", ".join(f"{stage} {each.run_record().get('seconds', 0):.0f} s" for stage, each in artifacts.items())
        )
    row = {"scale": "quick" if quick else "full", "graph": size, "stored_bytes": stored, "whole_bytes": whole}
    row |= {"epoch": counts, "moved_bytes": moved, "seconds": round(seconds, 1)}
    record("typed", row, ("numpy", "torch"))


def write_folder(folder: Path, size: dict[str, int]) -> None:
    """Writes the folder: three node types, three relations, features and labels of papers."""
    rng, counts = np.random.default_rng(5), {name: size[name] for name in ("author", "institution", "paper")}
    shares = {
        ("author", "writes", "paper"): 0.45,
        ("author", "at", "institution"): 0.1,
        ("paper", "cites", "paper"): 0.45,
    }
    for (source, relation, target), share in shares.items():
        path = folder / "processed" / "___".join((source, relation, target))
        path.mkdir(parents=True)
        num_edges = int(share * size["edges"])
        # Squares of uniform numbers: some nodes have many edges, most have few.
        ends = [(rng.random(num_edges) ** 2 * counts[kind]).astype(np.int64) for kind in (source, target)]
        ends[0][:1], ends[1][:1] = (
            counts[source] - 1,
            counts[target] - 1,
        )  # the largest id says how many nodes there are
        np.save(path / "edge_index.npy", np.stack(ends))
    papers = folder / "processed" / "paper"
    papers.mkdir()
    labels = rng.integers(0, 8, counts["paper"])
    centres = rng.standard_normal((8, size["width"])).astype(np.float32)
    rows = np.lib.format.open_memmap(papers / "node_feat.npy", "w+", np.float16, (counts["paper"], size["width"]))
    for low in range(0, counts["paper"], 50_000):
        part = labels[low : low + 50_000]
        rows[low : low + len(part)] = centres[part] + rng.standard_normal((len(part), size["width"])).astype(np.float32)
    rows.flush()
    np.save(papers / "node_label.npy", labels.astype(np.float32))
    chosen = np.split(
        rng.permutation(counts["paper"])[: counts["paper"] // 25], [counts["paper"] // 50, counts["paper"] * 3 // 100]
    )
    for part, ids in zip(("train", "valid", "test"), chosen, strict=True):
        path = folder / "split" / "random" / "paper" / f"{part}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("".join(f"{i}\n" for i in ids.tolist()).encode()))


def compare_rows(artifacts: dict[str, Artifact], papers: np.ndarray, size: dict[str, int]) -> dict[str, int]:
    """Gathers the inputs of batches from every source and compares them with the file; counts the inputs of all batches.

    Raises:
        AssertionError: a row differs, or is booked wrongly.
    """
    table, samples = open_features(artifacts["features"]), open_samples(artifacts["samples"])
    first = size["author"] + size["institution"]
    placement = place_bytes(
        np.random.default_rng(0).permutation(table.num_nodes),
        table.row_bytes,
        table.num_bytes // 10,
        table.num_bytes // 5,
        table.row_of,
    )
    mapped = MappedSource(table, threads=2)
    packed = open_packed(artifacts, table)
    counts = {"inputs": 0, "without_features": 0}
    for number in range(samples.num_epochs * samples.num_batches):
        epoch, step = divmod(number, samples.num_batches)
        ids = np.array(samples.batch(epoch, step)[1][0].src_ids)
        counts["inputs"] += len(ids)
        counts["without_features"] += int(np.count_nonzero(ids < first))
        if number >= COMPARED:
            continue
        expected = np.zeros((len(ids), table.width), np.float32)
        expected[ids >= first] = papers[ids[ids >= first] - first]
        for source in (mapped, CachedSource(table, mapped, placement, LogicalDevice()), packed):
            out, ledger = torch.full((len(ids), table.width), torch.nan), Ledger()
            staged = source.stage(BatchKey(Stream.TRAIN, epoch, step)) if source is packed else None
            source.gather(RowIds(ids, staged=staged), out, ledger)
            assert out.numpy().tobytes() == expected.tobytes(), (
                f"rows of batch {number} differ in {type(source).__name__}"
            )
            booked = {row["name"]: row["n"] for row in ledger.rows()["counts"]}
            assert booked["without_features"] == np.count_nonzero(ids < first)
            if staged is not None:
                staged.release()
    packed.close()
    return counts


def open_packed(artifacts: dict[str, Artifact], table: FeatureTable) -> PackedRows:
    """Returns the packed rows of all stored batches."""
    chunks = PackedChunks(artifacts["packed_chunks"], artifacts["cache_plan"], artifacts["samples"])
    return PackedRows(
        chunks,
        table,
        device=LogicalDevice(),
        reading=loader_reading(),
        threads=2,
    )


def _feature_bytes(model: Artifact) -> dict[str, int]:
    """Returns link -> bytes of features that a training moved."""
    import json

    moves = json.loads(model.file("ledger.json").read_text())["moves"]
    found: dict[str, int] = {}
    for each in moves:
        if each["kind"] == "feature":
            found[each["link"]] = found.get(each["link"], 0) + each["moved_bytes"]
    return found
