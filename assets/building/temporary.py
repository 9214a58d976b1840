"""Folders for temporary files whose names have to be short: the name of a socket has at most 107 bytes."""

from __future__ import annotations

import os
import tempfile

from graphmill.kernels import environment
from graphmill.kernels.errors import InputError

LONGEST_SOCKET = 107
SERVER_SOCKET = 47
"""Most bytes that Dagster puts behind the folder of temporary files in the name of a code server's socket."""
SHORT = ("/tmp", "/var/tmp", "/dev/shm")


def socket_folder(rest: int) -> str:
    """Returns a folder for sockets: that of temporary files, or a shorter one if it is too long, as those of batch systems may be.

    Args:
        rest: most bytes of what stands behind the folder in the name of a socket.

    Raises:
        InputError: there is no folder that is short enough.
    """
    folder = tempfile.gettempdir()
    for each in (folder, *SHORT):
        if len(os.fsencode(each)) + rest <= LONGEST_SOCKET and os.access(each, os.W_OK | os.X_OK):
            return each
    taken, most = len(os.fsencode(folder)), LONGEST_SOCKET - rest
    problem = (
        f"{environment.TEMPORARY} = {folder!r} has {taken} bytes, and for a socket in it at most {most} are possible"
    )
    raise InputError(problem, f"set {environment.TEMPORARY} to a folder with a shorter path")
