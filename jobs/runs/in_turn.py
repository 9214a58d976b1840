"""The executor of jobs: a run begins no more steps that take the same slot than the pool has slots, so none waits for its own run.

Dagster would begin all steps that are ready. Each would start a process, and all but one of the trainings would wait there.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.assets.definitions import SLOT_TAG
from graphmill.jobs.runs.slot import FOR, num_slots


def _open(context: dg.InitExecutorContext) -> dg.Executor:
    """Returns Dagster's executor for the config, with the pools' sizes as limits for steps of one run."""
    asked: Mapping[str, Any] = context.executor_config
    given: dict[str, dict[str, Any]] = {kind: dict(config) for kind, config in asked.items()}
    if "multiprocess" in given:
        sizes = {pool: num_slots(context.instance, pool) for pool in FOR}
        # Of a pool without slots one step begins, and reports that it waits.
        limits = [
            {"key": SLOT_TAG, "value": pool, "limit": max(1, size)} for pool, size in sizes.items() if size is not None
        ]
        given["multiprocess"]["tag_concurrency_limits"] = [
            *(given["multiprocess"].get("tag_concurrency_limits") or []),
            *limits,
        ]
    make = dg.multi_or_in_process_executor.executor_creation_fn
    assert make is not None
    return make(context._replace(executor_config=given))


in_turn = dg.ExecutorDefinition(
    name="in_turn",
    config_schema=dg.multi_or_in_process_executor.config_schema,  # pyright: ignore[reportArgumentType]  # what it hands out
    requirements=dg.multi_or_in_process_executor.get_requirements,
    executor_creation_fn=_open,
    description="Each step in a process of its own, or all in one; trainings of one run take turns.",
)
