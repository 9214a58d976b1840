"""The choice between batches that are prepared ahead of the step, on threads of their own, and in turn with it."""

from graphmill.assets.storage.system.machine import usable_cores
from graphmill.trainers.recipe.config import TrainConfig, TrainExecution

MOST_CORES_IN_TURN = 2
"""Cores with which no thread samples ahead of a step; with more, a step leaves some of them idle."""


def prepared_in_turn(train: TrainConfig, execution: TrainExecution) -> bool:
    """Returns whether all threads prepare each batch just before its step, if its rows are in memory.

    Threads that sample beside a step then only take cores from it, as long as the step has all cores. On two cores an epoch in turn took
    0.84 times as long (docs/log.md). Rows that cross a modelled link leave the cores idle, so they come while the step computes.
    """
    cores, settings = usable_cores(), train.own_settings
    alone = settings.trainers_of(cores) == 1 and train.num_threads >= cores
    alone = alone and not (settings.staleness or settings.lookahead)
    drawn = execution.samples == "online" and execution.features in ("auto", "memory")
    own = execution.link is None and not execution.samplers
    return alone and drawn and own and cores <= MOST_CORES_IN_TURN
