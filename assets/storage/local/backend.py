"""What stands behind a home: nothing, or the object store that machines share (assets/storage/remote/).

Artifacts, writers and stores ask it by a few verbs about addresses and manifests. `Store` chooses it when a home is opened.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from graphmill.assets.storage.names.manifest import Address, Described


class StoreBackend:
    """What stands behind a home without an object store: each verb answers at once, with nothing.

    Those of `ObjectStore` answer by requests, and raise an InputError if the object store cannot be used.

    Attributes:
        url: the URL of the object store, "" if there is none.
    """

    url: str = ""

    def find(self, address: Address) -> Described | None:
        """Returns the documents of an artifact, None if the object store does not have it; a damaged entry is an InputError."""
        return None

    def find_many(self, addresses: Collection[Address]) -> list[Described]:
        """Returns the documents of artifacts; those that are absent or have damaged entries are left out."""
        return []

    def addresses(self, stage: str = "") -> Collection[Address]:
        """Returns the addresses of all artifacts of the object store, or of one stage, by one listing."""
        return ()

    def file(self, address: Address, name: str) -> bytes | None:
        """Returns the content of one small file of an artifact, None if the object store lacks the artifact; damage is an InputError."""
        return None

    def fetch(self, address: Address, *, damaged: bool = False) -> None:
        """Fetches the files of an artifact if the home does not have them, and notes that it is read.

        Args:
            damaged: whether to fetch it as well if the home has it damaged.

        Raises:
            InputError: the object store does not have it, or has it damaged, or the disk is full.
        """

    def share(self, manifest: Mapping[str, Any], *, replaces: bool = False) -> bool:
        """Makes an artifact of the home one of the object store, with all that it was built from.

        Args:
            replaces: whether to take the place of another one of this version.

        Returns:
            Whether the home has another artifact of this version now: a different one that another machine stored first.
        """
        return False

    def hold(self, addresses: Collection[Address]) -> AbstractContextManager[None]:
        """Keeps artifacts, present or not, from being collected in the object store while a block runs."""
        return nullcontext()

    def problems(self, addresses: Collection[Address], *, every_byte: bool = True) -> dict[Address, list[str]]:
        """Returns address -> damage, one text each, of the artifacts that are damaged in the object store; nothing of them is kept.

        Args:
            every_byte: whether to read all of their files; else entries and sizes alone are compared.
        """
        return {}


NO_OBJECT_STORE = StoreBackend()
