"""Leases of artifacts that running jobs read or build, so that the garbage collector leaves them alone.

A lease on an artifact is a shared `flock` on `<home>/leases/<stage>@<version>`. Any number of jobs hold one; the
collector needs the same file exclusively for the moment in which it takes the artifact away. The kernel drops a lease
when its process dies, SIGKILL included, so there is nothing to expire and no clock to trust. An artifact can be
leased before it exists: that is how a job protects the artifact that it is building.

The order that makes this safe: a job first takes its leases and then looks whether its inputs are there. From then on they stay. A job that
looks first may find an artifact that is gone a moment later.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from graphmill.assets.storage.names.manifest import Address
from graphmill.assets.storage.system.filesystem import (
    READ_ONLY,
    make_folder,
    release_lock,
    reporting_full_disk,
    share_lock,
    take_lock,
)

FOLDER = "leases"


class Leases:
    """All leases of one home folder, or the claims of parts that are built (assets/building/parts.py)."""

    def __init__(self, home: Path, name: str = FOLDER):
        self.folder = home / name

    @contextmanager
    def hold(self, *addresses: Address) -> Iterator[None]:
        """Keeps artifacts, present or not, from being collected while the block runs and this process lives.

        Waits while a collector takes one of them away, which is a matter of moments. A process forked inside the
        block does not hold the leases: they end with the process that took them.

        A home that may be read but not written is read without leases: the collector of a user who may write to it can remove an artifact
        that is being read, and the reader then raises an error.
        """
        with ExitStack() as stack:
            for address in sorted(set(addresses)):
                lock = self._take_shared(address)
                if lock is not None:
                    stack.callback(self._let_go, address, lock, os.getpid())
            yield

    @contextmanager
    def alone(self, address: Address) -> Iterator[bool]:
        """Yields whether no process holds a lease; if so, no process gets one before the block ends."""
        with reporting_full_disk(self.folder):
            make_folder(self.folder)
            lock = take_lock(self._file(address), create=True)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                self._file(address).unlink(missing_ok=True)
                release_lock(lock)

    def held(self) -> set[Address]:
        """Returns the addresses that living processes hold, and removes the files of dead ones."""
        held = set()
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            stage, _, version = path.name.partition("@")
            if self._tidy(path):
                held.add((stage, version))
        return held

    def _take_shared(self, address: Address) -> int | None:
        lock = None
        with reporting_full_disk(self._file(address)):
            while lock is None:  # the process that had the file exclusively has removed it
                try:
                    make_folder(self.folder)
                    lock = share_lock(self._file(address))
                except OSError as error:
                    if error.errno not in READ_ONLY:
                        raise
                    return None
        return lock

    def _let_go(self, address: Address, lock: int, owner: int) -> None:
        if owner != os.getpid():
            return  # a forked child; its copy was closed when it was forked
        release_lock(lock)
        # The last holder tidies up; with another one alive this finds the file locked and leaves it.
        self._tidy(self._file(address))

    def _tidy(self, path: Path) -> bool:
        """Removes the file of a lease that no process holds, if the home can be written. Returns whether a process holds it."""
        try:
            last = take_lock(path, create=False)
            if last is None:
                return path.exists()
            try:
                path.unlink(missing_ok=True)
            finally:
                release_lock(last)
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
        return False

    def _file(self, address: Address) -> Path:
        stage, version = address
        return self.folder / f"{stage}@{version}"
