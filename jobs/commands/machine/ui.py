"""Starts the web UI with its daemon and its code server, on this machine only.

The open-source web server has no login, so it listens on the loopback address, and a guard (jobs/web/same_origin.py) refuses requests of
other web pages. To reach it from elsewhere, put a proxy with authentication before it, or forward the port: `ssh -L 3000:127.0.0.1:3000
HOST`.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import dagster as dg

from graphmill.assets.building import guard
from graphmill.assets.building.child import Child, end_group, module_environment
from graphmill.assets.building.interrupts import stop_event
from graphmill.assets.pipeline.file import FOLDER_VARIABLE, pipelines_folder
from graphmill.assets.storage.names.home import ROOT
from graphmill.assets.storage.system.filesystem import take_lock
from graphmill.jobs.operations.reload import UI_VARIABLE
from graphmill.jobs.runs.dead_runs import RUNNING, tell_dead_runs
from graphmill.jobs.runs.instance import environment, init_home, open_instance
from graphmill.jobs.runs.shown import shown_examples
from graphmill.jobs.web.__main__ import NAMES_VARIABLE, PORT_VARIABLE
from graphmill.jobs.web.healthy import LOCK
from graphmill.kernels.environment import SERVER_SOCKET, TEMPORARY, all_variables, socket_folder
from graphmill.kernels.errors import InputError

ADDRESS = "127.0.0.1"
PORT = 3000
PORTS_TRIED = 20
WORKSPACE = ROOT / "workspace.yaml"
LONGEST_ADDRESS = 64
STOP_SECONDS = 1.0
"""Seconds in which the leading process may end the others in order; after them each gets the signals of `guard.end_group`."""
IDLE_GRACE = (0.7, 0.3, 5.0)
"""The same for servers that carry out no run."""
LAST_LINES_SECONDS = 2.0
"""Seconds to wait for the last lines of servers that ended by themselves."""
HEARTBEAT = {"DAGSTER_GRPC_PROXY_HEARTBEAT_TTL_SECONDS": "600"}
"""Seconds without a sign of its parent after which a code server ends, and nothing starts it again. They count by the clock: with Dagster's
30, a machine that was suspended may wake up without one."""
SUPERSEDED = "ignore:Function `dev_command`"
"""Dagster's warning that `dg dev` will come after `dagster dev`, which does not concern users of `graphmill ui`."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""What Dagster puts around the words of its lines, on a terminal or not."""
RUN_LINE = re.compile(r" - dagster - \w+ - \S+ - [0-9a-f-]{36} - \S+ - (.*)")
"""A line of the log of a run, with the text that a step wrote."""
REMEMBERED_LINES = 200
END_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Makes the kernel interrupt a process when its parent is gone, killed with SIGKILL for example."""


def serve(
    home: Path | None = None, port: int | None = None, report: Callable[[str], None] = print, names: Sequence[str] = ()
) -> None:
    """Runs the web UI, its daemon and its code server until Ctrl-C or SIGTERM, and ends all of them and their runs then.

    Args:
        port: None for 3000, or the next free one.
        names: names under which a proxy serves it, each with its port unless that is 80 or 443.

    Raises:
        InputError: a web UI of this home runs already, the port is taken, the home cannot be written, or GRAPHMILL_EXAMPLES is neither 0
            nor 1; or the servers ended by themselves.
    """
    shown_examples()
    folder, _ = init_home(home)
    lock = only_one(folder)
    with open_instance(folder) as instance:
        tell_dead_runs(instance, report)
    address = f"http://{ADDRESS}:{(chosen := free_port(port))}"
    os.pwrite(lock, address.encode().ljust(LONGEST_ADDRESS), 0)
    report(f"the web UI is at {address} in a few seconds; its history and artifacts are in {folder}")
    sys.stdout.flush()
    with stop_event() as stop:
        command = [sys.executable, "-c", END_WITH_PARENT, "-W", SUPERSEDED, *dev_arguments([WORKSPACE], chosen)]
        variables = all_variables() | server_environment(folder, chosen, names)
        lines = OnceEach()

        def heard(stream: str, line: str) -> None:
            # After a stop each would print a traceback of its interrupt.
            if not stop.is_set() and (said := lines.plain(line)) is not None:
                print(said, flush=True)

        servers = Child(command, variables, heard, pass_fds=[lock], stderr=subprocess.STDOUT)
        try:
            while servers.code is None and not stop.is_set():
                stop.wait(guard.POLL_SECONDS)
            asked = stop.is_set()
        finally:
            _end(servers, folder)
    if not asked:
        servers.join(LAST_LINES_SECONDS)
        remedy = "its last lines are above; start it again"
        raise InputError(f"the web UI ended by itself, with exit code {servers.code}", remedy)
    report("the web UI has stopped")


class OnceEach:
    """Lines of servers as they are printed: without colours, and once. Dagster prints those of a step twice, once as log of the run."""

    def __init__(self) -> None:
        self._said: deque[tuple[str, bool]] = deque(maxlen=REMEMBERED_LINES)

    def plain(self, line: str) -> str | None:
        """Returns a line without colours, None if its text was there already in the other of the two forms."""
        line = COLOUR.sub("", line)
        logged = RUN_LINE.search(line)
        text, is_logged = (logged[1] if logged else line).strip(), logged is not None
        if text and (text, not is_logged) in self._said:
            self._said.remove((text, not is_logged))
            return None
        self._said.append((text, is_logged))
        return line


def _end(servers: Child, home: Path) -> None:
    """Interrupts the leading process, which ends the others in order, then the rest of its group, runs included.

    Args:
        home: the home, whose history tells whether a run goes on; without one, servers that do not end are killed soon.
    """
    servers.signal(signal.SIGINT)
    limit = time.monotonic() + STOP_SECONDS
    busy = True
    with suppress(InputError), open_instance(home) as instance:
        busy = instance.get_runs_count(dg.RunsFilter(statuses=list(RUNNING))) > 0
    while servers.code is None and time.monotonic() < limit:
        time.sleep(guard.POLL_SECONDS / 4)
    end_group(servers.process, guard.GRACE if busy else IDLE_GRACE)


def only_one(home: Path) -> int:
    """Returns a descriptor that keeps other web UIs of a home from starting; it lives as long as the processes that inherit it.

    Two daemons on one history would both launch the runs of a schedule.

    Raises:
        InputError: a web UI of this home runs; its address is named.
    """
    path = home / LOCK
    lock = take_lock(path, create=True)
    if lock is None:
        address = path.read_text(errors="replace").strip() or "an address that it has not printed yet"
        raise InputError(f"a web UI of {home} runs already, at {address}", "open that, or stop it first with Ctrl-C")
    os.set_inheritable(lock, True)
    return lock


def dev_arguments(workspaces: Sequence[Path], port: int) -> list[str]:
    """Returns the arguments of Python that start the web server, the daemon and the code servers of workspace files."""
    files = [word for path in workspaces for word in ("-w", str(path))]
    return ["-m", "graphmill.jobs.web", "dev", *files, "-h", ADDRESS, "-p", str(port)]


def server_environment(home: Path, port: int, names: Sequence[str] = ()) -> dict[str, str]:
    """Returns the environment of the UI's processes: the home, the pipelines folder as seen from here, and the server's names."""
    pipelines = pipelines_folder().absolute()
    called = {UI_VARIABLE: f"http://{ADDRESS}:{port}", PORT_VARIABLE: str(port), NAMES_VARIABLE: " ".join(names)}
    own = {FOLDER_VARIABLE: str(pipelines), TEMPORARY: socket_folder(SERVER_SOCKET)}
    return environment(home) | called | HEARTBEAT | module_environment() | own


def free_port(port: int | None) -> int:
    """Returns the port when it is free; for None the first free one from 3000 on; raises InputError if the port is taken."""
    for candidate in [port] if port is not None else range(PORT, PORT + PORTS_TRIED):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((ADDRESS, candidate))
                return candidate
            except OSError:
                continue
    tried = port if port is not None else f"{PORT} to {PORT + PORTS_TRIED - 1}"
    raise InputError(f"port {tried} of {ADDRESS} is taken", "stop what uses it, or give another one: --port NUMBER")
