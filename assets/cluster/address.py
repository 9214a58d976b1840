"""The texts that name a Ray cluster."""

import re
from dataclasses import dataclass

from graphmill.kernels.errors import InputError

AUTO = ("auto", "ray")
MOST_NODES = 256
LOCAL = re.compile(r"local:(\d{1,4})", re.ASCII)
HOST = re.compile(r"(ray://)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", re.ASCII)
HOW = "write auto (the cluster that this machine belongs to), local:N (N nodes on this machine), HOST:PORT or ray://HOST:PORT"


@dataclass(frozen=True)
class ClusterAddress:
    """The address of a cluster.

    Attributes:
        text: the text that Ray takes, "auto" included; "local:N" for nodes that are started on this machine.
    """

    text: str

    @property
    def num_local(self) -> int:
        """Number of nodes that are started on this machine, 0 for a cluster that is there already."""
        match = LOCAL.fullmatch(self.text)
        return int(match[1]) if match else 0

    @property
    def is_client(self) -> bool:
        """Whether this machine need not belong to the cluster: Ray's client server at the address works for it."""
        return self.text.startswith("ray://")

    @property
    def place(self) -> tuple[str, int] | None:
        """Host and port of a cluster that is there already, None if Ray finds it."""
        match = HOST.fullmatch(self.text)
        return (match[2].strip("[]"), int(match[3])) if match else None


def parse_address(text: str) -> ClusterAddress:
    """Returns the address that a text names, the value of `--on` or of `on` in `[run]`; "ray" is "auto". InputError if it names none."""
    problem = address_problem(text)
    if problem:
        raise InputError(problem, HOW)
    return ClusterAddress(AUTO[0] if text in AUTO else text)


def address_problem(text: str) -> str:
    """Returns why a text names no cluster, "" if it names one."""
    if text in AUTO:
        return ""
    if match := LOCAL.fullmatch(text):
        return "" if 1 <= int(match[1]) <= MOST_NODES else f"{text}: the number of nodes is from 1 to {MOST_NODES}"
    match = HOST.fullmatch(text)
    if match is None:
        return f"{text!r} names no cluster"
    return "" if 0 < int(match[3]) < 1 << 16 else f"{text}: a port is a number from 1 to 65535"
