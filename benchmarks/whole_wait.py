"""The whole wait of a training whose features exceed its memory: epochs, the evaluation after each, and the final scores.

    python -m benchmarks whole_wait [--home FOLDER] [--again] [--parts build,...]

R-MAT of 800,000 nodes and 16M edges, rows of 384 float32 (1.2 GB), 10,000 training nodes and 2,000 of validation, GraphSAGE of 2 layers,
fan-outs [10, 10], batches of 128. Every command has a control group of 700 MiB to itself, and the files dropped from the page cache:

    disk      three epochs on packed rows, an exact evaluation after each, and the exact scores of all nodes in the end
    direct    the same with rows that each batch reads past the page cache
    mapped    the same with rows of a mapped file, which the group cannot hold
    cached    rows of each batch past the page cache, behind a cache of the hottest ones in the host's memory
    packed    `factored` on packed rows
    fresh     embeddings of earlier steps, rows of each batch past the page cache; fresh-packed on packed rows
    ahead     the same with lookahead = 1; ahead-packed on packed rows
    read      the file of the features once, in order, by direct reads
    memory    `disk` again, in a group that holds everything: its evaluations are those of memory
    plan      `graphmill plan` in the same group before the first training: its whole waits stand beside those of the commands
    scores    the final scores alone, in the group of 700 MiB and in memory (benchmarks/whole_scores.py)
    forward   exact scores of all nodes in memory beside DGL's forward pass over the whole graph, after comparing the logits

`disk` and `memory` must end with the same scores and weights. Told are the seconds of each part, and those of the final scores against four
times those of `read` and of an evaluation in memory. Quick is a tenth of the graph in the same group.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.groups import run_limited
from benchmarks.limited_home import LimitedHome, folder_of
from benchmarks.plans import plan_of, whole_waits
from benchmarks.record import record
from benchmarks.whole_scores import scores
from graphmill.kernels.rows.direct_io import PageReader, ReadExecution

QUICK = {"nodes": 80_000, "edges": 1_600_000, "labelled": 0.18}
FULL = {"nodes": 800_000, "edges": 16_000_000, "labelled": 0.018}
LIMIT, ENOUGH = 700 << 20, 8 << 30
RECIPE = """
name = "whole"
[graph]
source = "rmat"
nodes = {nodes}
edges = {edges}
features = 384
classes = 16
undirected = false
labelled = {labelled}
train_ratio = 0.7
valid_ratio = 0.14
[sampling]
fanouts = [10, 10]
batch_size = 128
reuse = 1
[samples]
[hotness]
[memory]
host = "60MiB"
device = "20MiB"
disk = "20GiB"
[cache_plan]
[packed]
"""
TRAIN = """
[[train]]
name = "{name}"
trial = "{name}"
hidden = 64
epochs = 3
eval = "exact"
{more}
"""
DISK = 'trainer = "disk"\nqueue = "64MiB"'
STORED = 'samples = "stored"\nqueue = "64MiB"'
FRESH = f'trainer = "fresh"\n{STORED}\n[train.fresh]\np_grad = 0.9'
PACKED = '[train.factored]\nsamplers = 1\ntrainers = 1\nrows = "packed"'
TABLES = {
    "disk": DISK,
    "direct": f'{STORED}\ncache = "none"',
    "mapped": f'{STORED}\ncache = "none"\nfeatures = "mapped"',
    "cached": STORED,
    "packed": f'trainer = "factored"\n{STORED}\n{PACKED}',
    "fresh": FRESH,
    "ahead": f"{FRESH}\nlookahead = 1",
    "fresh-packed": f'{FRESH}\nrows = "packed"',
    "ahead-packed": f'{FRESH}\nrows = "packed"\nlookahead = 1',
    "memory": DISK,
}
PARTS = ("build", "plan", *TABLES, "read", "scores", "forward")


def main(quick: bool, home: Path | None = None, parts: tuple[str, ...] | None = None, again: bool = False) -> None:
    """Builds, trains, compares, prints and records."""
    size, parts = (QUICK if quick else FULL), parts or PARTS
    with folder_of(home, "graphmill-whole-") as folder:
        tables = "".join(TRAIN.format(name=name, more=more) for name, more in TABLES.items())
        (folder / "whole.toml").write_text(RECIPE.format(**size) + tables)
        limited = LimitedHome(folder, LIMIT, again)
        if "build" in parts and limited.command("build", "build", "whole.toml")["ended"] != "well":
            sys.exit("the stages were not built")
        limited.found.pop("plan", None)  # one of an earlier call would be that of other code
        plan = limited.command("plan", "plan", "whole.toml", "--json") if "plan" in parts else {"ended": "not asked"}
        for part in parts:
            limited.limit_bytes = ENOUGH if part == "memory" else LIMIT
            if part in TABLES:
                limited.command(part, "train", "whole.toml", part)
        rows = limited.artifact("features").path / "rows.npy"
        read = run_limited([sys.executable, "-m", "benchmarks.whole_wait", str(rows)], Path.cwd(), LIMIT, 600)
        more: dict[str, Any] = {}
        if plan["ended"] == "well":
            well = {name: row["seconds"] for name, row in limited.rows().items() if row["ended"] == "well"}
            trained = {name: well[name] for name in TABLES if name in well and name != "memory"}
            more["whole"] = whole_waits([plan_of(plan["said"])], [trained])
        if "scores" in parts:
            more["scores"] = {
                name: scores(folder / "home", "scored", limit)
                for name, limit in {"limited": LIMIT, "memory": ENOUGH}.items()
            }
        if "forward" in parts:
            more["forward"] = scores(folder / "home", "all", ENOUGH, "dgl")
        report(limited, float(read["said"].split()[-1]), size, quick, more)


def report(limited: LimitedHome, read_seconds: float, size: dict[str, Any], quick: bool, more: dict[str, Any]) -> None:
    """Compares, prints and records the row."""
    models, rows = limited.models(), limited.rows()
    same = {(models[name]["weights"], models[name]["test_accuracy"]) for name in ("disk", "memory") if name in models}
    assert len(same) <= 1, "memory changed weights or scores"
    for name, model in models.items():
        epochs, scores = sum(model["epoch_seconds"]), sum(model["evaluate_seconds"])
        whole = rows[name]["seconds"] if name in rows else float("nan")
        print(f"{name}: {epochs:.1f} s of epochs, {scores:.1f} s of evaluations, {whole:.1f} s in all")
    print(f"features read once in order: {read_seconds:.2f} s")
    if "scores" in more:
        took, free = (more["scores"][name]["scores_seconds"][0] for name in ("limited", "memory"))
        print(f"final scores: {took:.2f} s, at most {4 * read_seconds + free:.2f} (in memory {free:.2f})")
    if "forward" in more:
        print(f"all nodes in memory: {more['forward']['times_as_fast']} times as fast as DGL")
    row = {"scale": "quick" if quick else "full", "size": size, "read_seconds": read_seconds, "models": models}
    record("whole_wait", row | more | {"commands": rows, "stages": limited.stages()}, ("torch", "numpy", "dgl"))


def read_in_order(path: Path) -> float:
    """Reads a file once by direct reads, and returns the seconds."""
    reader, began = PageReader(ReadExecution(depth=8, piece_bytes=1 << 20)), time.perf_counter()
    with reader.open(path) as file:
        for start in range(0, path.stat().st_size, 8 << 20):
            reader.read_chunk(file, start, min(8 << 20, path.stat().st_size - start))
    return time.perf_counter() - began


if __name__ == "__main__":
    print(read_in_order(Path(sys.argv[1])))
