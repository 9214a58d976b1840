"""Parses many modules in several processes, each a plain child that reads tasks from a pipe.

`multiprocessing` would import the caller's main module again in each worker (or fork a process with running threads), and its idle workers
outlive a parent that was killed. These children run one file that needs only the standard library, and end with their pipe.

A single worker is a child, too. Python's parser limits the nesting of a module by the recursion limit and the depth of the call, which are
the same in every child but not in every caller.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from graphmill.assets.building.child import start_child
from graphmill.assets.sources.python_environment import modules
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    from graphmill.assets.building.stage import Progress

CHUNK = 32
"""Modules per task line; few, since one package's modules may be far larger than another's."""


def parse_modules(tasks: Sequence[tuple[Any, ...]], workers: int, progress: Progress) -> list[dict[str, Any]]:
    """Returns `modules.describe` of every task, in the order of the tasks.

    Args:
        workers: number of processes, at least 1; the result does not depend on it. Few tasks use fewer.

    Raises:
        InputError: a process ended early (killed, or out of memory).
    """
    workers = max(1, min(workers, len(tasks) // CHUNK))
    progress.start("parse modules", len(tasks), "modules")
    found: list[dict[str, Any]] = []
    children: list[subprocess.Popen[str]] = []
    idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()

    def ask_any(low: int) -> list[dict[str, Any]]:
        child = idle.get()
        try:
            return _ask(child, tasks[low : low + CHUNK])
        finally:
            idle.put(child)

    try:
        for _ in range(workers):
            children.append(_start_child())
            idle.put(children[-1])
        with ThreadPoolExecutor(workers) as pool:
            try:
                for answers in pool.map(ask_any, range(0, len(tasks), CHUNK)):
                    found += answers
                    progress.advance(len(answers))
            except BaseException:
                _stop(children)  # the other threads wait for answers: end their children before the pool waits for them
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        _stop(children)
    progress.done()
    return found


def _start_child() -> subprocess.Popen[str]:
    """Starts a parsing process; the end of its pipe ends it."""
    command = [sys.executable, "-E", "-s", "-P", "-W", "ignore", str(Path(modules.__file__))]
    return start_child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def _ask(child: subprocess.Popen[str], tasks: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Sends one line of tasks and returns the answers."""
    assert child.stdin and child.stdout
    try:
        child.stdin.write(json.dumps(tasks) + "\n")
        child.stdin.flush()
        answer = child.stdout.readline()
    except (BrokenPipeError, ValueError):
        answer = ""
    if not answer:
        problem = f"a parsing process ended with code {child.wait()} between {tasks[0][0]} and {tasks[-1][0]}"
        raise InputError(problem, "free some memory, or build with one thread")
    return json.loads(answer)


def _stop(children: Sequence[subprocess.Popen[str]]) -> None:
    for child in children:
        child.kill()
    for child in children:
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
