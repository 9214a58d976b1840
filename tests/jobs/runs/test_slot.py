"""The slot of a training: taken once, however close together two steps ask for it, and as many as somebody set."""

import threading

import dagster as dg
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from graphmill.assets.definitions import Surroundings
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import build_defs
from graphmill.jobs.runs.instance import open_instance
from graphmill.jobs.runs.slot import MEMORY_POOL, POOL, claim_slot, one_at_a_time, priority_of, slot_holders
from tests.jobs.runs.processes import wait_for
from tests.recipes import load_tiny

READ_BEFORE = ("INSERT INTO pending_steps", "UPDATE concurrency_slots SET run_id")
"""What Dagster writes by what it has just read: whether a slot is free, and which one."""


@pytest.fixture
def meeting(request):
    """Every thread that is about to write such a statement waits for a second one: both have read then, and none has written.

    The parameter is for how many seconds.
    """
    barriers = {text: threading.Barrier(2) for text in READ_BEFORE}

    def meet(connection, cursor, statement, *_):
        for text, barrier in barriers.items():
            if statement.startswith(text) and threading.current_thread() is not threading.main_thread():
                try:
                    barrier.wait(request.param)
                except threading.BrokenBarrierError:
                    barrier.reset()

    event.listen(Engine, "before_cursor_execute", meet)
    yield
    event.remove(Engine, "before_cursor_execute", meet)


def claims_of_two(home, claim):
    """Returns what two threads are told that ask at once, each with a history of its own, as two processes have."""
    with open_instance(home) as first, open_instance(home) as second:
        assert claim_slot(first, "before", "step")
        with one_at_a_time(first):
            first.event_log_storage.free_concurrency_slot_for_step("before", "step")
        told = {}
        threads = [
            threading.Thread(target=lambda name=name, instance=instance: told.update({name: claim(instance, name)}))
            for name, instance in (("one", first), ("two", second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return sorted(told.values())


@pytest.mark.parametrize("meeting", [0.5], indirect=True)  # where there is a lock, nobody else comes
def test_two_that_ask_at_once_do_not_both_get_the_slot(tmp_path, meeting):
    assert claims_of_two(tmp_path, lambda instance, name: claim_slot(instance, name, "step")) == [False, True]


@pytest.mark.parametrize("meeting", [50], indirect=True)
def test_dagster_alone_would_give_it_to_both(tmp_path, meeting):
    """Why there is a lock file; when this fails, Dagster has mended it and the lock may go."""

    def claim(instance, name):
        return instance.event_log_storage.claim_concurrency_slot(POOL, name, "step").is_claimed

    assert claims_of_two(tmp_path, claim) == [True, True]


def test_a_limit_that_somebody_set_stays(tmp_path):
    with open_instance(tmp_path) as instance:
        assert claim_slot(instance, "one", "step") and not claim_slot(instance, "two", "step")
        instance.event_log_storage.set_concurrency_slots(POOL, 2)
        assert claim_slot(instance, "two", "step") and not claim_slot(instance, "three", "step")
        (pool,) = instance.event_log_storage.get_pool_limits()
        assert (pool.name, pool.limit, pool.from_default) == (POOL, 2, False)


def test_a_step_that_takes_much_memory_waits_where_it_has_something_to_build(tmp_path, monkeypatch):
    """It says whom it waits for; what is there already waits for nobody."""
    monkeypatch.setattr("graphmill.jobs.definitions.takes_memory", lambda pipeline, stage: stage == "graph")
    monkeypatch.setattr("graphmill.jobs.runs.slot.POLL_SECONDS", 0.05)
    said = []
    around = Surroundings(store=Store(tmp_path / "home"), report=said.append)
    job = build_defs([load_tiny(tmp_path, tables=("sage",))], around).resolve_job_def("tiny__preprocess")
    with dg.instance_for_test() as instance:
        instance.event_log_storage.set_concurrency_slots(MEMORY_POOL, 1)
        holder = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        assert claim_slot(instance, holder.run_id, "other__graph", pool=MEMORY_POOL)

        def free():
            wait_for(lambda: said, "the message")
            with one_at_a_time(instance):
                instance.event_log_storage.free_concurrency_slot_for_step(holder.run_id, "other__graph")

        freeing = threading.Thread(target=free)
        freeing.start()
        assert job.execute_in_process(instance=instance).success
        freeing.join()
        assert "waits for the slot of steps that take much memory, held by other/graph of run" in said[0]
        assert slot_holders(instance, MEMORY_POOL) == ""

        assert claim_slot(instance, holder.run_id, "other__graph", pool=MEMORY_POOL)
        said.clear()
        assert job.execute_in_process(instance=instance).success
        assert [line for line in said if "waits" in line] == []


def test_the_priority_of_the_run_decides_who_is_next(tmp_path):
    with open_instance(tmp_path) as instance:
        assert claim_slot(instance, "holder", "step")
        assert not claim_slot(instance, "low", "step", -3) and not claim_slot(instance, "high", "step", 2)
        with one_at_a_time(instance):
            instance.event_log_storage.free_concurrency_slot_for_step("holder", "step")
        assert not claim_slot(instance, "low", "step", -3) and claim_slot(instance, "high", "step", 2)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3),
        (" -2 ", -2),
        ("+1", 1),
        ("high", 0),
        ("", 0),
        ("1.5", 0),
        ("1e3", 0),
        ("٣", 0),
        ("9" * 5000, 0),
        ("nan", 0),
    ],
)
def test_a_priority_that_is_no_number_is_none(text, number):
    assert priority_of({"dagster/priority": text}) == number and priority_of({}) == 0
