"""The process behind assets/part_pool.py: builds the parts that it is asked for, one after the other.

    python -m assets.part_worker

Standard input brings Python's path, a job and then names of parts; its end ends the process, in the middle of a part too.
Answers go to what was standard output; what a stage prints goes to standard error.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from typing import Any, BinaryIO

from assets.part_pool import receive, send
from kernels.errors import InputError


def main() -> None:
    """Builds parts until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # The path first: what a job refers to is imported when it is understood.
    sys.path.extend(path for path in receive(sys.stdin.buffer) or () if path not in sys.path)
    job = receive(sys.stdin.buffer)
    asked: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, asked), daemon=True).start()
    while True:
        send(answers, _answer(job, asked.get(), answers))


def _answer(job: Any, part: str, answers: BinaryIO) -> tuple[Any, ...]:
    from assets.stage import ChecksFailedError

    try:
        job.build(part, _Sent(answers))
        return ("done",)
    except ChecksFailedError as error:
        return ("input error", error.problem, error.remedy, error.checks)
    except InputError as error:
        return ("input error", error.problem, error.remedy, None)
    except Exception:
        return ("error", traceback.format_exc())


class _Sent:
    """A `Progress` whose steps go to the parent."""

    def __init__(self, answers: BinaryIO):
        self._answers = answers

    def start(self, label: str, total: int | None, unit: str) -> None:
        """The parent has a phase of its own."""

    def advance(self, n: int) -> None:
        """Sends the step."""
        send(self._answers, ("advance", n))

    def done(self) -> None:
        """The parent has a phase of its own."""


def _listen(pipe: BinaryIO, asked: queue.Queue[str]) -> None:
    while (part := receive(pipe)) is not None:
        asked.put(part)
    os._exit(1)  # the parent is gone


if __name__ == "__main__":
    main()
