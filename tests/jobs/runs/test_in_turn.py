"""Trainings of one run begin one after the other, as many at a time as the pool has slots (tests/jobs/test_launch.py runs some)."""

from __future__ import annotations

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob

from graphmill.assets.building.stage import Silent
from graphmill.assets.definitions import SLOT_TAG, Surroundings
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import build_defs
from graphmill.jobs.runs.instance import open_instance
from graphmill.jobs.runs.slot import MEMORY_POOL, POOL, in_turn
from tests.recipes import load_tiny


@dg.job
def nothing():
    """A job without steps."""


@pytest.mark.parametrize(("size", "limit"), [(1, 1), (3, 3), (0, 1)])
def test_the_limit_is_the_size_of_the_pool(tmp_path, size, limit):
    with open_instance(tmp_path) as instance:
        instance.event_log_storage.set_concurrency_slots(POOL, size)
        context = dg.InitExecutorContext(
            job=InMemoryJob(nothing),
            executor_def=in_turn,
            executor_config={"multiprocess": {"retries": {"enabled": {}}}},
            instance=instance,
        )
        executor = in_turn.executor_creation_fn(context)
    limits = {each["value"]: each["limit"] for each in executor._tag_concurrency_limits if each["key"] == SLOT_TAG}
    assert limits == {POOL: limit, MEMORY_POOL: 1}


@pytest.mark.parametrize(("limit", "method"), [(None, "forkserver"), (2 << 30, "spawn")])
def test_steps_are_forked_where_no_group_limits_the_memory(tmp_path, monkeypatch, limit, method):
    """The process that they are forked from takes memory, which no need of a step has in it."""
    monkeypatch.setattr("graphmill.jobs.runs.slot.limit_bytes", lambda: limit)
    with open_instance(tmp_path) as instance:
        context = dg.InitExecutorContext(
            job=InMemoryJob(nothing),
            executor_def=in_turn,
            executor_config={"multiprocess": {"retries": {"enabled": {}}}},
            instance=instance,
        )
        assert in_turn.executor_creation_fn(context)._start_method == method


def test_every_job_takes_turns_and_so_do_steps_of_the_memory_pool(tmp_path, monkeypatch):
    monkeypatch.setattr("graphmill.jobs.definitions.takes_memory", lambda pipeline, stage: True)
    made = build_defs([load_tiny(tmp_path)], Surroundings(store=Store(tmp_path), make_progress=lambda _: Silent()))
    jobs = made.get_repository_def().get_all_jobs()
    assert {job.executor_def.name for job in jobs} == {in_turn.name} and any(job.name == "__ASSET_JOB" for job in jobs)
    pools = {node.name: node.tags.get(SLOT_TAG) for job in jobs for node in job.graph.nodes}
    assert pools["tiny__sage"] == POOL and MEMORY_POOL in pools.values()
