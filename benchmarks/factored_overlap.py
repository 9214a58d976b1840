"""Overlap of one sampler and one trainer, against sleeping stages of the same lengths (FGNN, Figure 9).

    overlap = 1 - seconds of the epoch / seconds of all stages, one after the other

Stages are sampling, extraction, training and the updates, as long as on one device that does them in turn; sleeping ones need no core, so
what they reach is what the order of stages allows. Three threads share two cores here: whatever the order, real stages cannot end before
half of their work, and they slow one another where they share caches and memory. Both are printed.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.elsewhere import quiet_rounds
from benchmarks.factored_runs import Runs, epoch_seconds, weights
from benchmarks.factored_sleeping import Case, slept_seconds
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from graphmill.trainers.techniques.factored.simulator.workload import Workload

SAMPLING = SamplingConfig(fanouts=(15, 10), batch_size=8000)
BATCHES, CORES, MOST = 20, 2, 2
"""Batches per epoch, cores of the machine, and rounds at most for each round that is kept."""
OPTIONS: dict[str, Any] = {"accumulate": 1, "link": None, "epochs": 3}
ALONE: dict[str, Any] = {"trainer": "factored", "settings": FactoredSettings(sharing="time", trainers=1)}
SPLIT: dict[str, Any] = {
    "trainer": "factored",
    "settings": FactoredSettings(samplers=1, trainers=1, switching=False),
}
WIDTHS = (16, 64)
"""Hidden columns: stages that are about as long as one another, and training that takes most of the time."""


def overlaps(runs: Runs, rounds: int) -> list[dict[str, Any]]:
    """Returns and prints the overlap by width of the hidden layer.

    Args:
        runs: a graph with BATCHES x 8000 training nodes, sampled by SAMPLING.
        rounds: how often each is measured; medians are kept.
    """
    return [overlap(runs, rounds, hidden) for hidden in WIDTHS]


def overlap(runs: Runs, rounds: int, hidden: int) -> dict[str, Any]:
    """Returns and prints real and sleeping overlap, and what bounds the real one."""
    kept, others = quiet_rounds(lambda: _round(runs, OPTIONS | {"hidden": hidden}), rounds, MOST * rounds)
    found: dict[str, Any] = {name: round(statistics.median(each[name] for each in kept), 4) for name in kept[0]}
    found = {"hidden": hidden, "cores_of_others": others, "share": round(found["real"] / found["sleeping"], 3)} | found
    print(
        f"\noverlap of one sampler and one trainer, {hidden} hidden columns: {100 * found['real']:.1f} % of the stages' seconds, sleeping "
        f"{100 * found['sleeping']:.1f} %: {100 * found['share']:.0f} % of it (target: 80 %)\n"
        f"  per batch sampled in {1000 * found['sample']:.1f} ms, extracted in {1000 * found['extract']:.1f} ms, trained on in "
        f"{1000 * found['train']:.1f} ms; {CORES} cores that do not slow one another allow at most {100 * found['cores']:.1f} %\n"
        f"  side by side sampling takes {found['slower_sample']:.2f}, extraction {found['slower_extract']:.2f} and training "
        f"{found['slower_train']:.2f} times as long as alone; other processes used up to {others:.2f} cores"
    )
    return found


def _round(runs: Runs, options: dict[str, Any]) -> dict[str, float]:
    # Both are the same model to the store, and the second run takes the first one's place; so what is asked is read at once.
    in_turn = runs.train(ALONE, **options)
    expected, alone = weights(in_turn), _seconds_per_batch(in_turn)
    split = runs.train(SPLIT, **options)
    assert weights(split) == expected, "overlap changed the weights"
    beside, together = _seconds_per_batch(split), epoch_seconds(split)
    work = Workload(batches=BATCHES, **alone, group=1)
    with tempfile.TemporaryDirectory() as folder:
        slept = slept_seconds(Store(Path(folder)), Case(1, 1, work, switching=False))
    update, whole = _update_seconds(in_turn), sum(alone.values())
    return {
        "real": 1 - together / ((whole + update) * BATCHES),
        "sleeping": 1 - slept / (whole * BATCHES),
        "cores": 1 - max(*alone.values(), whole / CORES) / whole,
        "update": update,
        **alone,
        **{f"slower_{name}": beside[name] / alone[name] for name in alone},
    }


def _update_seconds(model: Artifact) -> float:
    """Returns the seconds of an update; in an epoch of sleeping stages it takes no time."""
    return model.run_record()["timeline"]["busy_seconds"]["step"]["update"] / BATCHES


def _seconds_per_batch(model: Artifact) -> dict[str, float]:
    told = model.run_record()["executors"]
    sums, batches = told["stage_seconds"], sum(told["trained_by"].values())
    assert batches == BATCHES, batches
    return {
        "sample": (sums["sample"] + sums["mark"]) / batches,
        "extract": sums["extract"] / batches,
        "train": sums["train"] / batches,
    }
