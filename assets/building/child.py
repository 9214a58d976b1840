"""How this project starts processes: with its own modules on their path and in a session of their own.

A session of its own keeps a terminal's Ctrl-C from a child: the parent gets it and ends its children. The caller has to end its children.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from graphmill.assets.building.interrupts import STOPS
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.control_group import kills, limit_bytes
from graphmill.assets.storage.home import IMPORTED_FROM
from graphmill.kernels import environment
from graphmill.kernels.environment import SPINS, TUNABLES, WAIT_POLICY

PR_SET_PDEATHSIG = 1
NO_CACHE = "glibc.malloc.tcache_count"
"""Name of glibc's setting that gives threads no lists of small freed blocks (trainers/devices/malloc.py says why)."""
NUM_SPINS = "1000"
"""Rounds that a thread of GNU OpenMP spins before it sleeps."""

_kills_before: list[int] = []
"""Processes that the kernel had ended for want of memory when this process began to start children."""


def child_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns this process's environment, with `module_environment` and `runtime_environment`.

    Args:
        more: additional variables of the child.
    """
    return environment.all_variables() | module_environment() | runtime_environment() | dict(more or {})


def module_environment() -> dict[str, str]:
    """Returns the variables by which Python finds this package, and none in the user's current folder.

    A user's `numpy.py` would be imported by every `python -m`. The user's own path comes first: a clone has folders, such as `tests`, that
    a user's project has, too.
    """
    given = environment.read(environment.PYTHON_PATH).split(os.pathsep)
    paths = [*filter(None, given), str(IMPORTED_FROM)]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONSAFEPATH": "1"}


def runtime_environment() -> dict[str, str]:
    """Returns the variables that the C library and OpenMP read when a program starts; a user's own settings stand.

    Small freed blocks do not cut the heap. Threads that wait for the next loop sleep after 10 microseconds or so: they would spin for
    milliseconds on a core that the threads which sample, or those of another library, need (an epoch of GraphSAGE took 8 % longer).
    """
    given = environment.read(TUNABLES)
    heap = {TUNABLES: given if NO_CACHE in given else ":".join(filter(None, [given, f"{NO_CACHE}=0"]))}
    return heap if environment.is_set(SPINS) or environment.is_set(WAIT_POLICY) else heap | {SPINS: NUM_SPINS}


def begin_as_trainings() -> None:
    """Begins this program again, in the same process, with `runtime_environment`, unless it has that: they are read at the start alone."""
    if any(environment.read(name) != value for name, value in runtime_environment().items()):
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # until the program answers them again
        os.execve(sys.executable, sys.orig_argv, environment.all_variables() | runtime_environment())


def start_child(
    command: Sequence[str], environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Starts a process in a session of its own, with an empty standard input unless `options` give it a pipe.

    Args:
        command: program and arguments.
        environment: all of its variables, None for `child_environment()`.
        options: arguments of `subprocess.Popen`.
    """
    note_kills()
    options = {"stdin": subprocess.DEVNULL, "env": environment or child_environment()} | options
    return subprocess.Popen(command, start_new_session=True, **options)


def run_child(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a process to its end and returns its exit status and output; an exception in the meantime ends the process."""
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "env": environment, "start_new_session": True}
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def how_it_ended(status: int) -> str:
    """Returns an exit status in words: the name of the signal that ended a process, or its exit code."""
    if status == -signal.SIGKILL:
        return f"SIGKILL ({why_killed()})"
    if status == -signal.SIGABRT and (why := why_aborted()):
        return f"SIGABRT ({why})"
    return signal.Signals(-status).name if status < 0 else f"exit code {status}"


def note_kills() -> None:
    """Counts the processes that the kernel has ended for want of memory, once, before the first child: `why_killed` compares with it."""
    if not _kills_before:
        _kills_before.append(kills())


def why_killed() -> str:
    """Returns words about a child that ended by SIGKILL: that the kernel did it, if it has ended a process of the control group since."""
    limit = limit_bytes()
    if _kills_before and kills() > _kills_before[0] and limit is not None:
        return f"by the kernel: the processes of this control group may take {format_bytes(limit)}, and needed more"
    return "often: out of memory"


def why_aborted() -> str:
    """Returns words about a child that ended by SIGABRT if the address space is limited, which libraries answer so; "" without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return ""
    return f"probably for want of address space: `ulimit -v` allows {format_bytes(limit)}; raise it"


def end_with_parent(parent: int | None = None) -> None:
    """Asks the system to kill this process when the one that started it ends.

    Args:
        parent: id of the parent if this process knows it, so that a parent that is gone already is noticed; None for the present parent.
    """
    parent = os.getppid() if parent is None else parent
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before that
        os._exit(1)
