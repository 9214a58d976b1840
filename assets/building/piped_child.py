"""A child process that takes and gives Python values over a connection.

It is a plain child that runs a module. `multiprocessing` would import the caller's main module again in each, or fork a process with
running threads; only its connection is used. The module ends the child when its connection ends, so none outlives a parent that was killed.
The child has a session of its own, so a terminal's Ctrl-C reaches the parent only, which ends its children.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from graphmill.assets.building.child import child_environment, start_child

ENDED = ("ended",)
"""The last event of a child: its connection has ended, and so has the process."""


class PipedChild:
    """A child process, and the thread that listens to it.

    Args:
        module: the module that the child runs, with the number of its descriptor as argument.
        events: queue that gets (child, value) of every value that it sends, and (child, ENDED).
    """

    def __init__(self, module: str, events: queue.Queue[tuple[Any, Any]]):
        self._pipe, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", module, str(theirs.fileno())]
            self._process = start_child(command, child_environment(), pass_fds=[theirs.fileno()])
        self._listener = threading.Thread(target=self._listen, args=(events,), daemon=True)
        self._listener.start()
        # What the child unpickles may come from anywhere that this process can import from.
        self.send(sys.path)

    def send(self, value: Any) -> None:
        """Sends a value; one that a dead child does not get is dropped, since the listener reports its end."""
        with suppress(ConnectionError):
            self._pipe.send(value)

    def end(self, grace: float = 0.0) -> int:
        """Ends the process if it still runs, and returns its exit status.

        Args:
            grace: seconds for which it may end by itself after it has got None.
        """
        if grace and not self._pipe.closed:
            self.send(None)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        self._process.kill()
        status = self._process.wait()
        self._listener.join()
        self._pipe.close()
        return status

    def _listen(self, events: queue.Queue[tuple[Any, Any]]) -> None:
        with suppress(EOFError, ConnectionError):
            while True:
                events.put((self, self._pipe.recv()))
        self._process.wait()
        events.put((self, ENDED))


def open_pipe() -> Connection:
    """Returns the connection of this process, which runs a module of a `PipedChild`; its modules are found as the parent finds them."""
    pipe = Connection(int(sys.argv[1]))
    # The path comes first: unpickling what follows imports modules from it.
    sys.path.extend(path for path in pipe.recv() if path not in sys.path)
    return pipe


def listen(pipe: Connection, take: Callable[[Any], None], ended: Callable[[], None]) -> None:
    """Passes on what the parent sends, on a thread of its own.

    Args:
        pipe: the connection of this process.
        take: gets every value.
        ended: called when the parent is gone.
    """

    def run() -> None:
        with suppress(EOFError, ConnectionError):
            while True:
                take(pipe.recv())
        ended()

    threading.Thread(target=run, daemon=True).start()
