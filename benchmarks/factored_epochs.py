"""Factored epochs on this machine: overlap, epochs by system and model, stages, memory and preprocessing (FGNN, Tables 4 to 6, Figure 3).

    python -m benchmarks.factored_epochs overlap         one sampler and one trainer, against sleeping stages of the same lengths
    python -m benchmarks.factored_epochs epochs          Table 4: seconds per epoch by system and model
    python -m benchmarks.factored_epochs stages          Table 5, Figure 3 and Table 6: stages, memory, what comes before an epoch

Without a word it is all three. The weights of all systems are compared before anything is timed. A model is trained anew for every
measurement, and the seconds are those of its last epoch.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import factored_overlap
from benchmarks.command_line import asked_for
from benchmarks.elsewhere import beside
from benchmarks.factored_runs import CACHE, Runs, epoch_seconds, weights
from benchmarks.record import record
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.store import Store
from graphmill.trainers.devices.malloc import keep_freed_memory
from graphmill.trainers.techniques.factored.settings import FactoredSettings

PARTS = ("overlap", "epochs", "stages")
COLUMNS = {"features": 128, "classes": 16, "valid_ratio": 0.01}
QUICK: dict[str, Any] = {"nodes": 40_000, "edges": 400_000, "train_ratio": 0.1} | COLUMNS
FULL: dict[str, Any] = {"nodes": 200_000, "edges": 2_000_000, "train_ratio": 0.1} | COLUMNS
OVERLAP: dict[str, Any] = {"nodes": 200_000, "edges": 2_000_000, "train_ratio": 0.8} | COLUMNS | {"features": 256}
SAMPLING = SamplingConfig(fanouts=(15, 10), batch_size=500)
WALKS = SamplingConfig(method="random_walk", fanouts=(5, 5), batch_size=500)
GBPS = 1.0

SYSTEMS: dict[str, dict[str, Any]] = {
    "minibatch": {"samplers": 1},
    "time-shared, 2 devices": {"trainer": "factored", "settings": FactoredSettings(sharing="time", trainers=2)},
    "1 sampler, 1 trainer": factored_overlap.SPLIT,
    "the same, switching": {"trainer": "factored", "settings": FactoredSettings(samplers=1, trainers=1)},
    "1 device alternating": {"trainer": "factored", "settings": FactoredSettings(samplers=1, devices=1)},
}
MODELS: dict[str, dict[str, Any]] = {"gcn": {}, "sage": {}, "gat": {"heads": 2}, "pinsage": {}}
"""The paper has GCN, GraphSAGE and PinSAGE, whose neighbours random walks draw."""


def main(quick: bool, parts: tuple[str, ...] = PARTS) -> None:
    """Measures the parts that are asked for and records one row."""
    keep_freed_memory()
    rounds = 1 if quick else 3
    row: dict[str, Any] = {"scale": "quick" if quick else "full", "gbps": GBPS, "cache": CACHE}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        if "overlap" in parts:
            runs = Runs(store, OVERLAP, factored_overlap.SAMPLING)
            row["overlap"] = factored_overlap.overlaps(runs, rounds)
        if {"epochs", "stages"} & set(parts):
            found, cores = beside(lambda: whole_epochs(store, quick, parts, rounds))
            row |= found | {"cores_of_others": cores}
            print(f"other processes used {cores:.2f} cores meanwhile")
    record("factored_epochs", row)


def whole_epochs(store: Store, quick: bool, parts: tuple[str, ...], rounds: int) -> dict[str, Any]:
    """Measures epochs, and what they consist of."""
    sampled, walked = (Runs(store, QUICK if quick else FULL, sampling) for sampling in (SAMPLING, WALKS))
    by_model = {model: walked if model == "pinsage" else sampled for model in MODELS}
    found: dict[str, Any] = {"epochs": epochs(by_model, rounds)} if "epochs" in parts else {}
    if "stages" in parts:
        found |= {"preprocessing": preprocessing(sampled), "stages": stages(by_model), "memory": memory(sampled)}
    return found


def epochs(runs: dict[str, Runs], rounds: int) -> list[dict[str, Any]]:
    """Measures every system on every model, in drawn order (Table 4), and prints the medians.

    Args:
        runs: trainings by model.
        rounds: how often each is measured.
    """
    found, draw = [], random.Random(0)
    print(f"\nseconds per epoch, 2 batches per update, {GBPS:g} GB/s per device (FGNN, Table 4)")
    for model, options in MODELS.items():
        seconds: dict[str, list[float]] = {name: [] for name in SYSTEMS}
        digests = set()
        for _ in range(rounds):
            for name in draw.sample(list(SYSTEMS), len(SYSTEMS)):
                trained = runs[model].train(SYSTEMS[name], model=model, link=f"{GBPS} GB/s", **options)
                digests.add(weights(trained))
                seconds[name].append(epoch_seconds(trained))
        assert len(digests) == 1, f"the systems end with different weights of {model}"
        row = {name: round(statistics.median(each), 3) for name, each in seconds.items()}
        found.append({"model": model, "seconds": row})
        print(f"{model:8}" + ", ".join(f"{name} {value:.3f}" for name, value in row.items()))
    return found


def stages(runs: dict[str, Runs]) -> list[dict[str, Any]]:
    """Prints sampling, marking, copying, extracting and training of an epoch by model (Table 5)."""
    found = []
    print("\nseconds of all executors in an epoch by stage (FGNN, Table 5): 1 sampler, 1 trainer")
    for model, options in MODELS.items():
        trained = runs[model].train(SYSTEMS["1 sampler, 1 trainer"], model=model, link=f"{GBPS} GB/s", **options)
        seconds = trained.run_record()["executors"]["stage_seconds"]
        found.append({"model": model} | seconds)
        print(f"{model:8}" + ", ".join(f"{stage} {value:.3f}" for stage, value in seconds.items()))
    return found


def memory(runs: Runs) -> dict[str, Any]:
    """Prints what each device holds at most, factored and time-shared, counted under a bound on its work (Figure 3)."""
    print("\npeak bytes by device and purpose (FGNN, Figure 3)")
    found = {}
    for name in ("1 sampler, 1 trainer", "time-shared, 2 devices"):
        trained = runs.train(SYSTEMS[name], workspace="2GiB", link=f"{GBPS} GB/s")
        found[name] = trained.run_record()["executors"]["peak_bytes"]
        for device, peaks in found[name].items():
            print(f"{name:24} {device:10}" + ", ".join(f"{purpose} {format_bytes(n)}" for purpose, n in peaks.items()))
    return found


def preprocessing(runs: Runs) -> dict[str, float]:
    """Prints what comes before an epoch (Table 6)."""
    print(
        "\nseconds before an epoch (FGNN, Table 6): " + ", ".join(f"{name} {n:.3f}" for name, n in runs.seconds.items())
    )
    return runs.seconds


if __name__ == "__main__":
    main(*asked_for(PARTS, "part"))
