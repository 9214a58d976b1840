"""The ordered queue keeps order and its bound in bytes at any number of workers."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.trainers.batches.flow import Closed, OrderedByteQueue
from graphmill.trainers.devices.protocol import OverBudget
from graphmill.trainers.recipe.queue_bytes import queue_bounds


def run_queue(sizes: list[int], workers: int, capacity: int) -> tuple[list[int], int]:
    queue: OrderedByteQueue[int] = OrderedByteQueue(capacity)

    def work(start: int) -> None:
        for number in range(start, len(sizes), workers):
            queue.admit(number, sizes[number])
            queue.put(number, number, sizes[number])

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(workers)]
    for thread in threads:
        thread.start()
    taken = []
    for number in range(len(sizes)):
        item, num_bytes = queue.take(number)
        assert num_bytes == sizes[number]
        assert queue.used_bytes <= capacity
        taken.append(item)
        queue.release(num_bytes)
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert queue.used_bytes == 0
    return taken, queue.peak_bytes


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 100), max_size=30),
    workers=st.integers(1, 5),
    slack=st.integers(0, 150),
)
def test_order_and_bound_hold(sizes: list[int], workers: int, slack: int) -> None:
    capacity = max(sizes, default=0) + slack
    taken, peak = run_queue(sizes, workers, capacity)
    assert taken == list(range(len(sizes)))
    assert peak <= capacity


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(0, 100), min_size=2, max_size=30), capacity=st.integers(0, 150))
def test_an_item_is_admitted_while_the_one_before_is_held(sizes: list[int], capacity: int) -> None:
    """The bound grows to two items of the largest size, and no further than it has to or began."""
    queue: OrderedByteQueue[int] = OrderedByteQueue(capacity, most_bytes=200)
    queue.admit(0, sizes[0])
    for number, size in enumerate(sizes[1:], 1):
        thread = threading.Thread(target=queue.admit, args=(number, size), daemon=True)
        thread.start()
        thread.join(timeout=60)
        assert not thread.is_alive()
        queue.release(sizes[number - 1])
    assert queue.capacity_bytes == max(capacity, 2 * max(sizes)) and queue.peak_bytes <= queue.capacity_bytes


def test_an_item_larger_than_the_queue_is_an_error_that_names_its_bytes() -> None:
    queue: OrderedByteQueue[int] = OrderedByteQueue(10)
    with pytest.raises(OverBudget, match="asks for 11 bytes where 10 are free"):
        queue.admit(0, 11)


def test_a_later_item_waits_for_its_turn_even_when_it_fits() -> None:
    queue: OrderedByteQueue[str] = OrderedByteQueue(10)
    entered = threading.Event()
    thread = threading.Thread(target=lambda: (queue.admit(1, 1), entered.set()), daemon=True)
    thread.start()
    assert not entered.wait(0.05)
    queue.admit(0, 10)
    assert not entered.wait(0.05)  # its turn has come, its byte has not
    queue.release(10)
    assert entered.wait(60)


def test_a_workers_error_reaches_the_consumer_and_the_other_workers() -> None:
    queue: OrderedByteQueue[int] = OrderedByteQueue(10)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            queue.admit(1, 1)
        except Closed as error:
            caught.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    queue.fail(RuntimeError("broken batch"))
    with pytest.raises(RuntimeError, match="broken batch"):
        queue.take(0)
    thread.join(timeout=60)
    assert len(caught) == 1


def test_close_lets_workers_go() -> None:
    queue: OrderedByteQueue[int] = OrderedByteQueue(10)
    queue.close()
    with pytest.raises(Closed):
        queue.admit(0, 1)


def test_a_queue_that_may_grow_has_room_for_two_of_the_largest_items() -> None:
    queue: OrderedByteQueue[int] = OrderedByteQueue(10, most_bytes=100, share=2)
    queue.admit(0, 2)
    assert queue.capacity_bytes == 5
    queue.put(0, 0, 2)
    queue.release(queue.take(0)[1])
    queue.admit(1, 20)
    assert queue.capacity_bytes == 40
    queue.put(1, 1, 20)
    queue.release(queue.take(1)[1])
    queue.admit(2, 45)
    assert queue.capacity_bytes == 50  # its part of what it may grow to
    with pytest.raises(OverBudget, match="asks for 51 bytes where 50 are free"):
        queue.admit(3, 51)


def test_a_queue_begins_with_its_size_and_auto_with_one_gibibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    for installed, most in ((1 << 40, 1 << 39), (1 << 20, 1 << 30)):
        monkeypatch.setattr("graphmill.trainers.recipe.queue_bytes.memory_bytes", lambda n=installed: n)
        assert queue_bounds("auto") == (1 << 30, most)
        assert queue_bounds("3MiB") == (3 << 20, max(3 << 20, installed // 2))
