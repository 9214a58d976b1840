"""Starts the web UI with its daemon and its code server, on this machine only.

The open-source web server asks nobody who they are and accepts changes from other web pages, so it listens on the loopback address. To
reach it from elsewhere, put a proxy with authentication before it, or forward the port: `ssh -L 3000:127.0.0.1:3000 HOST`.
"""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from assets.pipeline.file import FOLDER_VARIABLE
from assets.storage.filesystem import take_lock
from jobs.runs.children import ROOT
from jobs.runs.dead_runs import fail_dead_runs
from jobs.runs.instance import environment, init_home, open_instance
from kernels.errors import InputError

ADDRESS = "127.0.0.1"
PORT = 3000
PORTS_TRIED = 20
WORKSPACE = ROOT / "workspace.yaml"
LOCK = "ui.lock"
LONGEST_ADDRESS = 64


def serve(home: Path | None = None, port: int | None = None, report: Callable[[str], None] = print) -> None:
    """Replaces this process by the web UI, its daemon and its code server; Ctrl-C ends them.

    Args:
        home: home of store and history, None for the default.
        port: None for 3000, or the next free one.
        report: gets the address.

    Raises:
        InputError: a web UI of this home runs already, the port is taken, or the home cannot be written.
    """
    folder, _ = init_home(home)
    lock = only_one(folder)
    with open_instance(folder) as instance:
        for run_id in fail_dead_runs(instance):
            report(f"run {run_id[:8]} of an earlier process is gone; it is marked as failed")
    chosen = free_port(port)
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(WORKSPACE), "-h", ADDRESS, "-p", str(chosen)]
    address = f"http://{ADDRESS}:{chosen}"
    os.pwrite(lock, address.encode().ljust(LONGEST_ADDRESS), 0)
    report(f"the web UI is at {address} in a few seconds; its history and artifacts are in {folder}")
    sys.stdout.flush()
    os.execve(sys.executable, command, os.environ | server_environment(folder))


def only_one(home: Path) -> int:
    """Returns a descriptor that keeps other web UIs of a home from starting; it lives as long as the processes that inherit it.

    Two daemons on one history would both launch what a schedule asks for.

    Raises:
        InputError: a web UI of this home runs; its address is named.
    """
    path = home / LOCK
    lock = take_lock(path, create=True)
    if lock is None:
        address = path.read_text().strip() or "an address that it has not printed yet"
        raise InputError(f"a web UI of {home} runs already, at {address}", "open that, or stop it first with Ctrl-C")
    os.set_inheritable(lock, True)
    return lock


def server_environment(home: Path) -> dict[str, str]:
    """Returns the environment of the UI's processes: the home, and the pipelines folder as seen from here."""
    pipelines = Path(os.environ.get(FOLDER_VARIABLE) or "pipelines").absolute()
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return environment(home) | {FOLDER_VARIABLE: str(pipelines), "PYTHONPATH": os.pathsep.join(paths)}


def free_port(port: int | None) -> int:
    """Returns the port when it is free; for None the first free one from 3000 on.

    Raises:
        InputError: it is taken.
    """
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
