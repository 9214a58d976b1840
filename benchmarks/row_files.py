"""Learnable rows of 20M nodes x 64 with their moments of Adam (14.3 GiB) in a control group of 2 GiB, and their bits beside memory.

    python -m benchmarks row_files [--home FOLDER] [--parts equal,full]

20,000 items with labels and eight features were bought by users without features, 100 drawn ones each, so that every user has a learnable
row and a batch of 512 items reads 25,600 of them at random places.

    equal   2M users, whose rows and moments take 1.4 GiB: a training in memory, without a limit, and one with its rows in files in a group
            of 640 MiB. The weights must have equal digests, and so must every other file of the two models.
    full    20M users in a group of 2 GiB: two epochs, the second of which reads records that the first one wrote, an evaluation, and the
            model is written. One training is killed within the second epoch and goes on; both must end with the same weights. It takes
            41 GB of disk.

Told are the memory that the kernel could not take back, seconds of an epoch, and bytes that the device read for each byte of the records
that a step needs. Quick is `equal` with a tenth of the users, and `full` with what `equal` has.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.limited_home import LimitedHome, folder_of
from benchmarks.record import record
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.store import Store
from graphmill.trainers.record.checkpoint_head import checkpoint_facts

WIDTH, ITEMS, BOUGHT, BATCH_SIZE, FANOUT = 64, 20_000, 100, 512, 50
EPOCHS, EVERY = 2, {"equal": 1, "full": 0}
"""Epochs, and part -> epochs from one evaluation to the next: with none on the way a training has at most two files of records."""
ENOUGH_BYTES = 64 << 30
"""Limit of commands that are to have none: the system's memory is less."""
RECORD_BYTES = 3 * 4 * WIDTH
SIZES = {
    True: {"equal": (200_000, 512), "full": (2_000_000, 640)},
    False: {"equal": (2_000_000, 640), "full": (20_000_000, 2048)},
}
"""Whether it is quick -> part -> users, and MiB of the group."""
RECIPE = """
name = "rows"
[graph]
source = "tables"
[graph.nodes.item]
path = "items.parquet"
features = "x*"
label_column = "label"
[graph.nodes.user]
num_nodes = {users}
[graph.edges.buys]
path = "buys.parquet"
source_type = "user"
target_type = "item"
[sampling]
fanouts = [{fanout}]
batch_size = {batch_size}
"""
TRAIN = """
[[train]]
name = "{name}"
trial = "{trial}"
layers = 1
hidden = {width}
head = "linear"
input = "typed"
embedding = "node"
embedding_rows = "{where}"
eval = "sampled"
epochs = {epochs}
eval_every = {every}
lr = 0.01
queue = "64MiB"
checkpoint_steps = {steps}
"""
PARTS = ("equal", "full")


def main(quick: bool, home: Path | None = None, parts: tuple[str, ...] | None = None) -> None:
    """Trains, compares, prints and records."""
    row: dict[str, Any] = {"scale": "quick" if quick else "full", "width": WIDTH, "epochs": EPOCHS}
    with folder_of(home, "graphmill-rows-") as folder:
        for part in parts or PARTS:
            users, limit = SIZES[quick][part]
            write(folder / part, users, EVERY[part])
            row[part] = {"equal": equal, "full": full}[part](LimitedHome(folder / part, limit << 20), users)
    record("row_files", row, ("torch", "numpy"))


def write(folder: Path, users: int, every: int) -> None:
    """Writes the tables and the pipeline file: a table in memory, one in files, and one in files that is killed."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 8, ITEMS)
    columns = {f"x{number}": rng.normal(0, 1, ITEMS).astype(np.float32) for number in range(8)}
    pl.DataFrame({"id": np.arange(ITEMS), **columns, "label": labels}).write_parquet(folder / "items.parquet")
    bought = {"src": rng.integers(0, users, ITEMS * BOUGHT), "dst": np.repeat(np.arange(ITEMS), BOUGHT)}
    pl.DataFrame(bought).write_parquet(folder / "buys.parquet")
    tables = {"memory": ("memory", 0), "files": ("mapped", 0), "killed": ("mapped", 7)}
    text = RECIPE.format(users=users, fanout=FANOUT, batch_size=BATCH_SIZE)
    for name, (where, steps) in tables.items():
        keys = {"name": name, "trial": name, "where": where, "steps": steps}
        text += TRAIN.format(width=WIDTH, epochs=EPOCHS, every=every, **keys)
    (folder / "rows.toml").write_text(text)


def equal(home: LimitedHome, users: int) -> dict[str, Any]:
    """Trains in memory and in files, in drawn order, and compares all content. Returns the figures."""
    unlimited(home, "build", "build", "rows.toml")
    for name in random.Random(0).sample(["memory", "files"], 2):
        if name == "memory":
            unlimited(home, name, "train", "rows.toml", name)
        else:
            require(home.command(name, "train", "rows.toml", name))
    found = {**contents(home.store)}
    assert found["memory"] == found["files"], "rows in files have other bits than rows in memory"
    print("  every file of the two models has the same digest")
    return figures(home, users, ("memory", "files"))


def full(home: LimitedHome, users: int) -> dict[str, Any]:
    """Trains in a group, straight and killed, and compares all content. Returns the figures."""
    unlimited(home, "build", "build", "rows.toml")
    require(home.command("files", "train", "rows.toml", "files"))
    stopped = home.command("stopped", "train", "rows.toml", "killed", stopped=lambda: within_last_epoch(home))
    assert stopped["ended"] == "by time", "the training that was to be killed ended before"
    require(home.command("killed", "train", "rows.toml", "killed", "--resume"))
    found = {**contents(home.store)}
    assert found["killed"] == found["files"], "a training that was killed ended with other bits"
    print("  the training that was killed has the same digests")
    return figures(home, users, ("files", "killed"))


def within_last_epoch(home: LimitedHome) -> bool:
    """Returns whether a checkpoint tells of batches of the last epoch."""
    states = [
        checkpoint_facts(path).get("state", {}) for path in (home.store.home / "checkpoints").glob("*.safetensors")
    ]
    return any(each["epoch"] == EPOCHS - 1 and each["position"] > 0 for each in states if each)


def unlimited(home: LimitedHome, part: str, *arguments: str) -> None:
    """Runs a command that must end well, without a limit."""
    limit, home.limit_bytes = home.limit_bytes, ENOUGH_BYTES
    require(home.command(part, *arguments))
    home.limit_bytes = limit


def require(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the row of a command that ended well; else ends the benchmark."""
    if row["ended"] != "well":
        sys.exit("a command did not end well")
    return row


def contents(store: Store) -> dict[str, dict[str, str]]:
    """Returns table -> file -> digest, of each model."""
    models = [each for each in store.artifacts() if each.stage == "model"]
    names = {each.version: each.run_record()["execution"]["asked_by"].rpartition("/")[2] for each in models}
    return {names[each.version]: {name: file["digest"] for name, file in each.files.items()} for each in models}


def figures(home: LimitedHome, users: int, tables: tuple[str, ...]) -> dict[str, Any]:
    """Prints and returns what trainings took."""
    models, found = home.models(), {}
    table_bytes = users * RECORD_BYTES
    for name in tables:
        command, epochs = home.found[name], models[name]["epoch_seconds"]
        found[name] = {
            "held_bytes": command["anonymous_bytes"],
            "seconds": command["seconds"],
            "epoch_seconds": epochs,
            "evaluate_seconds": models[name]["evaluate_seconds"],
            "read_bytes": command["read_bytes"],
        }
        print(
            f"  {name}: rows and moments {format_bytes(table_bytes)}, {format_bytes(command['anonymous_bytes'])} held; epochs "
            f"{json.dumps(epochs)} s, {command['seconds']:.0f} s in all, {format_bytes(command['read_bytes'])} read"
        )
    return {"users": users, "limit_bytes": home.limit_bytes, "table_bytes": table_bytes, "trainings": found}
