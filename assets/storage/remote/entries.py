"""Entries: the object that makes an artifact one of the object store. It holds the manifest, the record of the run and the name of the
upload, sealed, so that all facts about an artifact are known by one small request."""

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from graphmill.assets.storage.files.documents import ENTRY_FORMAT, entry_schema, parse_document, seal
from graphmill.assets.storage.files.schema import STAGE, VERSION
from graphmill.assets.storage.names.manifest import Address, Described, label_of, repair_remedy
from graphmill.assets.storage.remote.objects import Objects, Stored
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
class StoredEntry(Described):
    """One artifact of the object store, and the name of the upload that its files belong to."""

    upload: str
    objects: Objects = field(repr=False, compare=False)

    @property
    def prefix(self) -> str:
        """The folder of keys that its files have."""
        return f"{content_prefix(self.address)}/{self.upload}"

    def key(self, name: str) -> str:
        """Returns the key of one of its files."""
        return f"{self.prefix}/{name}"

    def damaged(self, problem: str) -> InputError:
        """Returns the error about damage of it."""
        return _damaged(self.objects, self.address, problem)

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
    try:
        found = parse_document(data, "its entry", entry_schema)
        entry = StoredEntry(objects=objects, **{name: found[name] for name in ("upload", "manifest", "run")})
        if entry.address != address:
            raise ValueError(f"its entry is of {'/'.join(entry.address)}")
    except ValueError as error:
        raise _damaged(objects, address, error) from error
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


def _damaged(objects: Objects, address: Address, problem: object) -> InputError:
    return InputError(f"{label_of(address)} in {objects.url} {IS_DAMAGED}: {problem}", repair_remedy(address))
