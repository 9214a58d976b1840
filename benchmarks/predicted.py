"""What `graphmill simulate cluster` says of the big run, against what that run measured: seconds, stored bytes and memory.

    python -m benchmarks big; python -m benchmarks predicted

Reads benchmarks/results/big.jsonl and prints a Markdown table: for each step the number that was said over the one that was measured, the
least and the most of all scales, of each the last row. The machine is the one of that run: 2 cores, the memory that its control group
allowed, a disk that gave single rows of a table at 0.3 GB/s and files in order at 1.3 GB/s. Of the 123,904 input rows that fan-outs of 10
and 10 allow a batch of 1,024, its batches had about 38 %: `minibatch` read 43,000 pages a batch beside what its cache had. An epoch counts
with its fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.big import QUEUE
from benchmarks.growth import last_rows
from benchmarks.record import RESULTS
from graphmill.jobs.scaling.cluster import ClusterWork, Machines, cached_bytes
from graphmill.jobs.scaling.simulation import simulate_cluster

DISTINCT = 0.38
HIDDEN, EPOCHS, TRAIN_SHARE = 128, 2, 0.014 * 0.78
DISK_BYTES, DISK_RATE, PAGES_RATE = 1 << 42, 1.3e9, 0.3e9 / 4096

CACHED = 0.09
"""Share of the features that the caches of that run held; those of the simulated machine take a share of its memory."""
SHARED = ("distributed",)
"""Trainers whose memory is not compared: two ranks had one machine there, and each has its own here."""


class Compared(NamedTuple):
    """One number of the big run.

    Attributes:
        scale, step, what: its row, its stage or trainer, and "seconds", "stored" or "memory".
        low, high: what was said: a range of seconds, else a number twice.
        measured: what was measured.
    """

    scale: float
    step: str
    what: str
    low: float
    high: float
    measured: float


def main(quick: bool) -> None:
    """Prints the table."""
    rows = last_rows((RESULTS / "big.jsonl").read_text())
    print("| step | scales | seconds, at best | seconds, at most | stored | memory |\n|---|---|---|---|---|---|")
    found = [each for row in rows.values() for each in compared(row)]
    for step in dict.fromkeys(each.step for each in found):
        of_step = [each for each in found if each.step == step]
        cells = [
            ratios(of_step, *what)
            for what in (("seconds", "low"), ("seconds", "high"), ("stored", "high"), ("memory", "high"))
        ]
        print(f"| `{step}` | {len({each.scale for each in of_step})} | {' | '.join(cells)} |")


def ratios(found: Sequence[Compared], what: str, bound: str) -> str:
    """Returns the least and the most of what was said over what was measured; "" without such a number."""
    each = sorted(getattr(one, bound) / one.measured for one in found if one.what == what)
    if not each:
        return ""
    low, high = f"{each[0]:.2f}", f"{each[-1]:.2f}"
    return low if low == high else f"{low} to {high}"


def setting_of(row: dict[str, Any]) -> tuple[ClusterWork, Machines]:
    """Returns what a row of the big run trained, and its machine."""
    machine = Machines(
        count=1, cores=2, memory_bytes=row["limit_bytes"], disk_bytes=DISK_BYTES, disk_rate=DISK_RATE,
        pages_rate=PAGES_RATE, network_rate=1e9,
    )  # fmt: skip
    how: Any = {"features": 128, "train_share": TRAIN_SHARE, "hidden": HIDDEN, "epochs": EPOCHS, "queue": QUEUE}
    return ClusterWork(**row["size"], **how), machine


def compared(row: dict[str, Any]) -> Iterator[Compared]:
    """Yields the numbers of a row that the simulation says something about."""
    (work, machine), scale = setting_of(row), row["scale"]
    found = simulate_cluster(work, machine, DISTINCT)
    for stage in found.stages:
        if stage.name in row["stages"]:
            measured = row["stages"][stage.name]
            yield Compared(scale, stage.name, "seconds", stage.best_seconds, stage.most_seconds, measured["seconds"])
            stored = stage.stored_bytes
            yield Compared(scale, stage.name, "stored", stored, stored, measured["stored_bytes"])
    for each in found.trainers:
        if each.name in row["models"]:
            fastest = min(row["models"][each.name]["epoch_seconds"])
            yield Compared(scale, each.name, "seconds", each.seconds["cores"], each.epoch_seconds, fastest)
            if each.name not in SHARED:
                cached = int(CACHED * work.nodes * work.row_bytes)
                said = each.memory_bytes - cached_bytes(machine, work.row_bytes) + cached
                yield Compared(scale, each.name, "memory", said, said, row["commands"][each.name]["anonymous_bytes"])
