"""The global queue: order, fairness, bounds, and that nobody waits for ever."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.trainers.batches.flow import Closed
from graphmill.trainers.devices.protocol import OverBudget
from graphmill.trainers.techniques.factored.crew import Crew
from graphmill.trainers.techniques.factored.queue import DEPTH, GlobalQueue


def queue(end: int = 8, capacity: int = 100, most: int = 100, group: int = 1) -> GlobalQueue:
    return GlobalQueue(0, end, group, capacity, most, threading.Condition())


def fill(made: GlobalQueue, count: int) -> None:
    for _ in range(count):
        position = made.next_task()
        assert position is not None and made.admit(position, 1)
        made.put(position, f"batch {position}", 1)


def test_batches_are_handed_out_in_order_and_once() -> None:
    made = queue(end=3)
    made.join("a")
    fill(made, 3)
    assert made.next_task() is None
    for position in range(3):
        assert made.take("a") == (position, f"batch {position}", 1)
        made.finished("a", 1)
    assert made.take("a") is None and made.used_bytes == 0 and made.peak_bytes == 3


def test_no_trainer_takes_a_second_batch_while_another_has_none() -> None:
    made = queue()
    made.join("a")
    made.join("b")
    fill(made, 4)
    made.take("a")
    waiting = threading.Thread(target=lambda: made.take("a"), daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    assert made.take("b") == (1, "batch 1", 1)
    waiting.join(60)
    assert not waiting.is_alive() and DEPTH == 2


def test_batches_of_a_step_group_go_to_different_trainers() -> None:
    """One trainer is done early and takes the next group's first batch; the second one is not for it as well."""
    made = queue(group=2)
    made.join("a")
    made.join("b")
    fill(made, 5)
    assert made.take("a")[0] == 0 and made.take("b")[0] == 1
    made.finished("a", 1)
    assert made.take("a")[0] == 2
    waiting = threading.Thread(target=lambda: made.take("a"), daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    assert made.take("b")[0] == 3
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_full_queue_without_a_trainer_sends_its_sampler_to_train() -> None:
    made = queue(capacity=2)
    fill(made, 2)
    position = made.next_task()
    assert position == 2 and made.admit(position, 1, may_switch=True) is False
    assert made.take_now("standby") == (0, "batch 0", 1)
    made.finished("standby", 1)
    assert made.admit(position, 1, may_switch=True)


def test_a_standby_trainer_takes_only_what_is_worth_its_while() -> None:
    made, asked = queue(end=3), []
    made.join("a")
    fill(made, 3)

    def worthwhile(waiting: int, trainers: int) -> bool:
        asked.append((waiting, trainers))
        return waiting > 2

    assert made.take_worthwhile("standby", worthwhile) == (0, "batch 0", 1)
    assert made.take_worthwhile("standby", worthwhile) is None
    assert {(3, 1), (2, 1)} <= {*asked}
    made.finished("standby", 1)
    assert made.used_bytes == 2


def test_what_can_never_fit_is_refused_and_what_may_grow_grows() -> None:
    made = queue(capacity=10, most=50)
    with pytest.raises(OverBudget, match="batch 0 in the queue asks for 51 bytes"):
        made.admit(0, 51)
    assert made.admit(0, 20) and made.capacity_bytes == 40


def test_closing_ends_everybody_who_waits() -> None:
    made, ended = queue(capacity=1, most=1), []
    made.join("a")
    assert made.admit(0, 1)

    def ends(call) -> None:
        with pytest.raises(Closed):
            call()
        ended.append(call)

    calls = [lambda: made.take("a"), lambda: made.admit(1, 1), lambda: made.take_worthwhile("s", lambda m, n: True)]
    threads = [threading.Thread(target=ends, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    made.close()
    for thread in threads:
        thread.join(60)
    assert len(ended) == 3


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_number_of_executors_gets_every_batch_within_the_bound(data: st.DataObject) -> None:
    samplers, trainers = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    sizes = data.draw(st.lists(st.integers(1, 10), min_size=1, max_size=25))
    made, taken = queue(len(sizes), capacity=12, most=12, group=data.draw(st.integers(1, 5))), []

    def sample() -> None:
        while (position := made.next_task()) is not None:
            made.admit(position, sizes[position])
            made.put(position, position, sizes[position])

    def train(name: str) -> None:
        while (found := made.take(name)) is not None:
            time.sleep(0)
            taken.append(found[0])
            made.finished(name, found[2])

    for number in range(trainers):
        made.join(str(number))
    threads = [threading.Thread(target=sample, daemon=True) for _ in range(samplers)]
    threads += [threading.Thread(target=train, args=(str(number),), daemon=True) for number in range(trainers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(taken) == list(range(len(sizes))) and made.peak_bytes <= 12 and made.used_bytes == 0


@pytest.mark.parametrize(("waiting", "trainers", "worth"), [(40, 1, True), (2, 2, False), (3, 2, True), (5, 0, True)])
def test_before_a_stage_has_ended_all_are_taken_to_last_equally_long(waiting: int, trainers: int, worth: bool) -> None:
    """An epoch whose batches are all drawn before the first of them is extracted switches, too."""
    crew = Crew.__new__(Crew)
    crew.executors, crew._measured = [], None
    assert crew._worthwhile(waiting, trainers) is worth
