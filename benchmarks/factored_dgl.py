"""Stages and epochs of DGL 1.1.3 beside factored training, on one device and on two (FGNN, Tables 1, 4 and 5, Figure 16b).

    python -m benchmarks factored_dgl
    python -m benchmarks.factored_dgl sage [--quick]

The graph, batches, widths and link are those of benchmarks/factored_epochs.py, and all of it is in memory. A device is a thread of the CPU
that may hold 20 % of the feature bytes and is reached over a link of 1 GB/s. One that samples has the topology in the same memory, which
leaves less for the cache. DGL has no cache, so all its rows cross the link; with two devices it has a replica on each, as `torchrun` starts
them. Both sides keep freed memory. A device samples no faster here than the host: what Table 1 can show is the cache that the graph costs.

Equality first: logits and gradients of the same parameters on the same blocks; the weights of all our systems, to the bit; without a cache
we and DGL need as many rows and edges, but for the draw.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks.charts import bar_chart
from benchmarks.command_line import asked_for
from benchmarks.elsewhere import beside
from benchmarks.factored_epochs import COLUMNS, FULL, GBPS, SAMPLING, SYSTEMS
from benchmarks.factored_overlap import ALONE
from benchmarks.factored_runs import CACHE, Runs, epoch_seconds, weights
from benchmarks.record import in_turn, record
from benchmarks.rival_process import RivalProcess, interpreter, spec_of
from graphmill.assets.figures.style import SERIES
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.plots import stacked
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.recipe.config import TrainConfig
from tests.graphs import GraphArtifacts

QUICK: dict[str, Any] = {"nodes": 20_000, "edges": 200_000, "train_ratio": 0.1} | COLUMNS
MODELS: dict[str, dict[str, Any]] = {"sage": {}, "gat": {"heads": 2}}
"""Models that DGL's layers compute from a sampled block as ours do."""
HIDDEN, ACCUMULATE = 64, 2
ROUNDS = {"sage": 3, "gat": 2}
STAGES = ("sample", "extract", "train")
ONE: dict[str, dict[str, Any] | None] = {
    "DGL": None,
    "no cache": ALONE | {"topology": "host", "cache": "none"},
    "cache": ALONE | {"topology": "host"},
    "graph on device": ALONE | {"cache": "none"},
    "graph and cache": ALONE,
    "alternating": SYSTEMS["1 device alternating"],
}
TWO: dict[str, dict[str, Any] | None] = {
    "DGL": None,
    "shared in time": SYSTEMS["time-shared, 2 devices"],
    "1 sampler, 1 trainer": SYSTEMS["1 sampler, 1 trainer"],
    "the same, switching": SYSTEMS["the same, switching"],
}
SYSTEMS_BY_DEVICES = {1: ONE, 2: TWO}
"""Devices -> system -> options of the train table; None is DGL."""
SAME = 0.02
"""Largest relative difference of rows and edges that different draws of an epoch may have."""


def main(quick: bool, models: Sequence[str] = tuple(MODELS)) -> None:
    """Measures the models and records a row for each."""
    keep_freed_memory()
    torch.set_num_threads(1)
    if interpreter("dgl") is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Store(Path(folder)), QUICK if quick else FULL, SAMPLING)
        for model in models:
            found, cores = beside(lambda model=model: measure(runs, model, 1 if quick else ROUNDS[model]))
            row = {
                "scale": "quick" if quick else "full",
                "gbps": GBPS,
                "device": CACHE,
                "graph": QUICK if quick else FULL,
            }
            record("factored_dgl", row | {"model": model, "cores_of_others": cores} | found, ("torch", "numpy", "dgl"))


def measure(runs: Runs, model: str, rounds: int) -> dict[str, Any]:
    """Returns the medians of every system on one device and on two, measured in drawn order."""
    options = MODELS[model]
    graph = GraphArtifacts(runs.inputs["graph"], runs.inputs["features"])
    config = TrainConfig(model=model, layers=len(SAMPLING.fanouts), hidden=HIDDEN, threads=1, **options)
    spec = spec_of(graph, config, SAMPLING.fanouts, SAMPLING.batch_size)
    spec |= {"system": "dgl", "link_gbps": GBPS, "accumulate": ACCUMULATE}
    with ExitStack() as opened:
        systems: dict[str, Callable[[], dict[str, Any]]] = {}
        errors = {}
        for devices, named in SYSTEMS_BY_DEVICES.items():
            rival = opened.enter_context(DglReplicas(spec, devices))
            errors[devices] = rival.compare(graph, config)
            for name, system in named.items():
                key = f"{devices}: {name}"
                ours = lambda system=system: our_epoch(runs, model, system, options)  # noqa: E731
                systems[key] = rival.epoch if system is None else ours
        rows = in_turn(systems, rounds)
    check(rows, ("rows", "bytes") if model == "gat" else ("rows", "bytes", "edges"))
    found = {name: medians(each) for name, each in rows.items()}
    show(model, found)
    return {"systems": found, "error": max(errors.values())}


class DglReplicas:
    """DGL on one device or several: a process of one thread for each.

    Args:
        spec: the settings of a rival.
        devices: number of replicas.
    """

    def __init__(self, spec: Mapping[str, Any], devices: int):
        self._opened, self._folder, self.epochs = ExitStack(), tempfile.TemporaryDirectory(), 0
        replica = {"ranks": devices, "meeting": str(Path(self._folder.name) / "meeting")}
        python = interpreter("dgl")
        assert python is not None
        self.processes = [
            self._opened.enter_context(
                RivalProcess(python, dict(spec) | replica | {"rank": rank}, True, "benchmarks.dgl_stages")
            )
            for rank in range(devices)
        ]

    def __enter__(self) -> DglReplicas:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
        self._folder.cleanup()

    def compare(self, graph: GraphArtifacts, config: TrainConfig) -> float:
        """Gives all replicas the parameters of our model; see `RivalProcess.compare`."""
        return max(process.compare(graph, config) for process in self.processes)

    def epoch(self) -> dict[str, Any]:
        """Trains an epoch. Returns the seconds of the slowest replica, and the sums of their stages and counts."""
        self.epochs += 1
        with ThreadPoolExecutor(len(self.processes)) as pool:
            answers = list(pool.map(lambda process: process.ask("stages", epoch=self.epochs), self.processes))
        return summed(answers)


def summed(answers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the longest seconds of replicas, and the sums of everything else that each told."""
    found = {name: sum(each[name] for each in answers) for name in answers[0]}
    return found | {"seconds": max(each["seconds"] for each in answers)}


def our_epoch(runs: Runs, model: str, system: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Trains anew. Returns seconds and stages of the last epoch, and the bytes, rows and edges of an epoch."""
    common = {"hidden": HIDDEN, "accumulate": ACCUMULATE, "link": f"{GBPS} GB/s"}
    trained = runs.train(system, model=model, **common, **options)
    seconds = trained.run_record()["executors"]["stage_seconds"]
    told = {"seconds": epoch_seconds(trained), "weights": weights(trained)} | counts(trained)
    return told | {stage: seconds[stage] for stage in ("mark", "copy", *STAGES)}


def counts(trained: Artifact) -> dict[str, float]:
    """Returns input rows, edges, and feature bytes over the link of an epoch, from the ledger of a training."""
    ledger, epochs = json.loads(trained.file("ledger.json").read_text()), trained.config["train"]["epochs"]
    moved = sum(row["moved_bytes"] for row in ledger["moves"] if (row["link"], row["kind"]) == ("h2d", "feature"))
    rows = sum(row["n"] for row in ledger["counts"] if (row["name"], row["layer"]) == ("inputs", 0))
    edges = sum(row["n"] for row in ledger["counts"] if row["name"] == "edges")
    return {"bytes": moved / epochs, "rows": rows / epochs, "edges": edges / epochs}


def check(rows: Mapping[str, Sequence[Mapping[str, Any]]], counted: Sequence[str]) -> None:
    """Compares weights, and what systems without a cache need.

    Args:
        rows: rows by system.
        counted: counts to compare; DGL's attention needs an edge from each node to itself, which ours has without one.

    Raises:
        AssertionError: weights of ours differ, or counts differ by more than two epochs of one sampler would.
    """
    ours = {row["weights"] for each in rows.values() for row in each if "weights" in row}
    assert len(ours) == 1, "our systems end with different weights"
    wanted, found = rows["1: no cache"][-1], rows["1: DGL"][-1]
    for name in counted:
        assert abs(found[name] / wanted[name] - 1) < SAME, (name, found[name], wanted[name])


def medians(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the median of every number."""
    return {
        name: round(statistics.median(row[name] for row in rows), 4)
        for name, value in rows[0].items()
        if not isinstance(value, str)
    }


def show(model: str, found: Mapping[str, Mapping[str, float]]) -> None:
    """Prints seconds by stage, and the MB that cross the link."""
    print(f"\n{model}: seconds of an epoch and of its stages; MB over the link")
    for name, row in found.items():
        stages = ", ".join(f"{stage} {row[stage]:.3f}" for stage in STAGES)
        cores = f", {row['cores']:.2f} cores" if "cores" in row else ""
        print(f"{name:26} {row['seconds']:.3f} = {stages}; {row['bytes'] / 1e6:.1f} MB{cores}")


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws the stages of an epoch on one device, and epochs on one and two (FGNN, Tables 1 and 4, Figure 16b)."""
    last = {row["model"]: row["systems"] for row in rows if row["scale"] == "full"}
    says = "R-MAT of 200,000 nodes, [15, 10], 128 columns, a link of 1 GB/s, a device of 20 % of the feature bytes. A bar for each system."
    colours = dict(zip(STAGES, SERIES, strict=False))
    found = []
    for model in last:
        values = {name: last[model][f"1: {name}"] for name in ONE if name != "alternating"}
        parts = {name: {stage: row[stage] for stage in STAGES} for name, row in values.items()}
        title = f"Stages of an epoch of {model} on one device"
        found.append(stacked(f"fgnn-stages-{model}", title, says, parts, colours, "seconds"))
    for devices, names in ((1, ("DGL", "alternating")), (2, tuple(TWO))):
        epochs = {model: {name: last[model][f"{devices}: {name}"]["seconds"] for name in names} for model in last}
        title = "Epochs on one device" if devices == 1 else "Epochs on two devices"
        found.append(bar_chart(f"fgnn-epochs-{devices}", title, says, epochs, label="seconds per epoch"))
    return [each for each in found if each is not None]


if __name__ == "__main__":
    main(*asked_for(tuple(MODELS), "model"))
