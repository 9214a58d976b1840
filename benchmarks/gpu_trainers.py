"""Every trainer on a GPU: seconds of an epoch, bytes by link, waits and launches, peak memory against the plan, idle share.

    python -m benchmarks gpu_trainers [--quick] [--parts 30M,400M] [--home FOLDER]

Pipeline files are written, their stages are built (benchmarks/gpu_home.py), and each table is trained by `python -m graphmill.trainers` in
a process of its own with counters around its epochs (benchmarks/gpu_child.py). The tables are the eight techniques with the rows of the
nodes on the device, a tenth of them there, all of them in pinned memory, and on the disk. Model: GraphSAGE of three layers of 256, batches
of 1,000 seeds with 20, 15 and 10 neighbours, 128 float16 features; the full graph has layers of 64, since its rows of all nodes do not fit.

First of all the weights are compared: tables on whole batches in one process end with the same bits, wherever their rows lie, and so do
those with a history. Bytes of the ledger are compared with counted ones: on the simulated accelerators they must be equal, on a GPU both
are told. Rows that a kernel reads over the bus are no copies; a GPU that counts the bytes of its bus has these, too.

The script is made for a machine that is lent by the minute. It ends within `SECONDS`: a table that would begin later is left out, and is
named. Neither Dagster nor DGL is needed. Without a GPU, and with --quick, a graph of the size of the pipeline `showcase` is trained on the
simulated accelerators, whose seconds mean nothing: waits, launches, bytes and memory are counts, and bounds of them are asserted.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import CLASSES, HIDDEN, Size
from benchmarks.gpu_home import TABLES, Prepared, prepare, publish_graph, toml_text
from benchmarks.gpu_trace import waits_of
from benchmarks.limited_home import folder_of
from benchmarks.record import record
from graphmill.assets.building.child import child_environment
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store
from graphmill.kernels.cuda.driver import num_gpus
from graphmill.trainers.devices.logical import open_device

SECONDS = 450
"""Seconds after the start in which no more table begins; one that is running is ended 30 seconds later."""
GRACE = 30
SIZES = {
    "30M": Size(nodes=2_000_000, edges=30_000_000, seeds=50_000, epochs=4),
    "400M": Size(nodes=27_750_000, edges=400_000_000, seeds=300_000, epochs=3),
    "simulated": Size(nodes=150_000, edges=1_500_000, seeds=1_000, epochs=3),
}
SAMPLING: dict[str, Any] = {"fanouts": [20, 15, 10], "batch_size": 1000, "reuse": 1}
SIMULATED: dict[str, Any] = {"fanouts": [10, 10], "batch_size": 250, "reuse": 1}
LARGE = 100_000_000
"""Edges from which on not all tables are trained."""
MEMORY: dict[str, dict[str, Any]] = {
    "device": {"device": "100%", "host": 0, "disk": "20x"},
    "memory": {"device": "10%", "host": "100%", "disk": "20x"},
    "disk": {"device": "10%", "host": "5%", "disk": "20x"},
}
"""File -> its budgets: rows on the device; a tenth of them there, with all in memory; and with few in memory."""


@dataclass(frozen=True)
class Case:
    """One table.

    Attributes:
        trainer: a technique.
        rows: place of the rows of nodes: "device", "cached" (a tenth there, all pinned), "pinned", "disk".
        keys: of the table.
        alike: tables of one word end with the same weights; "" for one of its own.
        big: whether it is trained on the graph of 400M edges.
    """

    trainer: str
    rows: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    alike: str = "batches"
    big: bool = True

    @property
    def name(self) -> str:
        """Name of the table."""
        return f"{self.trainer}-{self.rows}"

    @property
    def waits(self) -> int | None:
        """Most waits of the host for a batch; None for fullgraph, whose batch is a pass."""
        if self.trainer == "fullgraph":
            return None
        drawn, on_disk, parts = (
            self.keys.get("topology") == "device",
            self.rows == "disk",
            "distributed" in self.trainer,
        )
        return waits_of(
            drawn=drawn, found=not (parts or on_disk), lent=on_disk, pruned=self.trainer.startswith("fresh")
        )

    @property
    def file(self) -> str:
        """Name of the pipeline file: of `MEMORY`."""
        return self.rows if self.rows in MEMORY else "memory"

    def table(self, size: Size, hidden: int) -> dict[str, Any]:
        """Returns the `[[train]]` table."""
        common = {
            "name": self.name, "trial": self.name, "trainer": self.trainer, "device": "cuda", "hidden": hidden, "dropout": 0.5,
            "epochs": size.epochs, "eval_every": 0, "accumulate": 1, **PLACES[self.rows],
        }  # fmt: skip
        return common | dict(self.keys)


PLACES: dict[str, dict[str, Any]] = {
    "device": {},
    "cached": {"features": "memory"},
    "pinned": {"features": "memory", "cache": "none"},
    "disk": {"features": "direct", "cache": "none"},
}
"""Place of rows -> keys of a table."""
THERE: dict[str, Any] = {"topology": "device", "eval": "sampled"}
ROLES: dict[str, Any] = {"samplers": 1, "trainers": 1}
WHOLE: dict[str, Any] = {"hidden": 64, "eval": "exact"}
CASES = (
    Case("minibatch", "device", THERE),
    Case("minibatch", "cached", THERE),
    Case("minibatch", "pinned", THERE),
    Case("fresh", "cached", THERE, "history"),
    Case("factored", "device", THERE | {"factored": ROLES}),
    Case("distributed", "device", THERE | {"distributed": {"ranks": 1}}, ""),
    Case("fullgraph", "device", WHOLE | {"fullgraph": {"mode": "device"}}, ""),
    Case("disk", "disk", {"eval": "sampled", "features": "auto", "cache": "auto"}),
    Case("minibatch", "disk", THERE),
    Case("fresh-factored", "cached", THERE | {"fresh-factored": ROLES}, "history", big=False),
    Case("fresh-distributed", "device", THERE | {"fresh-distributed": {"ranks": 1}}, "", big=False),
    Case("factored", "cached", THERE | {"factored": ROLES}, big=False),
    Case("fresh", "pinned", THERE, "history", big=False),
    Case("fullgraph", "pinned", WHOLE | {"features": "memory"}, "", big=False),
)
"""In the order in which they are trained, so that a lent machine that ends early has trained what matters most."""


def main(quick: bool, parts: tuple[str, ...] | None = None, home: Path | None = None) -> None:
    """Trains the tables, prints and records a row for each size."""
    there = num_gpus() > 0
    names = parts or (("30M",) if quick else ("30M", "400M")) if there else ("simulated",)
    began = time.monotonic()
    with folder_of(home, "graphmill-gpu-") as folder:
        for name in names:
            run = Run(folder / name, SIZES[name], "cuda" if there else "simulated", began)
            rows = list(run.rows())
            check(rows, simulated=not there)
            found = {
                "scale": name,
                "device": device_name(),
                "size": vars(SIZES[name]),
                "rows": rows,
                "left_out": run.left_out,
            }
            record("gpu_trainers", found, ("torch", "numpy", "cupy-cuda13x", "cupy-cuda12x"))


def device_name() -> str:
    """Returns the name of the GPU."""
    return torch.cuda.get_device_name() if num_gpus() else "simulated"


class Run:
    """The tables of one size.

    Args:
        folder: gets the pipeline files and the home.
        kind: "cuda", or "simulated".
        began: when the script began, by time.monotonic().
        cases: the tables.

    Attributes:
        left_out: names of the tables for which no time was left.
    """

    def __init__(self, folder: Path, size: Size, kind: str, began: float, cases: Sequence[Case] = CASES):
        self.folder, self.size, self.kind, self.began = folder, size, kind, began
        self.left_out: list[str] = []
        self.cases = [case for case in cases if case.big or size.edges < LARGE]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Builds the artifacts; yields the row of each table, and prints it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        store, files = Store(self.folder / "home"), {}
        started = time.monotonic()
        graph = publish_graph(store, self.size, CLASSES, open_device("cuda" if self.kind == "cuda" else "cpu"))
        if self.kind == "cuda":
            torch.cuda.empty_cache()  # it belongs to the trainings now
        for name in MEMORY:
            path = self.folder / f"{name}.toml"
            path.write_text(self.text(name))
            files[name] = prepare(store, path, graph)
        print(f"prepared in {time.monotonic() - started:.1f} s", flush=True)
        for case in self.cases:
            if self.seconds_left() <= 0:
                self.left_out.append(case.name)
                print(f"{case.name}: left out, no time is left", flush=True)
                continue
            row = self.trained(case, files[case.file])
            print(line_of(row), flush=True)
            yield row

    def seconds_left(self) -> float:
        """Returns the seconds in which a table may begin."""
        return SECONDS - (time.monotonic() - self.began) if self.kind == "cuda" else float("inf")

    def text(self, name: str) -> str:
        """Returns a pipeline file."""
        simulated = self.kind == "simulated"
        graph = {
            "source": "rmat",
            "nodes": self.size.nodes,
            "edges": self.size.edges,
            "features": 128,
            "classes": CLASSES,
        }
        tables = {"name": f"gpu-{name}", "seed": 0, "graph": graph, "memory": MEMORY[name]} | TABLES
        tables["sampling"] = SIMULATED if simulated else SAMPLING
        hidden = 32 if simulated else HIDDEN
        return toml_text(tables, [case.table(self.size, hidden) for case in self.cases if case.file == name])

    def trained(self, case: Case, prepared: Prepared) -> dict[str, Any]:
        """Trains a table in a process of its own and returns its row."""
        inputs = [f"{stage}={version}" for stage, version in prepared.versions.items()]
        places = [str(prepared.path), case.name, str(self.folder / "home"), self.kind]
        command = [sys.executable, "-m", "benchmarks.gpu_child", *places, *inputs]
        # A table that was begun late ends with the script.
        limit = max(GRACE, self.seconds_left() + GRACE) if self.kind == "cuda" else None
        try:
            found = subprocess.run(
                command, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired:
            self.left_out.append(case.name)
            return {"table": case.name, "ended": "late"}
        row = {"table": case.name, "trainer": case.trainer, "features": case.rows, "alike": case.alike}
        row["most_waits"] = case.waits
        if found.returncode:
            return row | {"ended": found.stderr[-2000:]}
        return row | {"ended": "well"} | summary(json.loads(found.stdout.splitlines()[-1]))


def summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a table's row says: counts of the last epoch, seconds of those between it and the first."""
    *epochs, last = found["epochs"]
    seconds = [epoch["seconds"] for epoch in epochs[1:]] or [last["seconds"]]
    median, batches, busy = statistics.median(seconds), last["batches"], last["busy_seconds"]
    crossed = [epoch["bus"] for epoch in epochs[1:] if epoch["bus"]]
    return {
        "epoch_seconds": seconds,
        "batches": batches,
        "ledger": last["ledger"],
        "booked": last["booked"],
        "copied": last["copied"],
        "bus": crossed[-1] if crossed else None,
        "waits": last["waits"] / batches,
        "launches": last["launches"] / batches,
        "kernels": None if last["kernels"] is None else last["kernels"] / batches,
        "idle_ratio": None if busy is None else max(0.0, 1 - busy / median),
        "peak_bytes": found["peak_bytes"],
        "planned_bytes": found["planned_bytes"],
        "weights": found["weights"],
    }


def line_of(row: Mapping[str, Any]) -> str:
    """Returns a row as a line of text."""
    if row["ended"] != "well":
        return f"{row['table']:24} ended: {row['ended']}"
    moved = ", ".join(f"{link} {format_bytes(num)}" for link, num in row["ledger"].items() if num)
    planned = "not planned" if row["planned_bytes"] is None else f"planned {format_bytes(row['planned_bytes'])}"
    idle = "" if row["idle_ratio"] is None else f", idle {row['idle_ratio']:.0%}"
    seconds = statistics.median(row["epoch_seconds"])
    return (
        f"{row['table']:24} epoch {seconds:8.3f} s{idle}; {row['waits']:.1f} waits and {row['launches']:.0f} launches a batch; "
        f"peak {format_bytes(row['peak_bytes'])}, {planned}; {moved}"
    )


def check(rows: Sequence[Mapping[str, Any]], *, simulated: bool) -> None:
    """Compares weights of tables that must be alike, and on simulated accelerators the counts.

    Raises:
        AssertionError: something differs, a table did not end well, or a bound is exceeded.
    """
    well = [row for row in rows if row["ended"] == "well"]
    for word in {row["alike"] for row in well} - {""}:
        weights = {row["table"]: row["weights"] for row in well if row["alike"] == word}
        assert len({*weights.values()}) <= 1, f"weights differ: {weights}"
    bad = {row["table"]: row["ended"] for row in rows if row["ended"] not in ("well", "late")}
    assert not bad, "\n".join(f"{name}: {said}" for name, said in bad.items())
    over = [
        row["table"] for row in well if row["planned_bytes"] is not None and row["peak_bytes"] > row["planned_bytes"]
    ]
    assert not over, f"took more of the device than was planned: {', '.join(over)}"
    if not simulated:
        return
    for row in well:
        copied = {link: row["copied"][link] for link in row["booked"]}
        assert copied == row["booked"], f"{row['table']}: {copied} were copied, {row['booked']} are booked"
        if row["most_waits"] is not None:
            waits = row["waits"] - 1 / row["batches"]  # one for the sum of the losses
            assert waits <= row["most_waits"] + 1e-9, (
                f"{row['table']}: {waits} waits a batch, {row['most_waits']} allowed"
            )
