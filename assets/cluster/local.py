"""Nodes of a Ray cluster on this machine, each with an equal share of its cores and memory: `--on local:N`.

A way to try a pipeline as a cluster runs it, and the cluster of the tests. The nodes end with the process that started them.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphmill.assets.building.child import child_environment
from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.kernels import environment
from graphmill.kernels.environment import socket_folder

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
