"""Contestants in processes of their own: how one uses memory and threads must neither help nor hurt the other."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any


class Worker:
    """A process that answers questions; while it is not asked it only waits.

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
        self.process.start()
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
            pipe.send(answers[question]())
        except Exception as error:
            pipe.send(error)
