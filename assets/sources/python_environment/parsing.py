"""Parses many modules in several processes, each a plain child that reads tasks from a pipe.

`multiprocessing` would import the caller's main module again in each worker (or fork a process with running threads),
and its idle workers outlive a parent that was killed. These children run one file that needs only the standard library, and end with their
pipe.

A single worker is a child, too. Python's parser limits the nesting of a module by the recursion limit and the depth of the call, which are
the same in every child but not in every caller.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.building.child import start_child
from assets.sources.python_environment import modules
from kernels.errors import InputError

if TYPE_CHECKING:
    from assets.building.stage import Progress

CHUNK = 32
"""Modules per task line; few, since one package's modules may be far larger than another's."""


def parse_modules(
    tasks: Sequence[tuple[str, str, bool, int]], workers: int, progress: Progress
) -> list[dict[str, Any]]:
    """Returns `modules.describe` of every task, in the order of the tasks.

    Args:
        tasks: arguments of `describe`.
        workers: number of processes, at least 1; the result does not depend on it. Few tasks use fewer.
        progress: listener, which gets every module.

    Raises:
        InputError: a process ended early (killed, or out of memory).
    """
    workers = max(1, min(workers, len(tasks) // CHUNK))
    progress.start("parse modules", len(tasks), "modules")
    found = _parse_in_processes(tasks, workers, progress)
    progress.done()
    return found


def _parse_in_processes(
    tasks: Sequence[tuple[str, str, bool, int]], workers: int, progress: Progress
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{}] * len(tasks)
    starts, lock = iter(range(0, len(tasks), CHUNK)), threading.Lock()
    children: list[subprocess.Popen[str]] = []

    def drive(child: subprocess.Popen[str]) -> None:
        for low in _shared(starts, lock):
            found[low : low + CHUNK] = _ask(child, tasks[low : low + CHUNK])
            with lock:
                progress.advance(len(tasks[low : low + CHUNK]))

    try:
        children.extend(_start_child() for _ in range(workers))
        with ThreadPoolExecutor(workers) as pool:
            try:
                for future in [pool.submit(drive, child) for child in children]:
                    future.result()
            except BaseException:
                _stop(children)  # the other threads wait for answers: end their children before the pool waits for them
                raise
    finally:
        _stop(children)
    return found


def _shared(starts: Iterator[int], lock: threading.Lock) -> Iterator[int]:
    """Yields the next start that no other thread has taken."""
    while True:
        with lock:
            low = next(starts, None)
        if low is None:
            return
        yield low


def _start_child() -> subprocess.Popen[str]:
    """Starts a parsing process; the end of its pipe ends it."""
    command = [sys.executable, "-E", "-s", "-P", "-W", "ignore", str(Path(modules.__file__))]
    return start_child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def _ask(child: subprocess.Popen[str], tasks: Sequence[tuple[str, str, bool, int]]) -> list[dict[str, Any]]:
    """Sends one line of tasks and returns the answers."""
    assert child.stdin and child.stdout
    try:
        child.stdin.write(json.dumps(tasks) + "\n")
        child.stdin.flush()
        answer = child.stdout.readline()
    except (BrokenPipeError, ValueError):
        answer = ""
    if not answer:
        raise InputError(
            f"a parsing process ended with code {child.wait()} between {tasks[0][0]} and {tasks[-1][0]}",
            "free some memory, or build with one thread",
        )
    return json.loads(answer)


def _stop(children: Sequence[subprocess.Popen[str]]) -> None:
    """Kills the children and waits for their ends."""
    for child in children:
        child.kill()
    for child in children:
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
