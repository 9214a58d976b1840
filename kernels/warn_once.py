"""Warnings about features that a machine lacks, once per process, however many threads find out."""

import threading
import warnings

_lock = threading.Lock()
_said: set[str] = set()


class MachineWarning(RuntimeWarning):
    """A feature that this machine lacks, with what is done instead."""


def warn_once(message: str) -> None:
    """Warns with a `MachineWarning`, unless this text was said before. The warning names the line that made the reader or the array."""
    with _lock:
        if message in _said:
            return
        _said.add(message)
    warnings.warn(message, MachineWarning, stacklevel=4)


def forget() -> None:
    """Forgets the warnings that were given; for tests."""
    with _lock:
        _said.clear()
