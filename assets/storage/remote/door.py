"""The questions of artifacts, writers and stores to the object store. Without one, each is answered at once, and nothing more is imported.

The modules behind it are named by text: they open artifacts and publish them, so those cannot import them by name.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

from graphmill.assets.storage.home import store_url
from graphmill.assets.storage.leases import Address


def find_stored(root: Path, stage: str, version: str) -> Any:
    """Returns the `Artifact` of the object store by its manifest alone; None if the object store does not have it, or there is none.

    Args:
        root: the store's folder of the home, into which its files are fetched when they are first read.
        stage, version: the address.

    Raises:
        InputError: the object store cannot be used, or has a damaged entry.
    """
    return _fetch().find_remote(root, (stage, version)) if store_url() else None


def make_here(path: Path) -> None:
    """Fetches the files of an artifact if the home does not have them, and notes that it is read.

    Args:
        path: the folder of the artifact, `store/STAGE/VERSION`.

    Raises:
        InputError: the object store does not have it, or has it damaged, or the disk is full.
    """
    if store_url():
        _fetch().make_here(path)


def is_remote(path: Path) -> bool:
    """Returns whether the files of an artifact are not in the home, so that only the object store can have them.

    Args:
        path: the folder of the artifact.
    """
    return bool(store_url()) and not path.is_dir()


def stored_file(path: Path, name: str) -> bytes | None:
    """Returns the content of one small file of an artifact of the object store; None if it does not have the artifact.

    Args:
        path: the folder of the artifact.
        name: name of the file.

    Raises:
        InputError: the file is damaged.
    """
    return _fetch().stored_file((path.parent.name, path.name), name)


def stored_addresses(stage: str = "") -> Collection[Address]:
    """Returns the addresses of all artifacts of the object store, or of one stage, by one listing; none without an object store."""
    return _fetch().stored_addresses(stage) if store_url() else ()


def stored_artifacts(root: Path, addresses: Collection[Address]) -> list[Any]:
    """Returns the `Artifact`s of the object store by their manifests; those that vanished or have damaged entries are left out.

    Args:
        root: the store's folder of the home, into which their files are fetched when they are first read.
        addresses: their addresses.
    """
    return _fetch().stored_artifacts(root, addresses) if addresses else []


def stored_problems(path: Path) -> list[str]:
    """Reads every byte of an artifact of the object store and returns its damage, one text each; nothing of it is kept.

    Args:
        path: the folder that the artifact would have in the home.
    """
    return _fetch().stored_problems((path.parent.name, path.name))


def share_published(root: Path, artifact: Any, *, replaces: bool = False) -> Any:
    """Makes an `Artifact` of the home one of the object store, if there is one, with all that it was built from.

    Args:
        root: the store's folder of the home.
        artifact: the artifact, whose files are there.
        replaces: whether to take the place of another one of this version.

    Returns:
        The artifact, or the one that another machine stored first.

    Raises:
        InputError: the object store cannot be used.
    """
    return (
        import_module("graphmill.assets.storage.remote.share").share(root, artifact, replaces)
        if store_url()
        else artifact
    )


def _fetch() -> Any:
    return import_module("graphmill.assets.storage.remote.fetch")
