"""The process whose forks run programs (tests/forks.py): `python -m tests.fork_server SOCKET MODULE ...`, the number of an open socket."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any, NoReturn

DRAWN = "GRAPHMILL_TEST_DRAWN"
"""Environment variable of programs that draw their figures; others compose them alone."""


def serve(asked: socket.socket) -> None:
    """Forks a child for each connection; answers with its process id, and at its end with its exit code, negative for a signal.

    A child is killed when its connection is closed, and all of them are when standard input is.
    """
    with selectors.DefaultSelector() as events:
        for file in (sys.stdin, asked):
            events.register(file, selectors.EVENT_READ)
        children: dict[int, socket.socket] = {}
        while True:
            for key, _ in events.select():
                if key.fileobj is sys.stdin:
                    for child in children:
                        os.kill(child, signal.SIGKILL)
                    return
                if key.fileobj is asked:
                    connection = asked.accept()[0]
                    with connection.makefile() as orders:
                        order = json.loads(orders.readline())
                    opened = [os.open(order["given"], os.O_RDONLY)]  # before the answer, after which they may be closed
                    opened += [os.open(path, os.O_RDWR | os.O_APPEND) for path in order["files"]]
                    child = os.fork()
                    if not child:
                        for each in (asked, connection, *children.values()):
                            each.close()
                        events.close()
                        _finish(order, opened)
                    for number in opened:
                        os.close(number)
                    children[child] = connection
                    connection.sendall(f"{child}\n".encode())
                    events.register(os.pidfd_open(child), selectors.EVENT_READ, child)
                    events.register(connection, selectors.EVENT_READ, child)
                elif isinstance(key.fileobj, socket.socket):  # nobody waits any longer
                    os.kill(key.data, signal.SIGKILL)
                    events.unregister(key.fileobj)
                else:
                    code = os.waitstatus_to_exitcode(os.waitpid(key.data, 0)[1])
                    events.unregister(key.fileobj)
                    os.close(key.fd)
                    connection = children.pop(key.data)
                    with contextlib.suppress(KeyError):
                        events.unregister(connection)
                    with contextlib.suppress(OSError):
                        connection.sendall(f"{code}\n".encode())
                    connection.close()


def _finish(order: dict, opened: list[int]) -> NoReturn:
    """Runs the program and ends this process as Python ends, its modules apart.

    To take down hundreds of modules would touch, and so copy, the memory that is shared with the process that was forked: most of a second.
    """
    code: Any = 0
    try:
        _become(order, opened)
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


def _become(order: dict, opened: list[int]) -> None:
    """Turns this process into the program that was asked for, as far as a program can tell."""
    import runpy

    for number, file in enumerate(opened):
        os.dup2(file, number)
        os.close(file)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=False)  # pyright: ignore[reportAttributeAccessIssue]
    if order.get("new_session"):
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # As in the process of the tests (tests/conftest.py).
    os.fsync = os.fstat
    if order["env"].get(DRAWN) is None and (style := sys.modules.get("graphmill.assets.figures.style")):
        style.png = lambda figure: b"not drawn"
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
    sys.path.insert(0, str(Path(__file__).parents[1]))
    os.dup2(2, 1)  # what libraries print while they are imported is not an answer
    for module in sys.argv[2:]:
        importlib.import_module(module)
    if "dagster._core.storage.sqlite_storage" in sys.modules:
        from tests import forks, histories

        histories.begin_with_copies(forks.folder())
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, all that was imported
    serve(socket.socket(fileno=int(sys.argv[1])))
