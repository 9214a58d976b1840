"""Measures the seconds of a batch's stages before the first epoch (FGNN, section 5.3: "by training an epoch in advance").

A few batches of the first epoch's seeds are sampled on the probe stream, extracted and trained on, one at a time; the first one warms
caches and is not counted. The probe uses no draw of training, books nothing and keeps no gradient, so the run is the same without it.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from kernels.types import Stream
from trainers.loop.executor import Run
from trainers.record.timeline import TRAIN, Timeline
from trainers.techniques.factored.replica import weights_of
from trainers.techniques.factored.roles import EXTRACT, MARK, SAMPLE, BatchDrawer, ReplicaTraining
from trainers.techniques.factored.watch import Activity

BATCHES = 4
"""Number of batches that are counted."""


class StageSeconds(NamedTuple):
    """Seconds of one batch: sampled and marked (T_s), its rows extracted, trained on."""

    sample: float
    extract: float
    train: float


def measured_stages(run: Run, drawing: BatchDrawer, training: ReplicaTraining) -> StageSeconds:
    """Returns the median seconds of the stages.

    Args:
        run: the run.
        drawing, training: the drawer of one sampler, and the training of one trainer.
    """
    found: list[StageSeconds] = []
    training.replica.follow(weights_of(run.model, copied=False))
    for item in islice(run.plan.batches(0), 1 + min(BATCHES, run.plan.num_batches)):
        activity = Activity("probe", Timeline())
        # Stored batches have no probe stream: they are only read, which uses no draw either.
        stored = run.execution.samples == "stored"
        probed = item if stored else item._replace(key=replace(item.key, stream=Stream.PROBE))
        batch = training.extract(activity, drawing(activity, probed, 0)).batch
        with activity.at(TRAIN, item.position):
            training.replica(batch)
        found.append(
            StageSeconds(
                activity.seconds[SAMPLE] + activity.seconds[MARK],
                *(activity.seconds[each] for each in (EXTRACT, TRAIN)),
            )
        )
    counted = found[1:] or found
    return StageSeconds(*(statistics.median(each[i] for each in counted) for i in range(3)))
