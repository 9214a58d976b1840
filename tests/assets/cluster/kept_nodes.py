"""A cluster of nodes on this machine whose nodes can be killed: a process apart, since Ray ends a process whose cluster is gone."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from graphmill.assets.building.child import FunctionChild, received
from graphmill.assets.cluster.address import require_ray
from graphmill.assets.cluster.local import local_nodes


class KeptNodes:
    """The cluster, from the outside; `address` is that of its head."""

    def __init__(self, child: FunctionChild, events: queue.Queue[tuple[FunctionChild, Any]]):
        self._child, self._events = child, events
        self.address: str = self.answer()

    def answer(self) -> Any:
        return self._events.get(timeout=120)[1]

    def kill(self, number: int) -> None:
        """Kills a node with all of its processes, as a loss of its machine does."""
        self._child.send(("kill", number))
        self.answer()

    def kill_head(self) -> None:
        """Kills the head: the process by which all nodes know of one another."""
        self._child.send(("kill head", 0))
        self.answer()

    def pids(self) -> set[int]:
        """The processes of the cluster, those of its own that run nothing included."""
        return descendants(self._child.process.pid)


@contextmanager
def kept_nodes(count: int, variables: dict[int, dict[str, str]] | None = None, **resources: Any) -> Iterator[KeptNodes]:
    events: queue.Queue[tuple[FunctionChild, Any]] = queue.Queue()
    child = FunctionChild(keep_nodes, events)
    try:
        child.send((count, variables, resources))
        yield KeptNodes(child, events)
    finally:
        child.end(15)


def descendants(pid: int) -> set[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    below = {int(each) for each in found.stdout.split()}
    return below.union(*(descendants(each) for each in below)) if below else below


def keep_nodes(pipe: Connection) -> None:
    asked = received(pipe)
    count, variables, resources = asked.get()
    require_ray()
    with local_nodes(count, variables, **resources) as cluster:
        pipe.send(cluster.address)
        nodes = [cluster.head_node, *cluster.worker_nodes]
        while (order := asked.get()) is not None:
            what, number = order
            if what == "kill":
                cluster.remove_node(nodes[number], allow_graceful=False)
            else:
                (server,) = cluster.head_node.all_processes["gcs_server"]
                os.kill(server.process.pid, signal.SIGKILL)
            pipe.send("done")
