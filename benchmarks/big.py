"""A graph in the proportions of ogbn-papers100M, larger than memory in earnest: prepared, trained and evaluated under a limit.

    python -m benchmarks big [--scale 1/8] [--home FOLDER] [--again] [--parts graph,samples,...]

At scale 1 an R-MAT graph of 111M nodes and 1.6G edges, 128 float16 features, 172 classes of which 1.4% of the nodes know theirs, edges as
they are drawn, fan-outs [10, 10]. Every command runs in a control group of 2 + 6 S GiB, after the files of the home were dropped from
the page cache. Stages are built one after the other, each with a pipeline file that asks for no later one. Then each trainer has two
epochs and an evaluation, in drawn order with DGL 1.1.3 and GraphBolt on mapped files, whose epoch is extrapolated from as many batches as
end in a minute. `minibatch` and `disk` train the same samples: their weights must be equal before any time is told.

Recorded for each command: seconds, the largest anonymous memory of the group (what the kernel cannot take back), the largest memory with
the page cache, and the bytes that its processes read from the device; for each stage its seconds; for each training the seconds of an
epoch and of an evaluation. `python -m benchmarks growth` makes a table and a figure of what was recorded at several scales.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from benchmarks.limited_home import RIVALS, LimitedHome, folder_of, show
from benchmarks.record import record
from graphmill.assets.sizes import format_bytes

QUICK, FULL = 1 / 512, 1 / 8
NODES, EDGES = 111_000_000, 1_600_000_000
RIVAL_SECONDS = 60
STAGES = {
    "graph": """
[graph]
source = "rmat"
nodes = {nodes}
edges = {edges}
undirected = false
features = 128
classes = 172
labelled = 0.014
train_ratio = 0.78
valid_ratio = 0.08
[features]
dtype = "float16"
""",
    "samples": """
[sampling]
fanouts = [10, 10]
batch_size = 1024
reuse = 1
[samples]
""",
    "hotness": "[hotness]\n",
    "cache_plan": '[memory]\ndevice = "3%"\nhost = "6%"\ndisk = "20x"\n[cache_plan]\n',
    "packed_chunks": "[packed]\n",
    "partitions": '[partitions]\nmethod = "ldg"\nparts = 2\n',
}
"""Part -> what it adds to the pipeline file."""

QUEUE = "384MiB"
TRAIN = f"""
[[train]]
name = "{{name}}"
hidden = 128
epochs = 2
eval = "sampled"
queue = "{QUEUE}"
{{more}}
"""
TABLES = {
    "minibatch": 'samples = "stored"',
    "disk": 'trainer = "disk"',
    "fresh": 'trainer = "fresh"\nsamples = "stored"\n[train.fresh]\nrows = "packed"\narena = "3%"',
    "distributed": 'trainer = "distributed"\n[train.distributed]\nranks = 2\ntimeout = 600',
}
BUILT = (*STAGES, "shards")
"""The parts that build; a table of `distributed` is what asks for shards."""

PARTS = (*BUILT, *TABLES, *RIVALS)


def main(
    quick: bool,
    scale: float | None = None,
    home: Path | None = None,
    parts: tuple[str, ...] | None = None,
    again: bool = False,
) -> None:
    """Builds, trains, compares, prints and records."""
    scale = scale or (QUICK if quick else FULL)
    parts = parts or PARTS
    assert set(parts) <= set(PARTS), f"parts are {', '.join(PARTS)}"
    limit = int((2 + 6 * scale) * 2**30)
    size = {"nodes": int(NODES * scale), "edges": int(EDGES * scale)}
    print(f"scale {scale:g}: {size['nodes']:,} nodes, {size['edges']:,} edges, {format_bytes(limit)} of memory")
    with folder_of(home, "graphmill-big-") as folder:
        limited = LimitedHome(folder, limit, again)
        tables = "".join(TRAIN.format(name=name, more=more) for name, more in TABLES.items())
        limited.build("big", {part: STAGES.get(part, tables).format(**size) for part in BUILT}, parts)
        trained = [part for part in (*TABLES, *RIVALS) if part in parts]
        for part in random.Random(0).sample(trained, len(trained)):
            if part in RIVALS:
                limited.rival(part, hidden=128, seconds=5 if quick else RIVAL_SECONDS)
            else:
                limited.command(part, "train", "shards.toml", part)
        report(limited, scale, size)
    failed = [part for part, row in limited.found.items() if part in parts and row["ended"] != "well"]
    if failed:
        sys.exit(f"not ended well: {', '.join(failed)}")


def report(limited: LimitedHome, scale: float, size: dict[str, int]) -> None:
    """Compares the weights, prints epochs, and records a row of all parts that this home has seen."""
    models, rows, stages = limited.models(), limited.rows(), limited.stages()
    if {"minibatch", "disk"} <= set(models):
        same = models["disk"]["weights"] == models["minibatch"]["weights"]
        assert same, "disk and minibatch trained other weights on the same samples"
    for name, stage in stages.items():
        print(f"{name}: {stage['seconds']:.1f} s, {format_bytes(stage['stored_bytes'])} stored")
    means = show(models, rows)
    row: dict[str, Any] = {"scale": scale, "size": size, "limit_bytes": limited.limit_bytes, "epoch_seconds": means}
    record("big", row | {"commands": rows, "stages": stages, "models": models}, ("torch", "numpy", "dgl"))
