"""Leases of the object store: what a living process reads or builds, so that `graphmill gc` on another machine leaves it alone.

A process has one object, `leases/HOLDER.json`, with the addresses of all artifacts that it holds. It is written when the first is taken,
again when more come, and removed with the last; a thread writes it again every `RENEW_SECONDS` in between. A lease whose object is older
than `EXPIRY_SECONDS` has expired: its process was killed, or was cut off from the object store for that long.

Clocks: the age of a lease is the time that the server says it was written, taken from the time that the server says it is now
(`Objects.now`). The clocks of the machines do not enter. A holder that stands still for longer than the expiry (a suspended machine) loses
its leases, and a collector may take what it reads: the error then says how to build it again.

The order that makes this safe is that of assets/storage/local/leases.py: leases first, then the look whether the artifacts are there. A
collector looks for leases, takes the entry away, looks again, and puts the entry back if a lease has come
(assets/storage/remote/collect.py).
"""

import os
import re
import threading
import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from graphmill.assets.storage.files.documents import lease_schema, parse_document, seal
from graphmill.assets.storage.names.manifest import Address
from graphmill.assets.storage.remote.objects import Objects
from graphmill.kernels.errors import InputError

FOLDER = "leases"
NAME = re.compile(rf"{FOLDER}/[0-9a-f]{{32}}\.json")
EXPIRY_SECONDS, RENEW_SECONDS = 300, 60


class _Holder:
    """The leases of this process in one object store."""

    def __init__(self, objects: Objects):
        self.objects, self.key = objects, f"{FOLDER}/{uuid.uuid4().hex}.json"
        self._held: Counter[Address] = Counter()
        self._written: set[Address] = set()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._owner = os.getpid()

    def take(self, addresses: Collection[Address]) -> None:
        with self._lock:
            begins = not self._held
            self._held.update(addresses)
            if not self._written >= set(addresses):
                try:
                    self._write()
                except InputError as error:
                    self._held.subtract(addresses)
                    self._held = +self._held
                    if "refuses" not in error.problem:
                        raise
                    return  # a store that may only be read is read without leases, as such a home is
            if begins:
                self._stop = threading.Event()
                threading.Thread(target=self._renew, args=(self._stop,), name="leases", daemon=True).start()

    def give(self, addresses: Collection[Address]) -> None:
        """Takes addresses away again. The object keeps them until it is written next, or goes with the last."""
        if self._owner != os.getpid():
            return  # a forked child
        with self._lock:
            self._held.subtract(addresses)
            self._held = +self._held
            if not self._held:
                self._stop.set()
                self._written = set()
                with suppress(InputError):  # it expires
                    self.objects.remove([self.key])

    def _write(self) -> None:
        held = set(self._held)
        self.objects.write(self.key, seal({"addresses": sorted("/".join(each) for each in held)}))
        self._written = held

    def _renew(self, stop: threading.Event) -> None:
        while not stop.wait(RENEW_SECONDS):
            with self._lock, suppress(InputError):  # the next one may reach the store
                if not stop.is_set():
                    self._write()


_HOLDERS: dict[tuple[int, Objects], _Holder] = {}
_MAKING = threading.Lock()


@contextmanager
def hold_remote(objects: Objects, addresses: Collection[Address]) -> Iterator[None]:
    """Keeps artifacts of an object store, present or not, from being collected while the block runs and this process lives."""
    with _MAKING:
        holder = _HOLDERS.setdefault((os.getpid(), objects), _Holder(objects))
    holder.take(addresses)
    try:
        yield
    finally:
        holder.give(addresses)


@dataclass(frozen=True)
class HeldArtifacts:
    """What living processes hold.

    Attributes:
        damaged: keys of leases that cannot be read: each may hold any artifact, until it has expired or its process writes it again.
    """

    addresses: frozenset[Address]
    damaged: tuple[str, ...] = ()

    def covers(self, addresses: Collection[Address | None]) -> bool:
        """Returns whether one of the artifacts may be held."""
        return bool(self.damaged) or not self.addresses.isdisjoint(addresses)


def held_remotely(objects: Objects, now: datetime, held: Collection[Address] = ()) -> HeldArtifacts:
    """Returns the artifacts that living processes hold, those in `held` included, and removes the leases that have expired."""
    addresses, damaged = set(held), []
    for each in objects.listed(FOLDER):
        if not NAME.fullmatch(each.key):
            continue  # not ours
        if now - each.written > timedelta(seconds=EXPIRY_SECONDS):
            objects.remove([each.key])
            continue
        data = objects.read_document(each.key)
        try:
            addresses |= set() if data is None else _addresses(data, each.key)
        except ValueError:
            damaged.append(each.key)
    return HeldArtifacts(frozenset(addresses), tuple(damaged))


def _addresses(data: bytes, key: str) -> set[Address]:
    """Returns the addresses of a lease; raises ValueError if it is damaged."""
    found = parse_document(data, key, lease_schema)["addresses"]
    return {(stage, version) for stage, _, version in (each.partition("/") for each in found)}
