"""Child processes: programs, and functions of this project in processes of their own.

Every child finds this project's modules. It leads a session of its own, unless it is said that it stays in the process group of its parent:
a terminal's Ctrl-C reaches the parent alone, which ends its children. So that no child outlives a parent that was killed,

- a function in a child (`FunctionChild`) ends with its connection to the parent;
- a program of this project calls `end_with_parent` first;
- any other program runs behind a guard (assets/building/guard.py), which ends the whole process group.

All words about the way in which a child ended are here, too.
"""

import ctypes
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any

from graphmill.assets.building import guard
from graphmill.assets.building.interrupts import STOPS, blocked
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.names.home import IMPORTED_FROM
from graphmill.assets.storage.system.control_group import kills, limit_bytes
from graphmill.kernels import environment
from graphmill.kernels.environment import SPINS, TUNABLES, WAIT_POLICY
from graphmill.kernels.errors import InputError

PR_SET_PDEATHSIG = 1
NO_CACHE = "glibc.malloc.tcache_count"
"""Name of glibc's setting that gives threads no lists of small freed blocks (trainers/devices/malloc.py says why)."""
NUM_SPINS = "1000"
"""Rounds that a thread of GNU OpenMP spins before it sleeps."""
JOIN_SECONDS = 10.0
"""Seconds to wait for the rest of a child's output; a process that it left behind may keep its streams open."""
OUT, ERR = "out", "err"
"""A child's standard output and standard error."""
ENDED = ("ended",)
"""The last event of a `FunctionChild`: its connection has ended, and so has the process."""
_kills_before: list[int] = []
"""Processes that the kernel had ended for want of memory when this process began to start children."""


def child_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns this process's environment, with `module_environment` and `runtime_environment`."""
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
    """Starts a process in a session of its own, with an empty standard input, unless `options` say otherwise.

    Args:
        environment: all of its variables, None for `child_environment()`.
    """
    note_kills()
    options = {"stdin": subprocess.DEVNULL, "start_new_session": True} | options
    return subprocess.Popen(command, env=environment or child_environment(), **options)


def run_child(
    command: Sequence[str], environment: Mapping[str, str] | None = None, order: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs a process with `order` as its standard input; returns exit status and output. An exception in the meantime ends the process."""
    options: dict[str, Any] = {"start_new_session": True, "capture_output": True, "text": True}
    return subprocess.run(command, check=False, input=order, env=environment or child_environment(), **options)


def await_child(child: subprocess.Popen[Any], check: Callable[[], None], seconds: float) -> int:
    """Waits for the end of a process, and returns its exit status; an exception of `check`, called every `seconds`, ends only the wait."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(seconds)
        check()


class Child:
    """A process that reads an order and writes lines.

    Args:
        hear: receives each line that it writes, with `OUT` or `ERR`; two threads call it.
        order: the text of its standard input.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        hear: Callable[[str, str], None],
        order: str = "",
        **options: Any,
    ):
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = start_child(command, environment, text=True, errors="replace", **streams | options)
        self._threads: list[threading.Thread] = []
        for stream, name in ((self.process.stdout, OUT), (self.process.stderr, ERR)):
            if stream is not None:
                self.on_thread(_pass_on, stream, name, hear)
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.write(order)
            self.process.stdin.close()

    @property
    def code(self) -> int | None:
        """Its exit code, the negative number of the signal that ended it, or None while it runs."""
        return self.process.poll()

    def signal(self, number: int) -> None:
        """Sends a signal to it if it still runs."""
        self.process.send_signal(number)

    def join(self, seconds: float = JOIN_SECONDS) -> None:
        """Waits for the rest of its output, until its streams end."""
        for thread in self._threads:
            thread.join(seconds)

    def on_thread(self, run: Callable[..., None], *arguments: Any) -> None:
        """Calls a function on a thread that `join` waits for."""
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()


def _pass_on(stream: IO[str], name: str, hear: Callable[[str, str], None]) -> None:
    for line in stream:
        hear(name, line.rstrip("\n"))


def start_guarded(
    command: Sequence[str], environment: Mapping[str, str], grace: Sequence[float], **options: Any
) -> subprocess.Popen[Any]:
    """Starts a program behind a guard, which ends the whole process group if this process is gone; `end_group` does the same here.

    Args:
        grace: seconds after each of SIGINT, SIGTERM and SIGKILL.
    """
    guarded = [sys.executable, "-I", guard.__file__, str(os.getpid()), ",".join(map(str, grace)), *command]
    # Between the start and the caller's `try` an interrupt would leave a child; the guard still ends it, together with this process.
    with blocked():  # until the child answers interrupts
        return start_child(guarded, environment, **options)


def end_group(leader: subprocess.Popen[Any], grace: Sequence[float]) -> None:
    """Ends a child that leads a session, and its process group; `grace` seconds after each of SIGINT, SIGTERM and SIGKILL."""

    def gone() -> bool:
        return leader.poll() is not None and not guard.group_members(leader.pid)

    guard.end_group(leader.pid, gone, grace)


class FunctionChild:
    """A function in a child process, which takes and gives Python values over a connection, and the thread that listens to it.

    `multiprocessing` would import the caller's main module again in each child, or fork a process with running threads; only its connection
    is used.

    Args:
        function: function of a module. It is called in the child with the connection, and should end when that does.
        events: queue that gets (child, value) of every value that it sends, and (child, ENDED).
    """

    def __init__(self, function: Callable[[Connection], None], events: queue.Queue[tuple[Any, Any]]):
        self._pipe, theirs = Pipe()
        with theirs:
            code = f"from {__name__} import call_function; call_function()"
            words = [function.__module__, function.__qualname__, str(theirs.fileno())]
            self.process = start_child([sys.executable, "-c", code, *words], pass_fds=[theirs.fileno()])
        self._listener = threading.Thread(target=self._listen, args=(events,), daemon=True)
        self._listener.start()
        # What the child unpickles may come from anywhere that this process can import from.
        self.send(sys.path)

    def send(self, value: Any) -> None:
        """Sends a value; one that a dead child does not get is dropped, since the listener reports its end."""
        with suppress(ConnectionError):
            self._pipe.send(value)

    def end(self, grace: float = 0.0) -> int:
        """Ends the process if it still runs, `grace` seconds after it has got None, and returns its exit status."""
        if grace and not self._pipe.closed:
            self.send(None)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
        self.process.kill()
        status = self.process.wait()
        self._listener.join()
        self._pipe.close()
        return status

    def _listen(self, events: queue.Queue[tuple[Any, Any]]) -> None:
        with suppress(EOFError, ConnectionError):
            while True:
                events.put((self, self._pipe.recv()))
        self.process.wait()
        events.put((self, ENDED))


def call_function() -> None:
    """Is the program of a `FunctionChild`: calls the function with the connection; what it prints goes to standard error."""
    module, name, descriptor = sys.argv[1:]
    pipe = Connection(int(descriptor))
    # The path comes first: what is imported and unpickled then is found as the parent finds it.
    sys.path.extend(path for path in pipe.recv() if path not in sys.path)
    os.dup2(2, 1)
    getattr(import_module(module), name)(pipe)


def received(pipe: Connection, ended: Callable[[], None] | None = None) -> queue.Queue[Any]:
    """Returns a queue of what the parent sends, which a thread receives; `ended`, or None in the queue, says that the parent is gone."""
    values: queue.Queue[Any] = queue.Queue()

    def run() -> None:
        with suppress(EOFError, ConnectionError):
            while True:
                values.put(pipe.recv())
        values.put(None) if ended is None else ended()

    threading.Thread(target=run, daemon=True).start()
    return values


def how_it_ended(status: int) -> str:
    """Returns an exit status in words: the name of the signal that ended a process, or its exit code."""
    if status == -signal.SIGKILL:
        return f"SIGKILL ({why_killed()})"
    if status == -signal.SIGABRT and (why := why_aborted()):
        return f"SIGABRT ({why})"
    return signal.Signals(-status).name if status < 0 else f"exit code {status}"


def how_ended(status: int) -> str:
    """Returns an exit status as the end of a sentence: "was ended by SIGTERM"."""
    if status == -signal.SIGKILL:
        return f"was killed (SIGKILL, {why_killed()})"
    if status == -signal.SIGABRT and (why := why_aborted()):
        return f"gave up, {why}"
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"


def note_kills() -> None:
    """Counts the processes that the kernel has ended for want of memory, once, before the first child: `why_killed` compares with it."""
    if not _kills_before:
        _kills_before.append(kills())


class KilledError(InputError):
    """A child that was killed: the one failure of a step that Dagster may try again, if a retry policy says so."""


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
