"""Uploads: files first, the entry last. Killed before, an upload leaves objects that no entry names, and no artifact."""

from __future__ import annotations

import uuid
from pathlib import Path

from graphmill.assets.storage.artifact import Artifact, find_artifact
from graphmill.assets.storage.documents import read_if_sound, run_schema
from graphmill.assets.storage.leases import Address
from graphmill.assets.storage.manifest import RUN, WORDS, references
from graphmill.assets.storage.remote.entries import StoredEntry, content_prefix, entry_key, listed_entries, read_entry
from graphmill.assets.storage.remote.leases import hold_remote
from graphmill.assets.storage.remote.objects import Objects, require_objects


def upload_artifact(root: Path, artifact: Artifact, *, replaces: bool = False) -> StoredEntry:
    """Makes an artifact of a home one of the object store, with those that it was built from and its parts, if these lack there.

    Args:
        root: the store's folder of the home.
        artifact: the artifact, whose files are there.
        replaces: whether to take the place of another artifact of this version.

    Returns:
        The entry that the object store has in the end: another writer's if that was first.

    Raises:
        InputError: the object store cannot be used.
    """
    objects, address = require_objects(), (artifact.stage, artifact.version)
    found = read_entry(objects, address)
    if found is not None and not replaces:
        return found
    lacking = _lacking(objects, root, artifact)
    with hold_remote((address, *((each.stage, each.version) for each in lacking))):
        for each in lacking:  # inputs before the artifacts built from them
            _send(objects, each, replaced=None)
        return _send(objects, artifact, replaced=found)


def _lacking(objects: Objects, root: Path, artifact: Artifact) -> list[Artifact]:
    """Returns what an artifact refers to, directly or through others, that the home has and the object store lacks; inputs come first."""
    stored: dict[str, set[Address]] = {}
    found: list[Artifact] = []
    seen: set[Address] = set()

    def visit(address: Address) -> None:
        stage = address[0]
        if stage not in stored:
            stored[stage] = set(listed_entries(objects, stage))
        made = None if address in {*stored[stage], *seen} else find_artifact(root.joinpath(*address))
        if made is not None:
            seen.add(address)  # at once: manifests may be forged, so that an artifact refers to itself
            for each in references(made.manifest):
                visit(each)
            found.append(made)

    for each in references(artifact.manifest):
        visit(each)
    return found


def _send(objects: Objects, artifact: Artifact, replaced: StoredEntry | None) -> StoredEntry:
    """Uploads one artifact; returns the entry that stands in the end."""
    run = read_if_sound(artifact.path / RUN, run_schema)
    entry = StoredEntry(upload=uuid.uuid4().hex, manifest=artifact.manifest, run=run)
    for name in (*artifact.files, WORDS):
        objects.send(entry.key(name), artifact.path / name)
    key = entry_key(entry.address)
    if replaced is not None:
        objects.write(key, entry.to_bytes())
        remove_upload(objects, replaced)
        return entry
    if objects.create(key, entry.to_bytes()):
        return entry
    stands = read_entry(objects, entry.address)
    if stands is None or stands.upload == entry.upload:  # its own, whose answer was lost; or removed at once
        return entry
    remove_upload(objects, entry)
    return stands


def remove_upload(objects: Objects, entry: StoredEntry) -> None:
    """Removes the files of an upload."""
    found = objects.listed(f"{content_prefix(entry.address)}/{entry.upload}")
    objects.remove(each.key for each in found)
