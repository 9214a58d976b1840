"""Runs a command as the leader of its process group and ends the whole group when the parent is gone.

    python -I assets/building/guard.py PARENT_PID GRACE COMMAND [ARGUMENT ...]

A process that is killed with SIGKILL cannot notify its children. The guard asks the system a few times a second whether its parent
still lives; when it does not, every process of the group gets SIGINT, then SIGTERM, then SIGKILL. GRACE is the seconds after each of
the three, as in 10,5,5. The guard outlives the first two itself, so it is there to send the last. It ends with the exit code of the
command, 128 + n after signal n. It imports only the standard library, so it starts in tens of milliseconds.
"""

import ctypes
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

POLL_SECONDS = 0.2
MOST_COUNTED = 0.5
"""Most seconds that one turn of waiting counts for."""
PR_SET_PDEATHSIG = 1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
GRACE = (10.0, 5.0, 5.0)
"""Seconds to wait for the group to be gone after each of the signals."""


def end_group(group_id: int, gone: Callable[[], bool], grace: Sequence[float] = GRACE) -> None:
    """Sends SIGINT, SIGTERM and SIGKILL to a process group, `grace` seconds after one another, until `gone` tells that it is empty."""
    for number, seconds in zip(SIGNALS, grace, strict=True):
        if gone():
            return
        try:
            os.killpg(group_id, number)
        except ProcessLookupError:
            return
        left = seconds
        while left > 0 and not gone():
            began = time.monotonic()
            time.sleep(0.05)
            # While the whole machine stands still, as a suspended one does, the group cannot end either.
            left -= min(time.monotonic() - began, MOST_COUNTED)


def group_members(group_id: int) -> list[int]:
    """Returns the ids of the living processes of a group; one that is dead but not yet collected does not count."""
    members = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    state, _, group = file.read().rpartition(")")[2].split()[:3]
            except OSError:  # it ended meanwhile
                continue
            if int(group) == group_id and state not in "ZX":
                members.append(int(name))
    return members


def watch(parent_id: int, grace: Sequence[float], command: Sequence[str]) -> int:
    """Runs the command until it ends, or until the parent is gone. Returns the exit code."""
    # A handler and not SIG_IGN: an ignored signal stays ignored across exec, and the command could not be interrupted.
    for number in SIGNALS[:2]:
        signal.signal(number, lambda *_: None)
    # Signals that the parent blocked stay so in the command until it answers them: an interrupted import would print a traceback.
    # If the guard is killed together with its parent, no process is left to end the command: the system does it.
    end_with_guard = functools.partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGKILL)
    child = subprocess.Popen(command, preexec_fn=end_with_guard)  # noqa: PLW1509
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS[:2])
    while child.poll() is None:
        if os.getppid() != parent_id:
            end_group(os.getpgrp(), lambda: group_members(os.getpgrp()) == [os.getpid()], grace)
            return 1
        time.sleep(POLL_SECONDS)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    sys.exit(watch(int(sys.argv[1]), [float(part) for part in sys.argv[2].split(",")], sys.argv[3:]))
