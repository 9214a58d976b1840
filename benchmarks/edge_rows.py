"""Rows of edges of 4 times the memory: packed for each batch in `disk`, beside direct reads from their table in `minibatch`.

    python -m benchmarks edge_rows [--home FOLDER] [--again] [--parts build,minibatch,...]

200,000 nodes and 12M edges in random order, each with 64 float32 (2.9 GiB), in a control group of 720 MiB; 40 batches of 256 seeds with
fan-outs [10, 10], stored, three epochs. Rows of nodes are narrow and fit. Trainings have the files dropped from the page cache and the
group to themselves, and run in drawn order:

    minibatch    each batch's rows of edges past the page cache, a request for each
    disk         the same rows from packed chunks, without a hot tier        hot   with 64 MiB of the rows that most batches need in memory

All must end with the same weights, which is compared before a ratio is told. Told are seconds of an epoch, and the bytes of rows of edges
that were asked of the disk and moved, by the ledger. Quick has a sixth of the edges: it checks the run, not the claim.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np

from benchmarks.limited_home import LimitedHome, folder_of, show
from benchmarks.record import record
from graphmill.assets.storage.local.artifact import Artifact

QUICK = {"nodes": 100_000, "edges": 2_000_000, "limit": 500}
FULL = {"nodes": 200_000, "edges": 12_000_000, "limit": 720}
COLUMNS, BATCH_SIZE, BATCHES, BUILD_MEGABYTES = 64, 256, 40, 6000
RECIPE = """
name = "{name}"
[graph]
source = "npz"
path = "graph.npz"
[features.edges]
file = "rows.npy"
[sampling]
fanouts = [10, 10]
batch_size = {batch_size}
reuse = 1
[samples]
[memory]
host = "0"
device = "0"
disk = "4GiB"
edge_host = "{edge_host}"
edge_disk = "4GiB"
[cache_plan]
[packed]
"""
TRAIN = """
[[train]]
name = "{name}"
trial = "{name}"
model = "sage"
edge_features = true
hidden = 64
epochs = 3
eval = "sampled"
eval_every = 0
queue = "128MiB"
{more}
"""
MINIBATCH, DISK = 'samples = "stored"\ncache = "none"\n', 'trainer = "disk"\n'
TABLES = {"edges": {"minibatch": MINIBATCH, "disk": DISK}, "hot": {"hot": DISK}}
"""Pipeline -> its train tables; both are of one home, and share all but the tiers of rows of edges."""
PARTS = ("build", *(name for tables in TABLES.values() for name in tables))


def main(quick: bool, home: Path | None = None, parts: tuple[str, ...] | None = None, again: bool = False) -> None:
    """Builds, trains, compares, prints and records."""
    size, parts = (QUICK if quick else FULL), parts or PARTS
    assert set(parts) <= set(PARTS), f"parts are {', '.join(PARTS)}"
    with folder_of(home, "graphmill-edges-") as folder:
        write(folder, size)
        if "build" in parts:
            built = LimitedHome(folder, BUILD_MEGABYTES << 20)
            if any(built.command(f"build {name}", "build", f"{name}.toml")["ended"] != "well" for name in TABLES):
                sys.exit("the stages were not built")
        limited = LimitedHome(folder, size["limit"] << 20, again)
        trained = [(pipeline, part) for pipeline, tables in TABLES.items() for part in tables if part in parts]
        for pipeline, part in random.Random(0).sample(trained, len(trained)):
            limited.command(part, "train", f"{pipeline}.toml", part, seconds=900)
        failed = report(limited, size, quick)
    if failed:
        sys.exit(f"not ended well: {', '.join(failed)}")


def write(folder: Path, size: dict[str, int]) -> None:
    """Writes the pipeline files, the archive of the graph, and the rows of its edges, if they are not there."""
    for name, tables in TABLES.items():
        begin = RECIPE.format(name=name, batch_size=BATCH_SIZE, edge_host="64MiB" if name == "hot" else "0B")
        (folder / f"{name}.toml").write_text(
            begin + "".join(TRAIN.format(name=table, more=more) for table, more in tables.items())
        )
    if (folder / "graph.npz").exists():
        return
    rng, nodes = np.random.default_rng(0), size["nodes"]
    chosen = rng.permutation(nodes)[: BATCHES * BATCH_SIZE + 1024]
    rows = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float32, (size["edges"], COLUMNS))
    for low in range(0, len(rows), 1 << 16):
        rows[low : low + (1 << 16)] = rng.standard_normal(rows[low : low + (1 << 16)].shape, np.float32)
    rows.flush()
    labels = rng.integers(0, 8, nodes)
    np.savez(
        folder / "graph.npz",
        edge_index=rng.integers(0, nodes, (2, size["edges"])),
        x=rng.standard_normal((nodes, 8), np.float32) + np.eye(8, dtype=np.float32)[labels],
        y=labels,
        train=np.sort(chosen[1024:]),
        val=np.sort(chosen[:512]),
        test=np.sort(chosen[512:1024]),
    )


def report(limited: LimitedHome, size: dict[str, int], quick: bool) -> list[str]:
    """Compares weights, prints ratios and records the row. Returns the parts that did not end well."""
    models, rows = limited.models(), limited.rows()
    assert len({model["weights"] for model in models.values()}) <= 1, "the same batches gave other weights"
    means = show(models, rows)
    read = {name: edge_bytes(limited, name) for name in models}
    ratios = {
        f"minibatch / {ours}": round(means["minibatch"] / means[ours], 2)
        for ours in ("disk", "hot")
        if {"minibatch", ours} <= means.keys()
    }
    ratios["rows of edges / memory"] = round(4 * COLUMNS * size["edges"] / (size["limit"] << 20), 2)
    for name, each in read.items():
        print(f"{name}: rows of edges asked of the disk {each['asked_bytes']:,} bytes, moved {each['moved_bytes']:,}")
    for name, value in ratios.items():
        print(f"{name} = {value}")
    row = {"scale": "quick" if quick else "full", "size": size, "columns": COLUMNS, "epoch_seconds": means}
    more = {"ratios": ratios, "edge_bytes": read, "commands": rows, "models": models}
    record("edge_rows", row | more, ("torch", "numpy"))
    return [part for part, each in rows.items() if each["ended"] != "well"]


def edge_bytes(limited: LimitedHome, name: str) -> dict[str, int]:
    """Returns the bytes of rows of edges that a training asked of the disk and moved, by its ledger."""
    moves = json.loads((_model(limited, name).path / "ledger.json").read_text())["moves"]
    of_edges = [move for move in moves if (move["link"], move["kind"]) == ("disk", "edge_feature")]
    return {key: sum(move[key] for move in of_edges) for key in ("asked_bytes", "moved_bytes")}


def _model(limited: LimitedHome, name: str) -> Artifact:
    models = [each for each in limited.store.artifacts() if each.stage == "model"]
    (found,) = [each for each in models if each.run_record()["execution"]["asked_by"].endswith(f"/{name}")]
    return found
