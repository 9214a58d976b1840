"""Nodes of a Ray cluster on this machine, each with an equal share of its cores and memory: `--on local:N`.

A way to try a pipeline as a cluster runs it, and the cluster of the tests. The nodes end with the process that started them.

Several steps of a run may share them (`kept`): they are started once, and end with the run. The connection of the process that keeps them
brings the address `local:N`, and gets ("address", text) or ("failed", answer); its end ends the nodes.
"""

import os
import queue
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from graphmill.assets.building.child import ENDED, FunctionChild, child_environment, how_it_ended, received
from graphmill.assets.building.parts import answer_of, raise_failure
from graphmill.assets.cluster.address import parse_address, require_ray
from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.kernels import environment
from graphmill.kernels.environment import socket_folder
from graphmill.kernels.errors import InputError

OBJECT_STORE_BYTES = 80 << 20
"""Memory for Ray's own objects of a node. Nothing of size goes through it: artifacts are files."""
SOCKET_NAME = 80
"""Most bytes that Ray puts behind a folder in the name of a socket: ray-XXXXXXXX/session_..., a process id, sockets/plasma_store."""
FREE_SHARE = 0.8
"""Share of the free memory that the nodes may plan with."""


@contextmanager
def local_nodes(count: int, variables: Mapping[int, Mapping[str, str]] | None = None, **more: Any) -> Iterator[Any]:
    """Yields a running cluster (`ray.cluster_utils.Cluster`) of nodes on this machine.

    Args:
        variables: number of a node -> environment variables of its own.
        more: resources of each node in place of its share, as `Cluster.add_node` takes them.
    """
    from ray.cluster_utils import Cluster

    # A folder of its own for logs and sockets, short since paths of sockets are, and for the file that "auto" reads: in Ray's own folder,
    # which a machine may lack, it names a cluster that others have started.
    folder = tempfile.mkdtemp(prefix="ray-", dir=socket_folder(SOCKET_NAME))
    (Path(folder) / "ray").mkdir()
    own_folder = {"RAY_TMPDIR": folder}
    cluster = Cluster(shutdown_at_exit=True)
    try:
        # Workers inherit the variables by which they find this checkout's modules, and no module from the user's folder.
        with _environment(child_environment() | own_folder):
            for number in range(count):
                given: dict[str, Any] = share_of_machine(count) | more
                own = dict((variables or {}).get(number, {}))
                cluster.add_node(include_dashboard=False, env_vars=own, temp_dir=folder, **given)
        yield cluster
    finally:
        with _environment(own_folder):
            cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables of this process while the block runs."""
    before = environment.all_variables()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def share_of_machine(count: int) -> dict[str, int]:
    """Returns the resources of one of `count` equal nodes: cores, and bytes of memory."""
    free = free_bytes() or 4 << 30
    return {
        "num_cpus": max(1, usable_cores() // count),
        "memory": int(FREE_SHARE * free) // count,
        "object_store_memory": OBJECT_STORE_BYTES,
    }


GRACE_SECONDS = 15.0


@contextmanager
def kept(address: str) -> Iterator[str]:
    """Yields the address of a cluster: for `local:N` of nodes that run while the block does, any other as it stands.

    Args:
        address: text of an address (assets/cluster/address.py), "" for no cluster.

    Raises:
        InputError: the text names none, Ray is not installed, or the nodes do not start.
    """
    if not address:
        yield ""
        return
    where = parse_address(address)
    require_ray()
    if not where.num_local:
        yield where.text
        return
    events: queue.Queue[tuple[FunctionChild, Any]] = queue.Queue()
    child = FunctionChild(keep_nodes, events)
    try:
        child.send(where.text)
        yield _address_of(child, events.get()[1])
    finally:
        child.end(GRACE_SECONDS)


def _address_of(child: FunctionChild, message: Any) -> str:
    if message == ENDED:
        problem = f"the nodes on this machine did not start: their process ended with {how_it_ended(child.end())}"
        raise InputError(problem, "see the lines above")
    kind, value = message
    if kind == "failed":
        raise_failure("the nodes on this machine", value)
    return value


def keep_nodes(pipe: Connection) -> None:
    """Keeps nodes until the connection ends."""
    asked = received(pipe)
    address = asked.get()
    if address is None:
        return

    def keep() -> None:
        with local_nodes(parse_address(address).num_local) as cluster:
            pipe.send(("address", cluster.address))
            asked.get()  # None, or the end of the connection

    answer = answer_of(keep)
    if answer != ("done",):
        with suppress(ConnectionError):
            pipe.send(("failed", answer))
