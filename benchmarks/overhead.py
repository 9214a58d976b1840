"""What each technique costs where it cannot gain: epochs on the graph of the shipped pipeline `showcase`, whose rows are all in memory.

    plain      mini-batches that are drawn while it trains, rows in memory
    cached     rows of hot nodes in the tiers of the device and the host, the others in the mapped file
    stored     batches that were drawn beforehand
    disk       rows of each batch packed on the disk
    factored   a device that samples and one that trains
    ranks      `distributed` with one rank and one part
    fresh      embeddings of earlier steps, which make other weights of fewer rows

Every training has the same batches and two threads. All are opened in one process and take an epoch each in drawn order. Before anything is
timed, their parameters are compared: those of all but `fresh` are equal to the bit. Told are the median seconds of an epoch, of the clock
and of the processor, their ratios to those of `plain`, the bytes that the ledger has of an epoch by link, and the seconds in which the disk
reads those of `disk`. What is left above `plain` is a technique's own work: marks and tiers, digests, lookups, pruning, rows that are kept.
Quick is a tenth of the graph.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
import xxhash

from benchmarks.elsewhere import beside
from benchmarks.record import in_turn, record
from benchmarks.whole_wait import read_in_order
from graphmill.assets.building.child import child_environment
from graphmill.assets.building.stage import Silent
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.store import Store
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.devices.torch_threads import torch_threads
from graphmill.trainers.models.products import own_library, products_of
from graphmill.trainers.recipe.config import TrainTable, model_configs
from graphmill.trainers.recipe.inputs import find_table_inputs
from graphmill.trainers.training.training import RunExecution, Training

SHOWCASE = ROOT / "jobs" / "pipelines" / "showcase.toml"
THREADS, ROUNDS = 2, 9
PLAIN, PRUNED = "plain", "fresh"
TABLES: dict[str, dict[str, Any]] = {
    PLAIN: {"features": "memory", "cache": "none"},
    "cached": {},
    "stored": {"samples": "flat", "features": "memory", "cache": "none"},
    "disk": {"trainer": "disk", "samples": "flat"},
    "factored": {"trainer": "factored", "topology": "device", "factored": {"samplers": 1, "trainers": 1}},
    "ranks": {"trainer": "distributed", "cache": "none"},
    PRUNED: {"trainer": "fresh", "fresh": {"arena": "10%"}},
}
MODEL = {"model": "sage", "hidden": 64, "lr": 0.005, "queue": "96MiB", "threads": THREADS, "epochs": ROUNDS + 2}


def main(quick: bool) -> None:
    """Builds, trains, compares, prints and records."""
    with tempfile.TemporaryDirectory(prefix="graphmill-overhead-") as name:
        folder = Path(name)
        (folder / "overhead.toml").write_text(recipe(quick))
        build = "import sys; from graphmill.jobs.cli import main; sys.exit(main())"
        environment = child_environment({"GRAPHMILL_HOME": str(folder / "home")})
        subprocess.run([sys.executable, "-c", build, "build", "overhead.toml"], cwd=folder, env=environment, check=True)
        child = [sys.executable, "-m", "benchmarks.overhead", str(folder), str(1 if quick else ROUNDS)]
        said, cores = beside(lambda: subprocess.run(child, env=environment, check=True, stdout=subprocess.PIPE).stdout)
        packed = max(
            (folder / "home" / "store").glob("packed_chunks.parts/*/*.npy"), key=lambda path: path.stat().st_size
        )
        disk_rate = packed.stat().st_size / min(read_in_order(packed) for _ in range(3))
    rows = json.loads(said.splitlines()[-1])
    for name, row in rows.items():
        links = ", ".join(f"{link} {num_bytes / 1e6:.0f} MB" for link, num_bytes in row["bytes"].items())
        print(
            f"{name:>9}: {row['seconds']:.3f} s, {row['ratio']:.2f} of plain; {row['processor_seconds']:.3f} s of the "
            f"processor, {row['processor_ratio']:.2f}; {links}"
        )
    least = rows["disk"]["bytes"]["disk"] / disk_rate
    print(f"the disk reads {disk_rate / 1e9:.2f} GB/s in order, so an epoch of `disk` takes {least:.3f} s or more")
    print(f"other processes used {cores:.2f} cores meanwhile")
    row = {"scale": "quick" if quick else "full", "cores_of_others": cores, "disk_rate": round(disk_rate), "rows": rows}
    record("overhead", row)


def recipe(quick: bool) -> str:
    """Returns the text of the shipped pipeline with one part and the tables of this benchmark."""
    found: Any = tomlkit.parse(SHOWCASE.read_text()).unwrap()
    found["partitions"]["parts"] = 1
    found["samples"] = [each for each in found["samples"] if each["name"] == "flat"]
    del found["chunks"]
    if quick:
        found["graph"] |= {name: found["graph"][name] // 10 for name in ("nodes", "edges")}
    found["train"] = [{"name": name, "trial": name} | MODEL | more for name, more in TABLES.items()]
    return tomlkit.dumps(found)


def measured(folder: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """Returns what the epochs of each training took, in this process; raises AssertionError if parameters or counts are not as promised."""
    keep_freed_memory()
    with torch_threads(THREADS), products_of(own_library()):
        trainings = {name: opened(folder, name) for name in TABLES}
        for training in trainings.values():
            epoch(training, 0)
        require_equal(trainings)
        runs = {name: (lambda training=training: timed(training)) for name, training in trainings.items()}
        taken = in_turn(runs, rounds)
        require_equal(trainings)
    whole = {name: [statistics.median(each[i] for each in times) for i in (0, 1)] for name, times in taken.items()}
    return {
        name: {
            "seconds": round(seconds, 4),
            "ratio": round(seconds / whole[PLAIN][0], 3),
            "processor_seconds": round(processor, 4),
            "processor_ratio": round(processor / whole[PLAIN][1], 3),
            "all_seconds": [round(each[0], 4) for each in taken[name]],
            "bytes": {
                link: num_bytes // (rounds + 2)
                for link, num_bytes in trainings[name].run.ledger.bytes_by_link().items()
            },
        }
        for name, (seconds, processor) in whole.items()
    }


def opened(folder: Path, name: str) -> Training:
    """Returns the training of a table."""
    pipeline, store = load_pipeline(str(folder / "overhead.toml"), TrainTable), Store(folder / "home")
    table = next(each for each in pipeline.train if each.name == name)
    found = find_table_inputs(pipeline, table, store, {})
    (config,) = model_configs(table, pipeline.sampling_of(table), pipeline.seed)
    execution = RunExecution(**vars(table.execution), checkpoints=folder / "checkpoints" / name)
    return Training(found.inputs, found.reads, config, execution, "0" * 64, Silent())


def epoch(training: Training, number: int) -> None:
    """Trains an epoch, without evaluation and checkpoints."""
    loop = training.loop
    for done in loop.executor.steps(number, 0):
        if done.last:
            loop.state.position = done.position + 1
            loop._step(done.seeds)  # the loop's own update
    loop.state.epoch, loop.state.position = number + 1, 0


def timed(training: Training) -> tuple[float, float]:
    """Trains the next epoch; returns seconds of the clock and of the processor."""
    began = time.perf_counter(), time.process_time()
    epoch(training, training.loop.state.epoch)
    return time.perf_counter() - began[0], time.process_time() - began[1]


def require_equal(trainings: Mapping[str, Training]) -> None:
    """Raises AssertionError if exact techniques differ in a parameter, or `fresh` has other rows than it pruned and read."""
    weights = {name: digest(training) for name, training in trainings.items() if name != PRUNED}
    assert len({*weights.values()}) == 1, f"parameters differ: {weights}"
    plain, pruned = (trainings[name].run.ledger for name in (PLAIN, PRUNED))
    assert plain.counted("inputs", 0) == pruned.counted("inputs", 0) + pruned.counted("pruned_nodes", 0)


def digest(training: Training) -> str:
    """Returns a digest of the parameters."""
    return xxhash.xxh3_64_hexdigest(
        b"".join(each.detach().numpy().tobytes() for each in training.run.model.parameters())
    )


if __name__ == "__main__":
    print(json.dumps(measured(Path(sys.argv[1]), int(sys.argv[2]))))
