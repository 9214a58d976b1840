"""The process behind assets/building/part_pool.py: builds the parts that its parent names, one after the other.

    python -m graphmill.assets.building.part_worker DESCRIPTOR

A connection on that descriptor brings Python's path, the `Build` and then names of parts, and takes the answers; its end ends the process,
even in the middle of a part. The prints of a stage go to standard error.
"""

from __future__ import annotations

import os
import queue
from functools import partial
from multiprocessing.connection import Connection

from graphmill.assets.building.answers import answer_of
from graphmill.assets.building.piped_child import listen, open_pipe
from graphmill.assets.building.stage import Progress


def main() -> None:
    """Builds parts until the connection ends."""
    pipe = open_pipe()
    os.dup2(2, 1)
    build = pipe.recv()
    asked: queue.Queue[str] = queue.Queue()
    listen(pipe, asked.put, lambda: os._exit(1))
    while True:
        pipe.send(answer_of(partial(build.publish, _Sent(pipe), part=asked.get())))


class _Sent(Progress):
    """A `Progress` whose steps go to the parent, which has a phase of its own."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe

    def advance(self, n: int) -> None:
        """Sends the step."""
        self._pipe.send(("advance", n))


if __name__ == "__main__":
    main()
