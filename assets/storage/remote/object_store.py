"""The object store behind one home: the verbs of assets/storage/local/backend.py, answered by its entries and objects."""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmill.assets.storage.local.backend import StoreBackend
from graphmill.assets.storage.names.manifest import Address, Described, content_digest
from graphmill.assets.storage.remote.entries import REQUESTS, listed_entries, read_entries, read_entry
from graphmill.assets.storage.remote.fetch import fetch_artifact, note_use, read_file, stored_problems
from graphmill.assets.storage.remote.leases import hold_remote
from graphmill.assets.storage.remote.objects import Objects, open_objects
from graphmill.assets.storage.remote.upload import upload_artifact


@dataclass(frozen=True)
class ObjectStore(StoreBackend):
    """An object store behind a home, which fetches files into `root`. Other processes to which it is sent open it anew."""

    root: Path
    url: str

    @property
    def objects(self) -> Objects:
        """The objects below the URL."""
        return open_objects(self.url)

    def find(self, address: Address) -> Described | None:
        """Returns the documents of an artifact by one request."""
        return read_entry(self.objects, address)

    def find_many(self, addresses: Collection[Address]) -> list[Described]:
        """Returns the documents of artifacts by several requests at a time."""
        return [*read_entries(self.objects, addresses)] if addresses else []

    def addresses(self, stage: str = "") -> Collection[Address]:
        """Returns the addresses of all artifacts, or of one stage."""
        return listed_entries(self.objects, stage).keys()

    def file(self, address: Address, name: str) -> bytes | None:
        """Returns the content of one small file, compared with its digest."""
        entry = read_entry(self.objects, address)
        return None if entry is None else read_file(entry, name)

    def fetch(self, address: Address, *, damaged: bool = False) -> None:
        """Fetches the files of an artifact that the home lacks."""
        path = self.root.joinpath(*address)
        if damaged or not path.is_dir():
            fetch_artifact(self.objects, self.root, address)
        note_use(path)

    def share(self, manifest: Mapping[str, Any], *, replaces: bool = False) -> bool:
        """Uploads an artifact; of two that are different the stored one counts, and takes the place of the home's."""
        stands = upload_artifact(self.objects, self.root, manifest, replaces=replaces)
        if content_digest(stands.manifest) == content_digest(manifest):
            return False  # figures may differ: another version of the library draws other bytes
        # What is built from it names its content, which has to be that of all machines.
        fetch_artifact(self.objects, self.root, stands.address, replaces=True)
        return True

    def hold(self, addresses: Collection[Address]) -> AbstractContextManager[None]:
        """Holds leases of this process in the object store."""
        return hold_remote(self.objects, addresses)

    def problems(self, addresses: Collection[Address], *, every_byte: bool = True) -> dict[Address, list[str]]:
        """Compares artifacts with their entries; several are looked at at a time unless all of their bytes are read."""
        with ThreadPoolExecutor(1 if every_byte else REQUESTS) as pool:
            found = pool.map(lambda each: stored_problems(self.objects, each, every_byte=every_byte), addresses)
            return {address: problems for address, problems in zip(addresses, found, strict=True) if problems}
