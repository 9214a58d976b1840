"""Ends a training's process that cannot continue.

One of its threads may wait in a collective call that its peers will never make, or hang in native code. Python would wait for the first,
and abort when the second returns while the interpreter ends. So a process that fails prints the reason and ends at once; its connections
close, and its peers notice. Nothing is lost: checkpoints and artifacts are whole or absent.
"""

import json
import os
import sys
import threading
import traceback
from typing import NoReturn

from graphmill.assets.storage.system.refused import refusal
from graphmill.kernels import environment
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.launch import ERRORS, EXIT_PEER, MOST_RANKS

EXIT_INPUT, EXIT_INTERRUPTED, EXIT_DEFECT = 1, 130, 70
UNWIND_SECONDS = 3.0


def leave(error: BaseException) -> NoReturn:
    """Reports an error and ends this process."""
    said = refusal(error)
    if said is not None:
        report(said)
        code = EXIT_INPUT
    elif isinstance(error, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    else:
        traceback.print_exception(error)
        code = EXIT_DEFECT
    end(code)


def end(code: int) -> NoReturn:
    """Ends this process at once, whatever its threads do."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def report(error: InputError) -> None:
    """Reports an input error to the launcher, or on standard error without a launcher."""
    if not environment.is_set(ERRORS):
        print(f"python -m trainers: {error}", file=sys.stderr)
        return
    with open(environment.whole_number(ERRORS, "", 0, MOST_RANKS, "unset it"), "w") as pipe:
        json.dump({"problem": error.problem, "remedy": error.remedy}, pipe)


def leave_soon(problem: str) -> None:
    """Ends this process within seconds because others are gone, whatever its threads wait for."""

    def end() -> None:
        print(f"python -m trainers: {problem}", file=sys.stderr, flush=True)
        os._exit(EXIT_PEER)

    timer = threading.Timer(UNWIND_SECONDS, end)
    timer.daemon = True
    timer.start()
