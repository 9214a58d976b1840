"""Nodes on this machine that several steps of a run share: they are started once, and end with the run.

The connection of the process that keeps them brings the address `local:N`, and gets ("address", text) or ("failed", answer); its end ends
the nodes.
"""

import queue
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from graphmill.assets.building.child import ENDED, FunctionChild, how_it_ended, received
from graphmill.assets.building.part_pool import answer_of, raise_failure
from graphmill.assets.cluster.address import parse_address, require_ray
from graphmill.assets.cluster.local import local_nodes
from graphmill.kernels.errors import InputError

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
