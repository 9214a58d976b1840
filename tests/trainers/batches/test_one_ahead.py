"""A thread makes the next item while one is used: in order, one ahead, and nothing that was made is lost."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.trainers.batches.one_ahead import one_ahead


@given(count=st.integers(0, 6), fails_at=st.none() | st.integers(0, 6), stops_at=st.none() | st.integers(0, 6))
def test_each_item_that_is_made_is_taken_or_dropped(count: int, fails_at: int | None, stops_at: int | None) -> None:
    """Whether the iterator fails or its user stops, in any place; None is an item like any other."""
    made, taken, dropped = [], [], []

    def items():
        for number in range(count):
            if number == fails_at:
                raise OSError(number)
            made.append(None if number == 1 else number)
            yield made[-1]

    failed = False
    with ThreadPoolExecutor(1) as thread, closing(one_ahead(items(), thread, dropped.append)) as ahead:
        try:
            for number, item in enumerate(ahead):
                taken.append(item)
                assert len(made) <= len(taken) + 1
                if number == stops_at:
                    break
        except OSError:
            failed = True
    expected = [None if number == 1 else number for number in range(count)]
    assert taken + dropped == made == expected[: len(made)] and len(dropped) <= 1
    stopped = stops_at is not None and len(taken) == stops_at + 1
    assert failed == (fails_at is not None and fails_at < count and not stopped)
    assert stopped or failed or len(taken) == count


def test_the_next_item_is_made_while_one_is_used() -> None:
    second = Event()

    def items():
        yield 1
        second.set()
        yield 2

    with ThreadPoolExecutor(1) as thread, closing(one_ahead(items(), thread)) as ahead:
        assert next(ahead) == 1
        assert second.wait(10), "the second item is not made before it is asked for"


def test_an_error_of_its_user_drops_what_was_made() -> None:
    dropped: list[int] = []
    with (
        ThreadPoolExecutor(1) as thread,
        pytest.raises(KeyError),
        closing(one_ahead(iter(range(3)), thread, dropped.append)) as ahead,
    ):
        next(ahead)
        raise KeyError
    assert dropped == [1]
