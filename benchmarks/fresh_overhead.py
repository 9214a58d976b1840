"""Sampling beside training, and the cost of keeping embeddings (FreshGNN, Figures 15a and 16b).

    generator   seconds of sampling the batches of an epoch, by us and by DGL 1.1.3, on one thread and on two, in drawn order. Before:
                both take min(degree, fan-out) neighbours of every node, and all are edges of the graph
    overhead    median seconds, in drawn order, of reading graph and features from the disk, of presampling (the only preprocessing), and
                of an epoch of plain mini-batches and of `fresh`; of that, lookups, pruning with its transposes, and the policy (norms
                of the gradients, admission, eviction, copies of rows). Checked: rows kept and pruned add up to the rows of plain
                sampling, and every training of one kind has the same counts

R-MAT of 2M nodes and 33M edges, 128 columns, GraphSAGE of three layers, hidden 256, [20, 15, 10], 100 batches of 100 per epoch. Few nodes
have labels, so evaluations take no time. Each part leaves a row of its own:

    python -m benchmarks.fresh_overhead generator
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.charts import bar_chart
from benchmarks.command_line import asked_for
from benchmarks.disk_inputs import drop_pages, home
from benchmarks.elsewhere import beside
from benchmarks.fresh_graphs import SKEW
from benchmarks.record import in_turn, interleave, record
from benchmarks.sampling import Field, check
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Silent
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.recipe.config import ModelConfig, TrainTable
from graphmill.trainers.record.ledger import WAIT
from graphmill.trainers.techniques.fresh.settings import FreshSettings
from graphmill.trainers.training.training import RunExecution, Training
from tests.graphs import GraphArtifacts, build_graph

LABELLED: dict[str, Any] = {"train_ratio": 0.91, "valid_ratio": 0.045, "undirected": True, "classes": 16}
FULL: dict[str, Any] = {"nodes": 2_000_000, "edges": 16_500_000, "features": 128, "labelled": 0.0055} | LABELLED | SKEW
QUICK: dict[str, Any] = {"nodes": 100_000, "edges": 800_000, "features": 128, "labelled": 0.011} | LABELLED | SKEW
FANOUTS = (20, 15, 10)
SAMPLING = SamplingConfig(fanouts=FANOUTS, batch_size=100)
SETTINGS = FreshSettings(arena="1.1%", t_stale=60)
PHASES = {
    "train": "forward, backward",
    "sample": "sampling",
    "gather": "gathering",
    "lookup": "lookups",
    "prune": "pruning",
    "history": "policy and update",
    "update": "optimiser",
}
"""Phase of an epoch -> its name in the figure."""
PARTS = ("generator", "overhead")
SEED, THREADS, EPOCHS, READ_BYTES = 0, 2, 2, 8 << 20
ROUNDS = 5
"""Measurements of which the median is told, after one that is not counted."""


def main(quick: bool, parts: Sequence[str] = PARTS) -> None:
    """Measures some parts and records a row for each."""
    keep_freed_memory()
    with home() as store:
        graph = build_graph(store, config_class("rmat")(**(QUICK if quick else FULL)))
        for part in parts:
            measure = {"generator": generator, "overhead": overhead}[part]
            found, others = beside(lambda measure=measure: measure(graph, quick))
            scale = "quick" if quick else "full"
            print(f"{part}: {found}; other processes used {others:.2f} cores", flush=True)
            packages = ("torch", "numpy", "dgl")
            record("fresh_overhead", {"part": part, "scale": scale, "cores_of_others": others} | found, packages)


def generator(graph: GraphArtifacts, quick: bool) -> dict[str, Any]:
    """Returns the seconds of sampling an epoch by sampler and threads."""
    import dgl
    import torch

    opened = graph.open()
    batches = list(EpochPlan(np.array(opened.train_ids), SAMPLING.batch_size, seed=SEED).batches(0))
    fanouts, wide = FANOUTS, [torch.from_numpy(np.array(each.seeds, np.int64)) for each in batches]
    theirs = dgl.dataloading.NeighborSampler(list(reversed(fanouts)), fused=True)
    with tempfile.TemporaryDirectory() as folder:
        field = Field(np.array(opened.topology.indptr), np.array(opened.topology.indices), Path(folder))
        ours = {threads: Sampler(field.narrow, fanouts, seed=SEED, threads=threads) for threads in (1, THREADS)}
        check(field, fanouts, theirs, ours[1], wide[0].numpy())

        def by_dgl(threads: int) -> Callable[[], None]:
            def sample() -> None:
                torch.set_num_threads(threads)
                dgl.utils.set_num_threads(threads)
                for seeds in wide:
                    theirs.sample_blocks(field.dgl_graph, seeds)

            return sample

        def by_us(threads: int) -> Callable[[], object]:
            return lambda: [ours[threads].sample(each.key, each.seeds, transpose="none") for each in batches]

        runs = {f"ours {threads}": by_us(threads) for threads in ours}
        runs |= {f"dgl {threads}": by_dgl(threads) for threads in ours}
        seconds = interleave(runs, 1 if quick else 3)
    medians = {name: round(statistics.median(each), 4) for name, each in seconds.items()}
    return {"batches": len(batches), "medians": medians, "seconds": seconds}


def overhead(graph: GraphArtifacts, quick: bool) -> dict[str, Any]:
    """Returns the seconds of reading, presampling and an epoch, those of a `fresh` epoch by phase, and the rows of both epochs."""
    paths = [path for each in graph for path in sorted(each.path.iterdir())]
    config = hotness_config(HotnessTable(layers="inputs"), SAMPLING, SEED)

    def presample(folder: Path) -> Artifact:
        return materialize(Store(folder), HOTNESS, config, Threads(threads=THREADS), {"graph": graph.graph})

    def read(_: Path) -> None:
        _read(paths)

    with tempfile.TemporaryDirectory() as folder:
        hotness = presample(Path(folder))
        runs: dict[str, Callable[[], dict[str, Any]]] = {
            "disk to memory": lambda: _once(read, before=lambda: [drop_pages(each) for each in graph]),
            "presampling": lambda: _once(presample),
            "minibatch": lambda: _train(graph, None),
            "fresh": lambda: _train(graph, hotness),
        }
        found = in_turn(runs, 1 if quick else ROUNDS)
    counts = [
        (plain["counts"], fresh["counts"]) for plain, fresh in zip(found["minibatch"], found["fresh"], strict=True)
    ]
    for plain, fresh in counts:
        assert plain["inputs", 0] == fresh["inputs", 0] + fresh["pruned_nodes", 0], "rows are lost or come twice"
    assert all(each == counts[0] for each in counts), "the same training had other rows"
    plain, fresh = counts[0]
    row: dict[str, Any] = {"bytes": sum(path.stat().st_size for path in paths), "rounds": len(counts)}
    row["rows_left"] = round(fresh["inputs", 0] / plain["inputs", 0], 4)
    row |= {name: median_of(found[name])["seconds"] for name in ("disk to memory", "presampling")}
    row |= {name: median_of(found[name]) | {"batches": found[name][0]["batches"]} for name in ("minibatch", "fresh")}
    return row | {"seconds": {name: [round(each["seconds"], 4) for each in rows] for name, rows in found.items()}}


def _once(call: Callable[[Path], object], before: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Returns the seconds of a call, which gets an empty folder."""
    before()
    with tempfile.TemporaryDirectory() as folder:
        return {"seconds": _timed(lambda: call(Path(folder)))[0]}


def median_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the median seconds of repeated measurements, and the median of each phase if they have phases."""
    found: dict[str, Any] = {"seconds": round(statistics.median(row["seconds"] for row in rows), 4)}
    if "phases" in rows[0]:
        phases = rows[0]["phases"]
        found["phases"] = {name: round(statistics.median(row["phases"][name] for row in rows), 4) for name in phases}
    return found


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = call()
    return time.perf_counter() - started, found


def _read(paths: Sequence[Path]) -> None:
    """Reads files to their ends, once."""
    space = bytearray(READ_BYTES)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(space):
                pass


def _train(graph: GraphArtifacts, hotness: Artifact | None) -> dict[str, Any]:
    """Trains anew, `fresh` if hotness is given. Returns seconds and phases of the last epoch, and the counts of all epochs."""
    trainer: dict[str, Any] = (
        {"trainer": "minibatch"} if hotness is None else {"trainer": "fresh", "settings": SETTINGS}
    )
    table = TrainTable(
        name="timed", layers=3, hidden=256, epochs=EPOCHS, features="memory", eval="sampled", eval_every=EPOCHS, threads=THREADS,
        **trainer,
    )  # fmt: skip
    semantic = ModelConfig(seed=SEED, train=table.config, sampling=SAMPLING)
    inputs = graph.inputs | ({} if hotness is None else {"hotness": hotness})
    with tempfile.TemporaryDirectory() as folder:
        execution = RunExecution(**vars(table.execution), checkpoints=Path(folder) / "checkpoints")
        training = Training(inputs, {}, semantic, execution, "0" * 64, Silent())
        history = None if hotness is None else training.loop.executor.history  # pyright: ignore[reportAttributeAccessIssue]
        looked_up = [0.0] if history is None else _clocked(history, "slots")
        training.train()
    record, batches = training.run.timeline.record, training.run.plan.num_batches
    counts = Counter({(row["name"], row["layer"]): row["n"] for row in training.run.ledger.rows()["counts"]})
    found = {"seconds": record["seconds"], "phases": phases(record["busy_seconds"], sum(looked_up[-batches:]))}
    return found | {"batches": batches, "counts": counts}


def _clocked(owner: Any, name: str) -> list[float]:
    """Puts a clock around a method, and returns the list that gets the seconds of each call."""
    method, seconds = getattr(owner, name), []

    def clocked(*given: Any) -> Any:
        taken, found = _timed(lambda: method(*given))
        seconds.append(taken)
        return found

    setattr(owner, name, clocked)
    return seconds


def phases(busy: Mapping[str, Mapping[str, float]], looked_up: float) -> dict[str, float]:
    """Returns the seconds of an epoch by phase.

    Args:
        busy: seconds by lane and phase, as a time-line records them.
        looked_up: seconds of lookups, which are a part of pruning.
    """
    found: dict[str, float] = defaultdict(float)
    for sums in busy.values():
        for phase, seconds in sums.items():
            if phase != WAIT:
                found[phase] += seconds
    if looked_up:
        found["lookup"] = looked_up
        found["prune"] -= looked_up
    return {name: round(seconds, 4) for name, seconds in found.items()}


def drawings(rows: Sequence[dict[str, Any]]) -> list[ReportFigure]:
    """Draws FreshGNN's Figures 15a and 16b."""
    last = {row["part"]: row for row in rows if row["scale"] == "full"}
    sampled, spent = last["generator"]["medians"], last["overhead"]
    says = "R-MAT of 2M nodes and 33M edges, 100 batches of 100, [20, 15, 10]. A bar is the time for all batches of an epoch."
    values = {
        f"{threads} thread{'s' * (threads > 1)}": {
            "ours": sampled[f"ours {threads}"],
            "DGL 1.1.3": sampled[f"dgl {threads}"],
        }
        for threads in (1, THREADS)
    }
    values["training, for comparison"] = {"epoch of fresh": spent["fresh"]["seconds"]}
    found = [bar_chart("fresh-sampling", "Sampling beside a training epoch", says, values, label="seconds per epoch")]
    once = {"disk to memory, once": spent["disk to memory"], "presampling, once": spent["presampling"]}
    named = once | {f"epoch of {name}": spent[name]["seconds"] for name in ("minibatch", "fresh")}
    parts = spent["fresh"]["phases"]
    named |= {f"of it, {label}": parts[phase] for phase, label in PHASES.items()}
    says = "The same graph, 128 columns, GraphSAGE of three layers, hidden 256, two threads. A bar is a step of a training from memory."
    bars = {name: {"seconds": seconds} for name, seconds in named.items()}
    found.append(bar_chart("fresh-overhead", "What embeddings of earlier steps cost", says, bars, label="seconds"))
    return found


if __name__ == "__main__":
    main(*asked_for(PARTS, "part"))
