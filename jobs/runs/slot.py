"""Slots: one training at a time per home, and one step at a time that takes much memory, for any number of runs.

The slots are those of Dagster's pools `gpu` and `memory`, which the UI shows and sets under Deployment, Concurrency. Dagster itself would
claim a slot before a step begins, so a step whose artifacts are all there would wait, too; in a run of the command line it would wait
without a message, in a busy loop, and no signal would end it. Here the step claims its slot when it has work to do, reports who holds it,
sleeps between two tries, and ends when its run is cancelled. Of the waiting steps, the one with the highest sum of the run's and the step's
`dagster/priority` goes first. Within a run that has a process for each step, steps that take the same slot begin one after the other,
also those that have nothing to do.

A waiting step frees slots whose run is over or whose process is gone.

Dagster looks for a free slot in one statement and takes it in the next. In Postgres it locks the row between the two; SQLite has no such
lock, and two steps that ask within the same milliseconds both take the slot. So a step asks while it holds a lock file of the home.

By the executor of jobs a run begins no more steps that take the same slot than the pool has slots, so none waits for its own run. Dagster
would begin all steps that are ready. Each would start a process, and all but one of the trainings would wait there.

The processes of steps are forked from one that has imported this program, which takes two seconds of a processor in each one otherwise.
That process holds 70 MiB itself. So where a control group limits the memory, each step's process is started anew.
"""

import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg

from graphmill.assets.definitions import MACHINE_TAG, SLOT_TAG
from graphmill.assets.storage.system.control_group import limit_bytes
from graphmill.assets.storage.system.filesystem import locked
from graphmill.jobs.runs.children import is_canceled
from graphmill.jobs.runs.dead_runs import fail_dead_runs

POOL, MEMORY_POOL = "gpu", "memory"
FOR = {POOL: "the training slot", MEMORY_POOL: "the slot of steps that take much memory"}
LOCK = ".slots.lock"
POLL_SECONDS, SWEEP_SECONDS = 1.0, 15.0
OVER = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


@contextmanager
def held_slot(context: dg.AssetExecutionContext, pool: str, report: Callable[[str], None]) -> Iterator[None]:
    """Holds a slot of a pool; waits for one if all are taken.

    Args:
        report: function that gets a line when the step has to wait, and again when the holder of the slot changes.

    Raises:
        dagster.DagsterExecutionInterruptedError: the run was cancelled while the step waited.
    """
    instance, run_id = context.instance, context.run.run_id
    step = context.get_step_execution_context().step
    priority = sum(priority_of(tags) for tags in (context.run.tags, step.tags))
    said, swept = "", 0.0
    try:
        while not claim_slot(instance, run_id, step.key, priority, pool):
            if time.monotonic() - swept >= SWEEP_SECONDS:
                swept = time.monotonic()
                free_lost_slots(instance, pool)
            holders = slot_holders(instance, pool)
            if holders and holders != said:
                said, name = holders, step.key.rpartition("__")[2]
                report(f"{name}: waits for {FOR[pool]}, held by {holders}; Ctrl-C ends the wait")
            if is_canceled(context):
                raise dg.DagsterExecutionInterruptedError
            time.sleep(POLL_SECONDS)
        yield
    finally:
        with one_at_a_time(instance):
            instance.event_log_storage.free_concurrency_slot_for_step(run_id, step.key)


def priority_of(tags: Mapping[str, str]) -> int:
    """Returns the priority that the tags of a run or step say; 0 for another text, as anyone may write in the UI."""
    text = tags.get("dagster/priority", "0").strip()
    return int(text) if re.fullmatch(r"[+-]?\d{1,9}", text, re.ASCII) else 0


def claim_slot(instance: dg.DagsterInstance, run_id: str, step_key: str, priority: int = 0, pool: str = POOL) -> bool:
    """Takes a slot of a pool for a step, or its place in the queue, and tells whether the step has a slot now."""
    with one_at_a_time(instance):
        if not _is_limited(instance, pool):
            return True
        return instance.event_log_storage.claim_concurrency_slot(pool, run_id, step_key, priority).is_claimed


def _is_limited(instance: dg.DagsterInstance, name: str) -> bool:
    """Makes the slots of the pool if there are none yet, and tells whether the pool has a limit; a limit set by a user stays."""
    storage, default = instance.event_log_storage, instance.global_op_concurrency_default_limit
    pool = next((pool for pool in storage.get_pool_limits() if pool.name == name), None)
    if pool is None or (pool.from_default and pool.limit != default):
        storage.initialize_concurrency_limit_to_default(name)
        return default is not None
    return True


def num_slots(instance: dg.DagsterInstance, pool: str) -> int | None:
    """Returns the number of slots of a pool, None for any number."""
    default = instance.global_op_concurrency_default_limit
    found = next((each for each in instance.event_log_storage.get_pool_limits() if each.name == pool), None)
    return default if found is None or found.from_default else found.limit


def one_at_a_time(instance: dg.DagsterInstance) -> AbstractContextManager[None]:
    """Keeps other processes of the home from claiming and freeing slots while the block runs, which should be short."""
    return locked(Path(instance.root_directory) / LOCK)


def slot_holders(instance: dg.DagsterInstance, pool: str = POOL) -> str:
    """Returns in words who holds the slots of a pool, and since when they run; "" if none is held."""
    found = []
    for slot in instance.event_log_storage.get_concurrency_info(pool).claimed_slots:
        record = instance.get_run_record_by_id(slot.run_id)
        since = record.start_time if record and record.start_time else None
        began = f" since {datetime.fromtimestamp(since):%Y-%m-%d %H:%M:%S}" if since else ""
        name = slot.step_key.replace("__", "/", 1)
        host = record.dagster_run.tags.get(MACHINE_TAG, "").partition("/")[0] if record else ""
        there = f" on {host}" if host not in ("", platform.node()) else ""
        found.append(f"{name} of run {slot.run_id[:8]}{began}{there}")
    return ", ".join(found)


def free_lost_slots(instance: dg.DagsterInstance, pool: str = POOL) -> None:
    """Frees the slots of a pool that belong to runs that are over, or whose process is gone."""
    fail_dead_runs(instance)
    for slot in instance.event_log_storage.get_concurrency_info(pool).claimed_slots:
        run = instance.get_run_by_id(slot.run_id)
        if run is None or run.status in OVER:
            with one_at_a_time(instance):
                instance.event_log_storage.free_concurrency_slots_for_run(slot.run_id)


def start_method(*modules: str) -> dict[str, Any]:
    """Returns a part of the executor's config: processes are forks of one that has imported some modules, Dagster at least.

    A control group that limits the memory has each process started anew, by an empty part.
    """
    return (
        {}
        if limit_bytes() is not None
        else {"start_method": {"forkserver": {"preload_modules": [*modules, "dagster"]}}}
    )


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
        given["multiprocess"] = start_method() | given["multiprocess"]
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
