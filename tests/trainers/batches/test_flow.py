"""A flow in turn makes what one on threads makes, when it is asked for, on the thread that asks."""

import threading
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from graphmill.trainers.batches.flow import Task, Work, flow
from graphmill.trainers.record.ledger import Timeline

PLANNED: Any = [SimpleNamespace(position=position) for position in range(5)]


def tasks(made: list[tuple[str, int, str]], broken: int = -1) -> list[Task]:
    def work(name: str) -> Work:
        def call(lane: int, item: Any, value: Any) -> Any:
            assert item.position != broken, "broken"
            made.append((name, item.position, threading.current_thread().name))
            return (name, item.position, value)

        return Work(name, call)

    return [
        Task(name="graph", lanes=2, prepare=work("draw"), num_bytes=lambda item, value: 10),
        Task(name="rows", num_bytes=lambda item, value: 20, prepare=work("load"), work=work("assemble")),
        Task(name="join", after=("graph", "rows"), ahead=0, num_bytes=lambda item, value: 5, work=work("join")),
    ]


def results(made: list[tuple[str, int, str]], in_turn: bool, **more: Any) -> Iterator[Any]:
    with closing(flow(PLANNED, tasks(made, **more), 1000, Timeline(), in_turn=in_turn)) as prepared:
        for item, (result,) in prepared:
            yield item.position, result


def test_results_are_those_of_threads() -> None:
    assert list(results([], True)) == list(results([], False))


def test_nothing_is_made_before_it_is_asked_for_and_no_thread_works() -> None:
    made: list[tuple[str, int, str]] = []
    prepared = results(made, True)
    for position in range(3):
        next(prepared)
        assert [place for _, place, _ in made] == [each for each in range(position + 1) for _ in range(4)]
    assert {thread for _, _, thread in made} == {threading.current_thread().name}


def test_an_error_reaches_the_step_at_its_batch() -> None:
    prepared = results([], True, broken=2)
    assert [next(prepared)[0], next(prepared)[0]] == [0, 1]
    with pytest.raises(AssertionError, match="broken"):
        next(prepared)
