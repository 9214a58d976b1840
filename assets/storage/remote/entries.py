"""Entries: the object that makes an artifact one of the object store. It holds the manifest, the record of the run and the name of the
upload, sealed, so that all facts about an artifact are known by one small request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from graphmill.assets.storage.documents import ENTRY_FORMAT, entry_schema, parse_document
from graphmill.assets.storage.leases import Address
from graphmill.assets.storage.remote.objects import Objects, Stored
from graphmill.assets.storage.schema import STAGE, VERSION
from graphmill.assets.storage.sealed_json import seal
from graphmill.assets.storage.version import short
from graphmill.kernels.errors import InputError

ENTRIES, CONTENT = "artifacts", "content"
PLACE = re.compile(rf"{ENTRIES}/({STAGE})/({VERSION})\.json")
CONTENT_PLACE = re.compile(rf"{CONTENT}/({STAGE})/({VERSION})/([0-9a-f]{{32}})/.+", re.DOTALL)
"""Keys of entries, and of the files of uploads; anything else is not ours."""
IS_DAMAGED = "is damaged"
"""Words of every message about damage."""
REQUESTS = 8
"""Requests for entries at a time."""


@dataclass(frozen=True, kw_only=True)
class StoredEntry:
    """One artifact of the object store.

    Attributes:
        upload: name of the upload that its files belong to.
        manifest, run: the documents manifest.json and run.json; the second is empty if it was lost before the upload.
    """

    upload: str
    manifest: Mapping[str, Any]
    run: Mapping[str, Any]

    @property
    def address(self) -> Address:
        """Stage and version."""
        return self.manifest["stage"], self.manifest["version"]

    def key(self, name: str) -> str:
        """Returns the key of one of its files."""
        return f"{content_prefix(self.address)}/{self.upload}/{name}"

    def to_bytes(self) -> bytes:
        """Returns the content of the object."""
        return seal({"format": ENTRY_FORMAT, "upload": self.upload, "manifest": self.manifest, "run": self.run})


def entry_key(address: Address) -> str:
    """Returns the key of the entry of an artifact."""
    return f"{ENTRIES}/{address[0]}/{address[1]}.json"


def content_prefix(address: Address) -> str:
    """Returns the folder of keys that the files of all uploads of an artifact have."""
    return f"{CONTENT}/{address[0]}/{address[1]}"


def read_entry(objects: Objects, address: Address) -> StoredEntry | None:
    """Returns the entry of an artifact, None if the object store does not have it.

    Raises:
        InputError: the entry is damaged, or of a later version of graphmill.
    """
    data = objects.read_document(entry_key(address))
    if data is None:
        return None
    label = f"{address[0]}/{short(address[1])}"
    try:
        found = parse_document(data, "its entry", entry_schema)
        entry = StoredEntry(upload=found["upload"], manifest=found["manifest"], run=found["run"])
        if entry.address != address:
            raise ValueError(f"its entry is of {'/'.join(entry.address)}")
    except ValueError as error:
        raise InputError(f"{label} in {objects.url} {IS_DAMAGED}: {error}", damaged_remedy(address)) from error
    return entry


def read_entries(objects: Objects, addresses: Iterable[Address]) -> list[StoredEntry]:
    """Returns the entries of artifacts by several requests at a time; those that vanished or are damaged are left out."""

    def read(address: Address) -> StoredEntry | None:
        try:
            return read_entry(objects, address)
        except InputError as error:
            if IS_DAMAGED not in error.problem:
                raise
            return None

    with ThreadPoolExecutor(REQUESTS) as pool:
        return [entry for entry in pool.map(read, addresses) if entry is not None]


def listed_entries(objects: Objects, stage: str = "") -> dict[Address, Stored]:
    """Returns the address of every artifact of the object store, or of one stage, with its entry's object."""
    found = objects.listed(f"{ENTRIES}/{stage}" if stage else ENTRIES)
    matches = ((PLACE.fullmatch(each.key), each) for each in found)
    return {(match[1], match[2]): each for match, each in matches if match is not None}


def damaged_remedy(address: Address) -> str:
    """Returns the advice about an artifact that is damaged in the object store."""
    return f"run `graphmill repair {address[0]}/{short(address[1])}`, then the same command again: it will be rebuilt"
