"""Runs Python programs as processes of their own, in forks of one that has imported what they need.

A program that trains spends two seconds on imports before it does anything, and tests start hundreds. `run` takes what `subprocess.run`
would be told and answers as it does; its program has its own process, environment, folder, output and end, and may kill itself. What it
does not have is a start of its own: a test of that, or one that sets what libraries read when they are loaded (OMP_NUM_THREADS), starts
a process.

Nothing is computed in the process that is forked, so of the libraries' threads only those of NumPy's linear algebra are there, which
starts them anew after a fork.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "graphmill.jobs.cli", "graphmill.jobs.launch", "graphmill.jobs.definitions", "graphmill.jobs.commands.leaderboard",
    "graphmill.jobs.figures.pictures", "graphmill.assets.graph.stage", "graphmill.assets.features.stage",
    "graphmill.assets.sampling_tables.stage", "graphmill.assets.partitions.stage", "graphmill.assets.chunks.stage",
    "graphmill.assets.shards.stage", "graphmill.assets.hotness.stage", "graphmill.assets.budgets.stage",
    "graphmill.assets.samples.stage", "graphmill.assets.cache_plan.stage", "graphmill.assets.packed_chunks.stage",
    "graphmill.assets.storage.remote.collect", "graphmill.trainers.techniques.needs",
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
    "graphmill.trainers.training.probe_step",
    "graphmill.trainers.inference.evaluation",
    "graphmill.trainers.techniques.forecasts",
    "graphmill.trainers.techniques.needs",
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
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Runs `python WORDS` to its end and returns exit code and output, as `subprocess.run` does.

    Args:
        words: `-m MODULE` or `-c CODE`, and arguments.
        cwd: the folder that it runs in.
        env: its environment variables; those of this process by default.
        imports: modules that are imported before the fork. Programs with the same ones share a process.
        timeout: seconds after which it is killed.
    """
    return _server(imports).run(words, cwd, dict(os.environ if env is None else env), timeout)


def parent(imports: tuple[str, ...]) -> int:
    """Returns the id of the process that programs with these `imports` are children of, for one that ends with its parent."""
    return _server(imports).process.pid


@functools.cache
def _server(imports: tuple[str, ...]) -> _Server:
    return _Server(imports)


class _Server:
    """The process that is forked, and one request after the other."""

    def __init__(self, imports: tuple[str, ...]):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", *imports],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        atexit.register(self.process.terminate)

    def run(
        self, words: Sequence[str], cwd: Path, env: dict[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            files = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, err)]
            order = {"words": list(words), "cwd": str(cwd), "env": env, "files": files, "timeout": timeout}
            code = self._ask(order)
            said = [_text(file) for file in (out, err)]
        if code is None:
            raise subprocess.TimeoutExpired([sys.executable, *words], timeout, *said)
        return subprocess.CompletedProcess([sys.executable, *words], code, *said)

    def _ask(self, order: dict[str, object]) -> int | None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the process that is forked ended with {self.process.wait()}"
        return json.loads(answer)


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


# The other side.


def serve() -> None:
    """Forks a child for each line of standard input and answers with its exit code, negative for a signal, null when time was up."""
    orders, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what libraries print while they are imported is no answer
    for line in orders:
        order = json.loads(line)
        child = os.fork()
        if not child:
            orders.close()
            answers.close()
            _finish(order)
        answers.write(json.dumps(_wait(child, order["timeout"])) + "\n")
        answers.flush()


def _wait(child: int, timeout: float) -> int | None:
    """Waits for a child and returns its exit code; kills it, and returns None, when time is up."""
    import select
    import signal

    place = os.pidfd_open(child)
    try:
        ended = select.select([place], [], [], timeout)[0]
        if not ended:
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code if ended else None
    finally:
        os.close(place)


def _finish(order: dict) -> NoReturn:
    """Runs the program and ends this process as Python ends, its modules apart.

    To take down hundreds of modules would touch, and so copy, the memory that is shared with the process that was forked: most of a second.
    """
    code: Any = 0
    try:
        _become(order)
    except KeyboardInterrupt:
        raise  # Python ends by the signal
    except SystemExit as exit:
        code = 0 if exit.code is None else exit.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]  # waits for threads, as Python does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)


def _become(order: dict) -> None:
    """Turns this process into the program that was asked for, as far as a program can tell."""
    import runpy

    for number, path in zip((1, 2), order["files"], strict=True):
        os.dup2(os.open(path, os.O_RDWR | os.O_APPEND), number)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=False)  # pyright: ignore[reportAttributeAccessIssue]
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.orig_argv = [sys.executable, *order["words"]]  # what a program that begins again calls
    option, name, *arguments = order["words"]
    # Processes that multiprocessing starts import what they find here: a program's own, not this file.
    sys.modules["__main__"] = types.ModuleType("__main__")
    if not os.environ.get("PYTHONSAFEPATH"):  # then the first folder stays that of PYTHONPATH, the project's
        sys.path[0] = order["cwd"] if option == "-m" else ""
    if option == "-m":
        sys.argv = [name, *arguments]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *arguments]
        exec(compile(name, "<string>", "exec"), sys.modules["__main__"].__dict__)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, all that was imported
    serve()
