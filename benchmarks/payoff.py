"""Each technique in the setting that its paper claims, against the others: epochs and whole waits, and what `graphmill plan` takes.

    python -m benchmarks payoff [--parts memory,disk,link,cache,roles,ranks] [--home FOLDER]

    memory   graph and features in memory: plain mini-batches, since nothing is to be spared
    disk     features of 4 times the memory, on this disk: packed rows (DiskGNN)
    link     the same over a link of 1 GB/s: embeddings of earlier steps (FreshGNN)
    cache    a device with room for a tenth of the rows behind a slow link: hot rows on it (FGNN)
    roles    a device holds the graph or a useful cache, and draws for as long as it trains: samplers and trainers (FGNN)
    ranks    two ranks, each with the rows of its own nodes: hybrid partitioning (FastSample)

The pipelines are those of jobs/pipelines/payoff/, and each says how to run it without this program. In a control group with the setting's
limit the graph and the features are built; `graphmill plan` says what it takes; the other stages are built; and each table is trained alone
in five rounds, in an order drawn anew for each, with the files dropped from the page cache before it. All tables on whole batches must end
with the same weights. A whole wait is the stages that a table needs besides graph and features, and the command that trains it.

Told are medians over the rounds; how many times as long the fastest table of no claimed technique takes as the fastest of a claimed one
(the claim: 1.15); and whether the plan's choice was the fastest on whole batches, or within 10 % of it, and so of all tables with the one
that it says waits least. Tables that are among the claimed
ones' `kin` have the same technique besides their own, and are in neither group. Quick is a small graph, without a limit, in one round.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomlkit

from benchmarks.charts import bar_chart
from benchmarks.limited_home import LimitedHome, folder_of
from benchmarks.plans import ALL_MEMORY, plan_of, train_each, whole_waits
from benchmarks.record import record
from graphmill.assets.pipeline.file import SHIPPED
from graphmill.jobs.planning.variants import TIE
from graphmill.jobs.report.drawing import ReportFigure

FOLDER = SHIPPED / "payoff"
COMMON = ("name", "seed", "graph")
"""Tables of a pipeline that build what every training needs."""
QUICK = ("--set", "graph.nodes=20000", "--set", "graph.edges=100000", "--set", "graph.features=64")
ROUNDS = 5


class Setting(NamedTuple):
    """One pipeline.

    Attributes:
        claimed: tables of the technique whose paper claims the setting.
        kin: tables that have this technique besides one of their own.
        limit_bytes: memory of each command.
    """

    claimed: tuple[str, ...]
    kin: tuple[str, ...] = ()
    limit_bytes: int = ALL_MEMORY


SETTINGS = {
    "memory": Setting(("online",)),
    "disk": Setting(("disk", "factored"), limit_bytes=750 << 20),
    "link": Setting(("fresh",), limit_bytes=750 << 20),
    "cache": Setting(("cached",), ("disk", "fresh")),
    "roles": Setting(("roles",)),
    "ranks": Setting(("hybrid",), ("unfused",)),
}


def main(quick: bool, home: Path | None = None, parts: tuple[str, ...] | None = None, again: bool = False) -> None:
    """Measures each setting, prints its waits, and records a row for each."""
    for name in parts or tuple(SETTINGS):
        with folder_of(home, "graphmill-payoff-") as folder:
            measure(name, folder / name, quick, again)


def measure(name: str, folder: Path, quick: bool, again: bool) -> None:
    """Measures one setting."""
    setting, file = SETTINGS[name], FOLDER / f"{name}.toml"
    folder.mkdir(parents=True, exist_ok=True)
    limited = LimitedHome(folder, ALL_MEMORY if quick else setting.limit_bytes, again)
    more = QUICK if quick else ()
    plan = prepared(limited, file, more)
    rows = {each["name"]: each for each in plan["rows"] if each["own"]}
    rounds, order = list[tuple[dict[str, float], dict[str, float]]](), random.Random(0)
    for number in range(1 if quick else ROUNDS):
        rounds.append(train_each(limited, file, order.sample(list(rows), len(rows)), number, more))
    epochs = medians([each for each, _ in rounds])
    if failed := rows.keys() - epochs.keys():
        sys.exit(f"{name}: not ended well: {', '.join(sorted(failed))}")
    models, stages = limited.models(), limited.stages()
    weights = {models[each]["weights"] for each, row in rows.items() if row["exact_epochs"]}
    assert len(weights) == 1, "tables on whole batches ended with other weights"
    waits = [
        {each: seconds + preparing(stages, rows[each]["prepare_seconds"]) for each, seconds in commands.items()}
        for _, commands in rounds
    ]
    found = {"epochs": epochs, "waits": medians(waits), "all_epochs": [each for each, _ in rounds], "all_waits": waits}
    found |= {
        "claimed": setting.claimed,
        "epoch_ratio": claim(setting, epochs),
        "wait_ratio": claim(setting, found["waits"]),
        "plan": whole_waits([plan], waits),
        "of_all": first_of_all({each: row["whole_seconds"] for each, row in rows.items()}, medians(waits)),
        "planned_epochs": {each: row["epoch_seconds"] for each, row in rows.items()},
        "accuracy": {each: model["test_accuracy"] for each, model in models.items()},
    }
    tell(name, found)
    record("payoff", {"setting": name, "scale": "quick" if quick else "full", "rounds": len(rounds)} | found)


def prepared(limited: LimitedHome, file: Path, more: Sequence[str]) -> dict[str, Any]:
    """Builds the graph and the features, plans, and builds the other stages. Returns the values of the plan."""
    document = tomlkit.parse(file.read_text())
    (limited.folder / "common.toml").write_text(tomlkit.dumps({key: document[key] for key in COMMON}))
    plan = dict[str, Any]()
    for part, arguments in {
        "graph": ("build", "common.toml"),
        "plan": ("plan", str(file), "--json"),
        "build": ("build", str(file)),
    }.items():
        row = limited.command(part, *arguments, *more)
        if row["ended"] != "well":
            sys.exit(f"{file.stem}: {part} ended {row['ended']}")
        plan = plan_of(row["said"]) if part == "plan" else plan
    return plan


def preparing(stages: Mapping[str, Mapping[str, Any]], needed: Mapping[str, float]) -> float:
    """Returns the measured seconds of the stages that a plan names."""
    return sum(stages[name]["seconds"] for name in needed)


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns table -> median over all rounds, of tables that ended well in each."""
    names = [name for name in rounds[0] if all(name in each for each in rounds)]
    return {name: round(statistics.median(each[name] for each in rounds), 3) for name in names}


def claim(setting: Setting, seconds: Mapping[str, float]) -> float:
    """Returns the seconds of the fastest table without the claimed technique over those of the fastest claimed one."""
    others = seconds.keys() - {*setting.claimed, *setting.kin}
    best = [min(seconds[name] for name in each if name in seconds) for each in (others, setting.claimed)]
    return round(best[0] / best[1], 3)


def first_of_all(planned: Mapping[str, float], waits: Mapping[str, float]) -> dict[str, Any]:
    """Returns the table of the least planned and of the least measured whole wait, of all tables: a plan takes none of another model."""
    chosen, first = min(planned, key=planned.__getitem__), min(waits, key=waits.__getitem__)
    return {"planned": chosen, "first": first, "right": waits[chosen] <= (1 + TIE) * waits[first]}


def tell(name: str, found: Mapping[str, Any]) -> None:
    """Prints the medians of a setting."""
    for table, seconds in sorted(found["waits"].items(), key=lambda each: each[1]):
        planned = found["planned_epochs"][table]
        print(f"  {table}: {seconds:.1f} s in all, {found['epochs'][table]:.2f} s an epoch ({planned:.2f} planned)")
    ratios = f"{found['epoch_ratio']} in epochs, {found['wait_ratio']} in whole waits"
    print(f"{name}: others take this many times as long as {' or '.join(found['claimed'])}: {ratios}")
    each = found["of_all"]
    verdict = "right" if each["right"] else "WRONG"
    print(
        f"{name}: of all tables {each['planned']} waits least by plan, and {each['first']} did: {verdict}", flush=True
    )


def drawings(rows: Sequence[Mapping[str, Any]]) -> list[ReportFigure]:
    """Returns the figure of the newest full row of each setting: seconds of each table over those of the fastest one."""
    newest = {row["setting"]: row for row in rows if row["scale"] == "full"}
    values = {
        f"{name}: {table}": {
            label: row[key][table] / min(row[key].values())
            for label, key in (("epoch", "epochs"), ("whole wait", "waits"))
        }
        for name in SETTINGS
        if (row := newest.get(name))
        for table in sorted(row["waits"], key=row["waits"].__getitem__)
    }
    if not values:
        return []
    first = ", ".join(f"{min(row['waits'], key=row['waits'].__getitem__)} in {name}" for name, row in newest.items())
    says = f"The bars are medians of five rounds. First in whole waits: {first}."
    label = "times the seconds of the setting's fastest table"
    return [bar_chart("payoff", "Where each technique is first", says, values, label=label, log=True)]
