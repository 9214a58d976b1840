"""Packed rows by expected reads against packed rows by id: bytes and seconds of `fresh` on features of 4 times the memory.

    python -m benchmarks fresh_packing [--home FOLDER]

A skewed R-MAT of 1.25M nodes x 512 float32 (2,441 MiB), 197 stored batches of 32 seeds with fan-outs [10, 10, 5]. What is stored is
built without a limit. Then each table is trained alone in a control group of 600 MiB, in some rounds, in an order drawn anew for each, with
the files dropped from the page cache before it:

    disk    whole chunks, in one sequential read each
    nodes   `fresh` on rows by id
    reads   `fresh` on rows by expected reads

`nodes` and `reads` must end with the same weights. Told are medians of an epoch, the bytes that were read from the packed rows for each
byte that batches asked for, and the seconds of packing. Quick is a small graph, without a limit, in one round.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from benchmarks.limited_home import LimitedHome, folder_of
from benchmarks.plans import ALL_MEMORY, train_each
from benchmarks.record import record

SIZES: dict[str, dict[str, Any]] = {
    "full": {
        "nodes": 1_250_000,
        "edges": 12_500_000,
        "features": 512,
        "labelled": 0.0072,
        "limit": 600 << 20,
        "rounds": 3,
    },
    "quick": {"nodes": 20_000, "edges": 200_000, "features": 64, "labelled": 0.2, "limit": ALL_MEMORY, "rounds": 1},
}
RECIPE = """
name = "fresh-packing-{name}"
seed = 0
[graph]
source = "rmat"
nodes = {nodes}
edges = {edges}
features = {features}
a = 0.57
b = 0.19
c = 0.19
classes = 16
labelled = {labelled}
train_ratio = 0.7
valid_ratio = 0.15
[sampling]
fanouts = [10, 10, 5]
batch_size = 32
reuse = 1
[samples]
[hotness]
[memory]
device = "0"
host = "30MiB"
disk = "20GiB"
[cache_plan]
[packed]
order = "{name}"
[[train]]
name = "{name}"
trial = "{name}"
trainer = "fresh"
samples = "stored"
{common}
[train.fresh]
rows = "packed"
arena = "40MiB"
"""
COMMON = 'layers = 3\nhidden = 64\nepochs = 6\neval = "exact"\neval_every = 0\nqueue = "64MiB"\n'
DISK = '[[train]]\nname = "disk"\ntrial = "disk"\ntrainer = "disk"\n' + COMMON
FILES = {"disk": "nodes", "nodes": "nodes", "reads": "reads"}
"""Table -> order of its packed rows, which names its pipeline file."""


def main(quick: bool, home: Path | None = None, again: bool = False) -> None:
    """Builds, trains, compares, prints and records a row."""
    scale = "quick" if quick else "full"
    size = SIZES[scale]
    with folder_of(home, "graphmill-fresh-packing-") as folder:
        unlimited = LimitedHome(folder, ALL_MEMORY)
        for name in ("nodes", "reads"):
            text = RECIPE.format(name=name, common=COMMON, **size) + (DISK if name == "nodes" else "")
            (folder / f"{name}.toml").write_text(text)
            if unlimited.command(f"build {name}", "build", f"{name}.toml")["ended"] != "well":
                sys.exit(f"the stages of {name}.toml were not built")
        limited = LimitedHome(folder, size["limit"], again)
        order, rounds = random.Random(0), list[dict[str, float]]()
        for number in range(size["rounds"]):
            rounds.append({})
            for table in order.sample(list(FILES), len(FILES)):
                measured, _ = train_each(limited, folder / f"{FILES[table]}.toml", (table,), number)
                rounds[-1] |= measured
        found = compared(limited, rounds)
    record("fresh_packing", {"scale": scale, "size": size, **found}, ("torch", "numpy"))


def compared(limited: LimitedHome, rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Returns medians and bytes of the tables, and prints them."""
    if failed := [name for name in FILES if not all(name in each for each in rounds)]:
        sys.exit(f"not ended well: {', '.join(failed)}")
    models = limited.models()
    assert models["nodes"]["weights"] == models["reads"]["weights"], "the order of packed rows has changed the weights"
    seconds = {name: sorted(each[name] for each in rounds)[len(rounds) // 2] for name in FILES}
    packed = {
        each.config.get("order", "nodes"): each.run_record()["seconds"]
        + sum(each.open_part(part).run_record()["seconds"] for part in each.parts)
        for each in limited.store.artifacts()
        if each.stage == "packed_chunks" and each.part_of is None
    }
    moved = {name: {key: models[name][key] for key in ("asked_bytes", "moved_bytes")} for name in FILES}
    for name in FILES:
        read, asked = moved[name]["moved_bytes"], moved[name]["asked_bytes"]
        print(
            f"{name}: {seconds[name]:.2f} s an epoch, {read / 1e9:.2f} GB read, {read / asked:.2f} for each asked byte"
        )
    share = moved["reads"]["moved_bytes"] / moved["nodes"]["moved_bytes"]
    ratio = seconds["nodes"] / seconds["reads"]
    print(f"by reads: {share:.3f} of the bytes, epochs {ratio:.2f} times as fast; packing took {packed}")
    return {"seconds": seconds, "all_seconds": rounds, "bytes": moved, "packing_seconds": packed, "byte_share": share}


if __name__ == "__main__":
    main("--quick" in sys.argv)
