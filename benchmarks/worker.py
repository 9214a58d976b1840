"""Contestants in processes of their own: how one uses memory and threads must neither help nor hurt the other."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from graphmill.assets.building.child import runtime_environment

REST_SECONDS = 0.02


class Worker:
    """A process that answers questions; while it is not asked it only waits.

    OpenMP's threads go on spinning for 4 to 8 ms after a loop, on a core that the next contestant needs: a sum of 12 ms took 16.5 ms right
    after another process's. So an answer is sent when they have come to rest.

    Args:
        prepare: runs in the process with `args` and returns name -> function, one for each question. It is pickled, so it stands at
            the top of its module.
        args: what it gets.
    """

    def __init__(self, prepare: Callable[..., Mapping[str, Callable[[], Any]]], *args: Any):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_answer, args=(prepare, args, theirs), daemon=True)

    def __enter__(self) -> Worker:
        before = dict(os.environ)
        # As the processes that train have it; it is read when a process starts.
        os.environ.update(runtime_environment())
        self.process.start()
        os.environ.clear()
        os.environ.update(before)
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.close()
        self.process.join(10)

    def ask(self, what: str) -> Any:
        """Returns the answer.

        Raises:
            EOFError: the process has ended.
            Exception: what the function raised.
        """
        self.pipe.send(what)
        answer = self.pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _answer(prepare: Callable[..., Mapping[str, Callable[[], Any]]], args: tuple[Any, ...], pipe: Connection) -> None:
    answers = prepare(*args)
    while True:
        try:
            question = pipe.recv()
        except EOFError:
            return
        try:
            answer = answers[question]()
            time.sleep(REST_SECONDS)
            pipe.send(answer)
        except Exception as error:
            pipe.send(error)
