"""The texts that name a Ray cluster, and whether Ray is there and how it is set in processes that connect."""

import importlib.util
import os
import re
from dataclasses import dataclass

from graphmill.kernels.errors import InputError, install_extra

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


SETTINGS = {
    # Seconds until a process ends that does not reach the head of its cluster; Ray's default is 60.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
    "RAY_gcs_server_request_timeout_seconds": "20",
    # Seconds for which a client server keeps the work of a client that is gone; Ray's default is 30.
    "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "5",
    # What went wrong is said by our own messages; Ray keeps its logs in its folder on each node.
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_SCHEDULER_EVENTS": "0",
    # Ray warns of a default that it will change unless this is said.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def require_ray() -> None:
    """Sets Ray's variables in this process, which has not imported it; those of the environment stand.

    Raises:
        InputError: it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise InputError("Ray is not installed here", install_extra("ray"))
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
