"""Features of 3.5 times the memory: 1M nodes x 1,024 float32 (3.8 GiB) in a control group of 1,100 MiB, trained, evaluated and predicted.

    python -m benchmarks limited [--home FOLDER] [--again] [--parts graph,...]

R-MAT of 1M nodes and 8M edges, made undirected; 40 batches of 256 seeds with fan-outs [10, 10], stored. All trainings have the files
dropped from the page cache and the group to themselves, and run in drawn order:

    minibatch   rows past the page cache            cached   the same behind a cache of 150 MiB in host and device
    mapped      rows of a mapped file behind that cache, at most some minutes, and then without an epoch's time
    disk        packed rows and the same 150 MiB    fresh    embeddings of earlier steps over packed rows
    disk-1, disk-3   one and three epochs without an evaluation; the difference is what an epoch reads from the device
    dgl, graphbolt   mapped files, random reads advised for the features
    predict     10,000 nodes by the model of `disk`

`minibatch`, `cached`, `mapped` and `disk` must end with the same weights. Told are the ratios that matter: each rival against `minibatch`
and `disk`, `mapped` against `disk`, and the bytes that an epoch of `disk` read from the device for each byte that its batches asked for.
Quick is the same with a tenth of the rows, which fit: it checks the run, not the claim.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.limited_home import RECIPE, RIVALS, LimitedHome, folder_of, show
from benchmarks.record import record

QUICK = {"nodes": 100_000, "edges": 800_000, "limit": 1100}
FULL = {"nodes": 1_000_000, "edges": 8_000_000, "limit": 1100}
TRAIN = """
[[train]]
name = "{name}"
trial = "{name}"
hidden = 64
eval = "sampled"
eval_workspace = "64MiB"
{more}
"""
STORED = 'samples = "stored"\nqueue = "64MiB"\nepochs = 2\n'
DISK = 'trainer = "disk"\nqueue = "256MiB"\n'
FRESH = 'trainer = "fresh"\nsamples = "stored"\nqueue = "256MiB"\nepochs = 2\n'
TABLES = {
    "minibatch": STORED + 'cache = "none"',
    "cached": STORED,
    "mapped": STORED + 'features = "mapped"',
    "disk": DISK + "epochs = 2",
    "fresh": FRESH + '[train.fresh]\nrows = "packed"\narena = "60MiB"',
    "disk-1": DISK + "epochs = 1\neval_every = 0",
    "disk-3": DISK + "epochs = 3\neval_every = 0",
}
PARTS = ("build", *TABLES, *RIVALS, "predict")
SAME = ("minibatch", "cached", "mapped", "disk")
PREDICTED = 10_000
MAPPED_SECONDS, RIVAL_SECONDS = 300, 60


def main(quick: bool, home: Path | None = None, parts: tuple[str, ...] | None = None, again: bool = False) -> None:
    """Builds, trains, predicts, compares, prints and records."""
    size, parts = (QUICK if quick else FULL), parts or PARTS
    assert set(parts) <= set(PARTS), f"parts are {', '.join(PARTS)}"
    with folder_of(home, "graphmill-limited-") as folder:
        (folder / "limited.toml").write_text(recipe(size))
        limited = LimitedHome(folder, size["limit"] << 20, again)
        if "build" in parts and limited.command("build", "build", "limited.toml")["ended"] != "well":
            sys.exit("the stages were not built")
        trained = [part for part in (*TABLES, *RIVALS) if part in parts]
        for part in random.Random(0).sample(trained, len(trained)):
            if part in RIVALS:
                limited.rival(part, hidden=64, seconds=5 if quick else RIVAL_SECONDS)
            else:
                seconds = MAPPED_SECONDS if part == "mapped" else 600
                limited.command(part, "train", "limited.toml", part, seconds=seconds)
        if "predict" in parts:
            ids = np.sort(np.random.default_rng(0).choice(size["nodes"], min(PREDICTED, size["nodes"] // 10), False))
            (folder / "ids.txt").write_text("\n".join(map(str, ids.tolist())))
            options = ("--nodes", "ids.txt", "--out", "predicted.parquet", "--workspace", "128MiB")
            limited.command("predict", "predict", "limited.toml", "disk", *options)
        failed = report(limited, size, quick)
    if failed:
        sys.exit(f"not ended well: {', '.join(failed)}")


def recipe(size: dict[str, Any]) -> str:
    """Returns the text of the pipeline file for a graph of this size."""
    begin = RECIPE.format(name="limited", features=1024, classes=16, batch_size=256, **size) + "[packed]\n"
    return begin + "".join(TRAIN.format(name=name, more=more) for name, more in TABLES.items())


def report(limited: LimitedHome, size: dict[str, Any], quick: bool) -> list[str]:
    """Compares weights, prints ratios and records the row. Returns the parts that did not end, but for that of mapped rows."""
    models, rows = limited.models(), limited.rows()
    weights = {models[name]["weights"] for name in SAME if name in models}
    assert len(weights) <= 1, "the same samples gave other weights"
    means = show(models, rows)
    if rows.get("mapped", {}).get("ended") == "by time":
        print(f"mapped: stopped after {rows['mapped']['seconds']:.0f} s, without an epoch's time")
    ratios = {
        f"{other} / {ours}": round(means[other] / means[ours], 2)
        for other in (*RIVALS, "mapped")
        for ours in ("minibatch", "cached", "disk")
        if other in means and ours in means
    }
    if {"disk-1", "disk-3"} <= set(models) and {"disk-1", "disk-3"} <= set(rows):
        read = rows["disk-3"]["read_bytes"] - rows["disk-1"]["read_bytes"]
        asked = models["disk-3"]["asked_bytes"] - models["disk-1"]["asked_bytes"]
        moved = models["disk-3"]["moved_bytes"] - models["disk-1"]["moved_bytes"]
        ratios |= {"disk: read / asked": round(read / asked, 3), "disk: moved / asked": round(moved / asked, 3)}
    for name, value in ratios.items():
        print(f"{name} = {value}")
    row = {"scale": "quick" if quick else "full", "size": size, "epoch_seconds": means, "ratios": ratios}
    more = {"commands": rows, "stages": limited.stages(), "models": models}
    record("limited", row | more, ("torch", "numpy", "dgl"))
    return [part for part, each in rows.items() if each["ended"] != "well" and part != "mapped"]
