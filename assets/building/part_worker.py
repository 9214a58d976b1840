"""The process behind assets/building/part_pool.py: builds the parts that its parent names, one after the other.

    python -m assets.building.part_worker DESCRIPTOR

A connection on that descriptor brings Python's path, the `Build` and then names of parts, and takes the answers; its end ends the process,
even in the middle of a part. The prints of a stage go to standard error.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from assets.building.stage import ChecksFailedError, Progress
from assets.storage.refused import refusal


def main() -> None:
    """Builds parts until the connection ends."""
    pipe = Connection(int(sys.argv[1]))
    os.dup2(2, 1)
    # The path comes first: unpickling the build imports modules from it.
    sys.path.extend(path for path in pipe.recv() if path not in sys.path)
    build = pipe.recv()
    asked: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(pipe, asked), daemon=True).start()
    while True:
        pipe.send(_answer(build, asked.get(), pipe))


def _answer(build: Any, part: str, pipe: Connection) -> tuple[Any, ...]:
    try:
        build.publish(_Sent(pipe), part=part)
        return ("done",)
    except ChecksFailedError as error:
        return ("input error", error.problem, error.remedy, error.checks)
    except Exception as error:
        said = refusal(error)
        if said is not None:
            return ("input error", said.problem, said.remedy, None)
        return ("error", traceback.format_exc())


class _Sent(Progress):
    """A `Progress` whose steps go to the parent, which has a phase of its own."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe

    def advance(self, n: int) -> None:
        """Sends the step."""
        self._pipe.send(("advance", n))


def _listen(pipe: Connection, asked: queue.Queue[str]) -> None:
    with suppress(EOFError, ConnectionError):
        while True:
            asked.put(pipe.recv())
    os._exit(1)  # the parent is gone


if __name__ == "__main__":
    main()
