"""The supervisor of a rank on a node of a Ray cluster: a Ray actor that runs the rank's process and hands on what it writes.

The rank is a process of its own, as on one machine, so that a crash of its native code, or its sudden end after an error, is an exit code
and not the end of an actor. It dies with its supervisor, which dies with the job of the launcher; a supervisor that is not asked any more
ends by itself.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphmill.assets.building.child import await_child, how_ended
from graphmill.assets.cluster.nodes import home_here
from graphmill.kernels import environment
from graphmill.kernels.errors import InputError
from graphmill.trainers.ranks.launch import RankProcess

END = "end"
"""Name of the last event: [exit code, how it ended, the input error that it reported as JSON or ""]."""
UNASKED_SECONDS = 60
"""Seconds after which a supervisor that is not asked for events ends its rank and itself."""
GATHER_SECONDS = 0.02
"""Seconds for which events are gathered before they are handed on."""
INTERFACE = environment.INTERFACE
GET_ADDRESS = 0x8915
"""Linux's SIOCGIFADDR: the IPv4 address of an interface."""
SET_BY_RAY = "OMP_NUM_THREADS"
"""Ray sets it in a worker that has begun; a rank has threads by its recipe."""


class Supervisor:
    """Runs the process of one rank on this node; an actor with several threads.

    Args:
        home: path of the home on the machine of the launcher.
        mark: name of its mark (assets/cluster/nodes.py), "" if the nodes share an object store.
    """

    def __init__(self, home: str, mark: str):
        self._home, self._mark = home, mark
        # Events that are not known to have arrived, and the number of those before them.
        self._events: list[tuple[str, Any]] = []
        self._seen = 0
        self._changed = threading.Condition()
        self._listener: socket.socket | None = None
        self._process: RankProcess | None = None
        self._unasked = 0

    def listen(self) -> tuple[str, int]:
        """Opens the socket at which the ranks meet, for the process that will be started here; returns address and port."""
        import ray

        address = ray.util.get_node_ip_address()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=socket.SOMAXCONN)
        return address, self._listener.getsockname()[1]

    def start(self, arguments: Sequence[str], order: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        """Starts the rank with an order in which this node's home replaces the other; raises InputError if the node does not see it."""
        import ray

        home = home_here(Path(self._home), self._mark)
        if home is None:
            raise InputError(f"node {socket.gethostname()} does not see {self._home}", "mount it on all nodes")
        interface = environment.read(INTERFACE) or interface_of(ray.util.get_node_ip_address())
        variables = {**variables, **({INTERFACE: interface} if interface else {})}
        text = json.dumps({**order, "home": str(home)})
        arguments = [sys.executable, *arguments]
        threading.Thread(target=self._run, args=(arguments, text, variables), name="rank", daemon=True).start()

    def events(self, seen: int, seconds: float) -> list[tuple[str, Any]]:
        """Returns new events, and waits for one if there is none: a line with its stream, or `END`.

        Args:
            seen: number of events that have arrived; others are returned again, since an answer may be lost on its way.
        """
        with self._changed:
            self._unasked = 0
            del self._events[: seen - self._seen]
            self._seen = seen
            if not self._events:
                self._changed.wait(seconds)
                self._changed.wait(GATHER_SECONDS)
            return list(self._events)

    def signal(self, number: int) -> None:
        """Sends a signal to the rank's process, if it runs."""
        if self._process is not None:
            self._process.signal(number)

    def _run(self, arguments: Sequence[str], order: str, variables: Mapping[str, str]) -> None:
        """Starts the process and waits for it, in one thread: the system kills a child with the thread that started it."""
        # A node's processes are started with interrupts blocked, which a child inherits.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        if SET_BY_RAY not in _first_environment():
            os.environ.pop(SET_BY_RAY, None)
        try:
            self._process = RankProcess(arguments, order, variables, self._listener, self._push)
            code = await_child(self._process.process, self._require_asked, 1)
            self._process.join()
            self._push(END, [code, how_ended(code) if code else "", self._process.said])
        except OSError as error:  # no memory or process number is left
            said = InputError(f"cannot start a rank on {socket.gethostname()}: {error}", "see the node's limits")
            self._push(END, [1, "", json.dumps({"problem": said.problem, "remedy": said.remedy})])

    def _require_asked(self) -> None:
        """Ends the rank and this process if nobody asks for events any more; called every second."""
        self._unasked += 1
        if self._unasked > UNASKED_SECONDS:
            self.signal(signal.SIGKILL)
            os._exit(1)

    def _push(self, name: str, value: Any) -> None:
        with self._changed:
            self._events.append((name, value))
            self._changed.notify_all()


def interface_of(address: str) -> str:
    """Returns the name of the network interface with an IPv4 address; "" if none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                found = fcntl.ioctl(asked.fileno(), GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return ""


def _first_environment() -> set[str]:
    """Returns the names of the variables with which this process was started."""
    return {
        entry.split(b"=")[0].decode(errors="replace") for entry in Path("/proc/self/environ").read_bytes().split(b"\0")
    }
