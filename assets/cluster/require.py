"""Whether Ray is there, and how it is set in processes that connect."""

import importlib.util
import os

from graphmill.kernels.errors import InputError, install_extra

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
