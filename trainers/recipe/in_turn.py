"""The choice between batches that are prepared ahead of the step, on threads of their own, and in turn with it."""

from graphmill.assets.storage.system.machine import usable_cores
from graphmill.trainers.recipe.config import TrainExecution
from graphmill.trainers.recipe.techniques import find_technique

MOST_CORES_IN_TURN = 2
"""Cores with which no thread samples ahead of a step; with more, a step leaves some of them idle."""


def prepared_in_turn(trainer: str, execution: TrainExecution) -> bool:
    """Returns whether all threads prepare each batch just before its step, if its rows are in memory.

    Threads that sample beside a step then only take cores from it. On two cores an epoch in turn took 0.84 times as long (docs/log.md).
    Rows that cross a modelled link leave the cores idle, so they come while the step computes.
    """
    if find_technique(trainer).roles:
        return False
    drawn = execution.samples == "online" and execution.features in ("auto", "memory")
    return drawn and execution.link is None and not execution.samplers and usable_cores() <= MOST_CORES_IN_TURN
