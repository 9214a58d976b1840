"""Runs Python programs as processes of their own, in forks of one that has imported what they need (tests/fork_server.py).

A program that trains spends two seconds on imports before it does anything, and tests start hundreds. `run` takes what `subprocess.run`
would be told and answers as it does; its program has its own process, environment, folder, output and end, and may kill itself. What it
does not have is a start of its own: a test of that, or one that sets what libraries read when they are loaded (OMP_NUM_THREADS), starts
a process.

Nothing is computed in the process that is forked, so of the libraries' threads only those of NumPy's linear algebra are there, which
starts them anew after a fork.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "graphmill.jobs.cli", "graphmill.jobs.launch", "graphmill.jobs.definitions", "graphmill.jobs.commands.results.leaderboard",
    "graphmill.jobs.figures.curves", "graphmill.assets.graph.stage", "graphmill.assets.features.stage",
    "graphmill.assets.sampling_tables.stage", "graphmill.assets.partitions.stage", "graphmill.assets.chunks.stage",
    "graphmill.assets.shards.stage", "graphmill.assets.hotness.stage", "graphmill.assets.budgets.stage",
    "graphmill.assets.samples.stage", "graphmill.assets.cache_plan.stage", "graphmill.assets.packed_chunks.stage",
    "graphmill.assets.storage.remote.collect", "graphmill.trainers.techniques.fresh_factored.costs",
    "dagster._core.storage.sqlite_storage", "dagster._core.storage.root", "dagster._core.storage.migration.utils",
    "dagster._core.storage.local_compute_log_manager", "dagster._core.instance.factory", "dagster._core.secrets.loader",
    "dagster._core.executor.in_process", "dagster._core.execution.execute_in_process",
    "matplotlib.backends.backend_agg", "matplotlib.figure", "PIL.Image", "duckdb", "upath.implementations.local",
)  # fmt: skip
"""What commands import, what they import when they are needed included. Polars is not among it: it starts threads when it is imported, and
they would not be there after a fork."""

TRAININGS = (
    "graphmill.trainers.__main__",
    "graphmill.trainers.training.stage",
    "graphmill.trainers.loop.loop",
    "graphmill.trainers.training.open_rows",
    "graphmill.trainers.training.open_rows",
    "graphmill.trainers.inference.evaluation",
    "graphmill.trainers.techniques.stored_costs",
    "graphmill.trainers.techniques.fresh_factored.costs",
    "graphmill.trainers.techniques.disk",
    "graphmill.trainers.techniques.factored.executor",
    "graphmill.trainers.techniques.fresh.executor",
    "graphmill.trainers.techniques.fullgraph.executor",
    "graphmill.assets.hotness.rankings",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "torch.profiler",
)
"""What trainings import, and what they import when they are needed."""

READERS = ("graphmill.assets.sources.dgl.reader", "dgl")
"""What the processes that read files of DGL import."""


def run(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    imports: tuple[str, ...] = (),
    input: str = "",
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Runs `python WORDS` to its end and returns exit code and output, as `subprocess.run` does.

    Args:
        words: `-m MODULE` or `-c CODE`, and arguments.
        cwd: the folder that it runs in.
        env: its environment variables; those of this process by default.
        imports: modules that are imported before the fork. Programs with the same ones share a process.
        input: its standard input.
        timeout: seconds after which it is killed.
    """
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        given.write(input)
        given.flush()
        started = start(words, cwd=cwd, env=env, imports=imports, given=given, out=out, err=err)
        try:
            code = started.wait(timeout)
        except TimeoutError:
            started.send_signal(signal.SIGKILL)
            started.wait()
            raise subprocess.TimeoutExpired([sys.executable, *words], timeout, _text(out), _text(err)) from None
        return subprocess.CompletedProcess([sys.executable, *words], code, _text(out), _text(err))


def start(
    words: Sequence[str],
    *,
    cwd: Path,
    out: IO[str],
    err: IO[str],
    given: IO[str] | None = None,
    env: Mapping[str, str] | None = None,
    imports: tuple[str, ...] = (),
    new_session: bool = False,
) -> Started:
    """Starts what `run` runs. It is killed when this process ends before it.

    Args:
        words, cwd, env, imports: as in `run`.
        out, err: the files that its output is appended to.
        given: the file that is its standard input.
        new_session: whether it leads a process group of its own and heeds interrupts, as a command at a terminal does.
    """
    files = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, err)]
    order = {"words": list(words), "cwd": str(cwd), "env": dict(os.environ if env is None else env), "files": files}
    order["given"] = f"/proc/{os.getpid()}/fd/{given.fileno()}" if given else os.devnull
    return Started(_address(imports), order | {"new_session": new_session})


def command(path: Path, words: Sequence[str], imports: tuple[str, ...]) -> None:
    """Writes an executable file that runs `python WORDS` and its arguments in a fork. It has no standard input.

    Args:
        path: the file.
        words, imports: as in `run`.
    """
    path.write_text(f"#!{sys.executable} -IS\n{CLIENT.format(address=_address(imports), words=list(words))}")
    path.chmod(0o755)


CLIENT = """
import json, os, socket, sys
files = [f"/proc/{{os.getpid()}}/fd/{{number}}" for number in (1, 2)]
order = {{"words": {words!r} + sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}}
order |= {{"files": files, "given": os.devnull}}
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    connection.sendall((json.dumps(order) + "\\n").encode())
    answers = connection.makefile()
    answers.readline()
    code = int(answers.readline())
sys.exit(code if code >= 0 else 128 - code)
"""
"""A program that has another one run in a fork, with its own folder, environment and output."""


class Started:
    """A program that runs in a fork."""

    def __init__(self, address: str, order: Mapping[str, object]):
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(address)
        self.connection.sendall((json.dumps(order) + "\n").encode())
        self.answers = self.connection.makefile()
        self.pid = int(self.answers.readline())

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end and returns its exit code, negative for a signal.

        Raises:
            TimeoutError: it did not end in this number of seconds.
        """
        if not select.select([self.connection], [], [], timeout)[0]:
            raise TimeoutError
        answer = self.answers.readline()
        self.connection.close()
        return int(answer)


def parent(imports: tuple[str, ...]) -> int:
    """Returns the id of the process that programs with these `imports` are children of, for one that ends with its parent."""
    if not _STARTING and os.path.exists(_starter()):
        return _ask_starter(imports)
    return _server(imports).pid


FOLDER = "GRAPHMILL_TEST_FORKS"
"""Environment variable with the folder of the sockets that are asked. Programs in forks inherit it and use the processes that are there."""


def start_for_all() -> None:
    """Lets all processes of pytest-xdist use the same processes to fork, which this one, their parent, starts when one of them asks.

    A run that a test starts asks the parent of the whole run.
    """
    if os.path.exists(_starter()):
        return
    asked = socket.socket(socket.AF_UNIX)
    asked.bind(_starter())
    asked.listen()
    _STARTING.append(asked)

    def answer() -> None:
        while True:
            connection = asked.accept()[0]
            with connection, connection.makefile() as orders:
                connection.sendall(f"{_server(tuple(json.loads(orders.readline()))).pid}\n".encode())

    threading.Thread(target=answer, daemon=True).start()


_STARTING: list[socket.socket] = []
"""The socket on which this process is asked to start others, if it is."""


def _starter() -> str:
    return os.path.join(folder(), "starter")


def _ask_starter(imports: tuple[str, ...]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(_starter())
        connection.sendall(f"{json.dumps(imports)}\n".encode())
        with connection.makefile() as answers:
            return int(answers.readline())


def _address(imports: tuple[str, ...]) -> str:
    """Returns the socket of the process with these modules, which is started if there is none."""
    path = _socket(imports)
    if not os.path.exists(path):
        parent(imports)
    return path


def folder() -> str:
    """Returns the folder of the sockets, which all processes of a run share."""
    if FOLDER not in os.environ:
        made = tempfile.TemporaryDirectory(prefix="forks-")
        atexit.register(made.cleanup)
        os.environ[FOLDER] = made.name
    return os.environ[FOLDER]


def _socket(imports: tuple[str, ...]) -> str:
    return os.path.join(folder(), hashlib.sha256(" ".join(imports).encode()).hexdigest()[:12])


@functools.cache
def _server(imports: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """The process that is forked. It ends with this one, which holds the other end of its standard input."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.bind(_socket(imports))
        asked.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(asked.fileno()), *imports],
            cwd=ROOT, env=os.environ | {"DGLBACKEND": "pytorch"}, stdin=subprocess.PIPE, pass_fds=[asked.fileno()],
        )  # fmt: skip
    atexit.register(os.unlink, _socket(imports))
    atexit.register(process.terminate)
    return process


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
