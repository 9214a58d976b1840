"""The store of a home as everything outside opens it: with `$GRAPHMILL_STORE`, the object store of that URL stands behind the home."""

import os

from graphmill.assets.storage.local.local_store import LocalStore
from graphmill.assets.storage.names.home import store_url


class Store(LocalStore):
    """All artifacts of one home folder and of the object store behind it. Opening a store writes nothing.

    Args:
        home: the home folder, None for `$GRAPHMILL_HOME` (default `./.graphmill`).
    """

    def __init__(self, home: str | os.PathLike[str] | None = None):
        super().__init__(home)
        if url := store_url():
            from graphmill.assets.storage.remote.object_store import ObjectStore

            self.backend = ObjectStore(self.root, url)
