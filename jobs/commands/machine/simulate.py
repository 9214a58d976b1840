"""`graphmill simulate`: how long an epoch takes for every split of devices into samplers and trainers.

The paper: FGNN, section 5.3, Figures 13, 14 and 16a.

Stage times are given, or those of a trained model whose devices were split. Beside the simulated best stands the split that the paper's
formula gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.trainers.techniques.factored.simulator.allocation import Allocation, search
from graphmill.trainers.techniques.factored.simulator.simulate import simulate, time_shared
from graphmill.trainers.techniques.factored.simulator.workload import Workload


def measured_workload(model: Artifact) -> dict[str, Any]:
    """Returns stage times of a model's last epoch, its number of batches, batches per step group, and updates that weights may lack.

    Raises:
        InputError: its devices were not split, so it lacks these times.
    """
    record = model.run_record().get("executors") or {}
    sampled, seconds = sum((record.get("sampled_by") or {}).values()), record.get("stage_seconds") or {}
    trained = sum((record.get("trained_by") or {}).values())
    if not (sampled and trained):
        raise InputError(
            f"{model.label} was not trained by samplers and trainers",
            "give a model of such a train table, or the times with --sample and --train",
        )
    train = model.config["train"]
    return {
        # A run that went on inside its last epoch has sampled less than all of it.
        "batches": record["batches"],
        "sample": (seconds["sample"] + seconds["mark"]) / sampled,
        "extract": seconds["extract"] / trained,
        "train": seconds["train"] / trained,
        "group": train["accumulate"],
        "staleness": (train.get("settings") or {}).get("staleness", 0),
    }


def simulation(workload: Workload, devices: int) -> dict[str, Any]:
    """Returns the best allocations of 1 to `devices` devices, and every allocation of all `devices`, JSON-ready.

    Raises:
        InputError: no stage takes time, so no split is better than another.
    """
    if not (workload.sample or workload.extract or workload.train):
        raise InputError("no stage takes time", "give seconds per batch with --sample, --extract or --train")
    counts = sorted({1, 2, 4, 8, 16, 32, 64, devices} & {*range(1, devices + 1)})
    found = {count: search(workload, count) for count in counts}
    return {
        "devices": devices,
        "stage_seconds": {name: getattr(workload, name) for name in ("sample", "extract", "train", "standby_extract")},
        "batches": workload.batches,
        "group": workload.group,
        "by_samplers": [_row(workload, found[devices], samplers) for samplers in range(1, devices + 1)],
        "by_devices": [_summary(workload, found[count]) for count in counts],
    }


def _row(workload: Workload, allocation: Allocation, samplers: int) -> dict[str, Any]:
    outcome = simulate(workload, samplers, allocation.devices - samplers)
    return {
        "samplers": samplers,
        "trainers": allocation.devices - samplers,
        "static_seconds": allocation.static_seconds.get(samplers),
        "seconds": outcome.seconds,
        "switched_batches": outcome.switched,
        "busy_seconds": outcome.busy,
    }


def _summary(workload: Workload, allocation: Allocation) -> dict[str, Any]:
    static = allocation.static_seconds
    return {
        "devices": allocation.devices,
        "formula_samplers": allocation.formula,
        "formula_static_seconds": static.get(allocation.formula),
        "formula_seconds": allocation.seconds[allocation.formula],
        "best_samplers": allocation.best,
        "best_seconds": allocation.seconds[allocation.best],
        "time_shared_seconds": time_shared(workload, allocation.devices),
    }


def print_simulation(found: Mapping[str, Any], write: Callable[[str], Any] = print) -> None:
    """Prints both tables, and their conclusion."""
    stages = ", ".join(f"{name.replace('_', ' ')} {seconds:.4g} s" for name, seconds in found["stage_seconds"].items())
    write(f"{found['batches']} batches, {stages}")
    write(f"{'samplers':>8} {'trainers':>8} {'static s':>10} {'switching s':>11} {'switched':>8}")
    for row in found["by_samplers"]:
        static = "-" if row["static_seconds"] is None else f"{row['static_seconds']:.3f}"
        write(
            f"{row['samplers']:8} {row['trainers']:8} {static:>10} {row['seconds']:11.3f} {row['switched_batches']:8}"
        )
    write("")
    write(
        f"{'devices':>7} {'formula':>7} {'static s':>10} {'switching s':>11} {'best':>5} {'best s':>9} {'shared s':>9}"
    )
    for row in found["by_devices"]:
        static = "-" if row["formula_static_seconds"] is None else f"{row['formula_static_seconds']:.3f}"
        write(
            f"{row['devices']:7} {row['formula_samplers']:7} {static:>10} {row['formula_seconds']:11.3f} {row['best_samplers']:5} "
            f"{row['best_seconds']:9.3f} {row['time_shared_seconds']:9.3f}"
        )
    last = found["by_devices"][-1]
    ratio = last["formula_seconds"] / last["best_seconds"]
    write(
        f"{last['devices']} devices: {last['best_samplers']} should sample; the formula says {last['formula_samplers']}, "
        f"which takes {ratio:.2f} times as long"
    )
