"""Plans and predictions beside what trainings turn out to take: their order, memory, bytes by link and seconds.

    python -m benchmarks plans [--parts showcase,rmat-disk,photo,minesweeper] [--home FOLDER]

    showcase    the shipped pipeline, with all of the machine's memory
    rmat-disk   the shipped one with a graph of 1M nodes and 8M edges, and 1,152 columns: 4.3 GiB of features in a control group of
                1,100 MiB, 4 times less; with tables of other techniques
    photo, minesweeper   real graphs (`photo.npz` and `minesweeper.npz` in the folder GRAPHMILL_TEST_DATA)

Each pipeline is built, planned once the graph is there, and each of its tables trained alone, in drawn order, with the files dropped from
the page cache first; then all of it once more, backwards, since a machine may work faster at one time than at another. Told are the ratios
predicted / measured of every training, and the pairs whose order was planned wrongly: those that lie more than 10 % apart in the plan and
in the measurement, in opposite directions. Told are also the whole waits, from the command to its end: planned and measured ones, and
whether the training that the plan takes was the fastest of those on whole batches (within 10 %).
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.limited_home import RECIPE, LimitedHome, folder_of
from benchmarks.record import record
from graphmill.assets.storage.names.home import ROOT
from graphmill.jobs.planning.outcome import error_lines, prediction_errors
from graphmill.jobs.planning.variants import TIE

ALL_MEMORY = 1 << 40
SHIPPED = ROOT / "jobs" / "pipelines"
GRAPHS = {
    "showcase": "",
    "rmat-disk": RECIPE + '[partitions]\nparts = 2\nmethod = "ldg"\n',
    "photo": """
name = "photo"
[graph]
source = "npz"
path = "${{GRAPHMILL_TEST_DATA}}/photo.npz"
undirected = true
[sampling]
fanouts = [15, 10]
batch_size = 128
reuse = 2
[samples]
[partitions]
parts = 2
[chunks]
chunks_per_part = 2
[hotness]
[memory]
host = "20%"
device = "10%"
disk = "5x"
[cache_plan]
""",
}
GRAPHS["minesweeper"] = GRAPHS["photo"].replace("photo", "minesweeper")
SIZES = {True: {"nodes": 50_000, "edges": 400_000}, False: {"nodes": 1_000_000, "edges": 8_000_000}}
RMAT: dict[str, Any] = {"name": "rmat-disk", "features": 1152, "classes": 8, "batch_size": 128}
ROUNDS = 2
LIMITS = {"rmat-disk": 1100 << 20}
SAMPLED = {
    "online": 'cache = "none"',
    "cached": "",
    "stored": 'samples = "stored"',
    "disk": 'trainer = "disk"',
    "factored": 'trainer = "factored"\n[train.factored]\nsamplers = 1\ntrainers = 1',
    "fresh": 'trainer = "fresh"\nsamples = "stored"\n[train.fresh]\nrows = "packed"\narena = "1.5%"',
    "distributed": 'trainer = "distributed"\ncache = "none"\n[train.distributed]\nranks = 2',
}
WHOLE = {"fullgraph": 'trainer = "fullgraph"', "uncut": 'trainer = "fullgraph"\n[train.fullgraph]\nmode = "device"'}
EPOCHS, WHOLE_EPOCHS = 3, 12
"""Epochs of a table; more of those that are one step, since the first ones of a process take longer than the others."""
OF_SAMPLED = 'eval = "sampled"\nqueue = "160MiB"\n'
TABLE = """
[[train]]
name = "{name}"
trial = "{name}"
hidden = 64
epochs = {epochs}
eval_every = 0
eval_workspace = "64MiB"
{more}
"""


def main(quick: bool, home: Path | None = None, parts: tuple[str, ...] | None = None, again: bool = False) -> None:
    """Measures each pipeline, prints errors and pairs, and records a row for each."""
    for name in parts or (("photo", "rmat-disk") if quick else tuple(GRAPHS)):
        with folder_of(home, "graphmill-plans-") as folder:
            measure(name, folder / name, quick, again)


def measure(name: str, folder: Path, quick: bool, again: bool) -> None:
    """Measures one pipeline."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.toml"
    file.write_text(recipe(name, quick) if GRAPHS[name] else (SHIPPED / file.name).read_text())
    limited = LimitedHome(folder, LIMITS.get(name, ALL_MEMORY), again)
    assert limited.command("build", "build", str(file))["ended"] == "well", f"{name} was not built"
    rounds = [plan_and_train(limited, file, number) for number in range(1 if quick else ROUNDS)]
    waits = whole_waits([each[2] for each in rounds], [each[3] for each in rounds])
    planned = {table: statistics.mean(each[0][table] for each in rounds) for table in rounds[0][0]}
    ended = [table for table in planned if all(table in each[1] for each in rounds)]
    measured = {table: statistics.mean(each[1][table] for each in rounds) for table in ended}
    errors = prediction_errors(limited.store)
    print("\n".join(error_lines(errors)))
    wrong = wrong_pairs(planned, measured)
    for table, seconds in sorted(measured.items(), key=lambda each: each[1]):
        each = ", ".join(f"{seconds_of[table]:.2f}" for _, seconds_of, *_ in rounds)
        print(f"  {table}: {seconds:.2f} s an epoch ({each}), {planned[table]:.2f} planned")
    print(f"{len(wrong)} of {len(measured) * (len(measured) - 1) // 2} pairs in the wrong order: {wrong}")
    ratios = {
        each.asked_by: {"memory": each.memory, "seconds": each.seconds, "links": dict(each.links)} for each in errors
    }
    found = {"ratios": ratios, "planned": planned, "measured": measured, "wrong": wrong, "whole": waits}
    record("plans", {"pipeline": name, "quick": quick, "rounds": len(rounds)} | found)


def whole_waits(plans: list[dict[str, Any]], rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Prints and returns the whole waits that plans and commands took.

    Args:
        plans: values of `graphmill plan --json`.
        rounds: table -> seconds of its command, for each of them, without those that did not end well.

    Returns:
        {"planned", "measured", "ratios"}: table -> seconds and planned / measured, means over the rounds; {"chosen", "first", "right"}: the
        training of the file that the plan takes on whole batches, the one that was fastest, and whether the former took at most 1.1
        times as long; {"of_the_file"}: what the plan takes, which may be a technique without a table.
    """
    rows = [{row["name"]: row for row in plan["rows"] if row["own"] and row["refused"] is None} for plan in plans]
    names = [name for name in rows[0] if all(name in each for each in rounds) and rows[0][name].get("whole_seconds")]
    planned = {name: statistics.mean(each[name]["whole_seconds"] for each in rows) for name in names}
    measured = {name: statistics.mean(each[name] for each in rounds) for name in names}
    ratios = {name: planned[name] / measured[name] for name in names}
    for name in sorted(names, key=measured.__getitem__):
        print(f"  {name}: {measured[name]:.1f} s in all, {planned[name]:.1f} planned ({ratios[name]:.2f})")
    exact = [name for name in names if rows[0][name]["exact_epochs"] and rows[0][name]["fits"]]
    first, least = min(exact, key=measured.__getitem__), min(planned[name] for name in exact)
    ties = [name for name in exact if planned[name] <= (1 + TIE) * least]
    chosen = min(ties, key=lambda name: preparing_and_memory(rows[0][name]))
    right = measured[chosen] <= 1.1 * measured[first]
    print(f"  the plan takes {chosen}, and {first} was the fastest: {'right' if right else 'WRONG'}")
    return {
        "planned": planned, "measured": measured, "ratios": ratios, "chosen": chosen, "first": first, "right": right,
        "of_the_file": plans[0]["chosen"],
    }  # fmt: skip


def preparing_and_memory(row: dict[str, Any]) -> tuple[float, float]:
    """Returns the numbers by which a plan chooses among trainings that wait equally long: seconds of preparing, and bytes of memory."""
    return sum(row["prepare_seconds"].values()), row["memory_bytes"]


def plan_and_train(
    limited: LimitedHome, file: Path, number: int
) -> tuple[dict[str, float], dict[str, float], dict[str, Any], dict[str, float]]:
    """Plans with newly measured pieces, then trains each table, in another order in each round.

    Args:
        limited: the home.
        file: the pipeline.
        number: number of the round, whose order is that of the round before, backwards.

    Returns:
        (table -> planned seconds of an epoch, table -> measured ones, values of the plan, table -> seconds of its command), the measured
        ones without those that did not end well.
    """
    behind = f", round {number + 1}" if number else ""
    plan = limited.command(
        f"plan{behind}", "plan", str(file), "--json", *(["--refresh"] if number or limited.again else [])
    )
    assert plan["ended"] == "well", f"the plan of {file.stem} did not end"
    values = plan_of(plan["said"])
    planned = {each["name"]: each["epoch_seconds"] for each in values["rows"] if each["own"]}
    drawn = random.Random(0).sample(list(planned), len(planned))
    measured, waits = train_each(limited, file, drawn[::-1] if number else drawn, number)
    return planned, measured, values, waits


def train_each(
    limited: LimitedHome, file: Path, tables: Sequence[str], number: int, more: Sequence[str] = ()
) -> tuple[dict[str, float], dict[str, float]]:
    """Trains tables one after the other, each alone and anew.

    Args:
        limited: the home.
        file: the pipeline.
        tables: their names, in order.
        number: number of the round.
        more: further arguments of the commands.

    Returns:
        (table -> median seconds of an epoch, without the first; table -> seconds of its command), without those that did not end well.
    """
    behind = f", round {number + 1}" if number else ""
    measured, waits = {}, {}
    for table in tables:
        # Anew in the first round, too: a model may be left of a call that was stopped.
        row = limited.command(part := f"{table}{behind}", "train", str(file), table, *more, "--retrain", seconds=600)
        if row["ended"] == "well" and "epoch_seconds" not in row:
            row = limited.note(part, epoch_seconds=limited.models()[table]["epoch_seconds"])
        if row["ended"] == "well":
            measured[table], waits[table] = statistics.median(row["epoch_seconds"][1:]), row["seconds"]
    return measured, waits


def plan_of(said: str) -> dict[str, Any]:
    """Returns the values of `graphmill plan --json`, before which stand lines on how the machine was measured."""
    return json.JSONDecoder().raw_decode(said, said.index("{\n"))[0]


def recipe(name: str, quick: bool) -> str:
    """Returns the text of a pipeline file with a table for each technique."""
    tables = {each: OF_SAMPLED + more for each, more in SAMPLED.items()} | ({} if name == "rmat-disk" else WHOLE)
    epochs = dict.fromkeys(WHOLE, WHOLE_EPOCHS)
    text = "".join(TABLE.format(name=each, epochs=epochs.get(each, EPOCHS), more=more) for each, more in tables.items())
    return GRAPHS[name].format(**RMAT | SIZES[quick]) + text


def wrong_pairs(planned: dict[str, float], measured: dict[str, float]) -> list[tuple[str, str]]:
    """Returns the pairs of trainings whose order in a plan is wrong, ties on either side left out; the one that is faster comes first."""
    found = []
    for pair in combinations(sorted(measured), 2):
        fast, slow = sorted(pair, key=measured.__getitem__)
        if measured[slow] > (1 + TIE) * measured[fast] and planned[fast] > (1 + TIE) * planned[slow]:
            found.append((fast, slow))
    return found
