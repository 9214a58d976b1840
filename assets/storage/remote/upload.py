"""Uploads: files first, the entry last. Killed before, an upload leaves objects that no entry names, and no artifact."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphmill.assets.storage.files.documents import read_if_sound, run_schema
from graphmill.assets.storage.local.artifact import find_artifact
from graphmill.assets.storage.names.manifest import RUN, Address, Described, file_sizes, references
from graphmill.assets.storage.remote.entries import StoredEntry, entry_key, listed_entries, read_entry
from graphmill.assets.storage.remote.leases import hold_remote
from graphmill.assets.storage.remote.objects import Objects


def upload_artifact(
    objects: Objects, root: Path, manifest: Mapping[str, Any], *, replaces: bool = False
) -> StoredEntry:
    """Makes an artifact of a home one of the object store, with those that it was built from and its parts, if these lack there.

    Args:
        root: the store's folder of the home, with the files.
        replaces: whether to take the place of another artifact of this version.

    Returns:
        The entry that the object store has in the end: another writer's if that was first.
    """
    artifact = Described(manifest=manifest)
    found = read_entry(objects, artifact.address)
    if found is not None and not replaces:
        return found
    lacking = _lacking(objects, root, artifact)
    with hold_remote(objects, [each.address for each in (artifact, *lacking)]):
        for each in lacking:  # inputs before the artifacts built from them
            _send(objects, root, each, replaced=None)
        return _send(objects, root, artifact, replaced=found)


def _lacking(objects: Objects, root: Path, artifact: Described) -> list[Described]:
    """Returns what an artifact refers to, directly or through others, that the home has and the object store lacks; inputs come first."""
    stored: dict[str, set[Address]] = {}
    found: list[Described] = []
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


def _send(objects: Objects, root: Path, artifact: Described, replaced: StoredEntry | None) -> StoredEntry:
    """Uploads one artifact; returns the entry that stands in the end."""
    path = root.joinpath(*artifact.address)
    run = read_if_sound(path / RUN, run_schema)
    entry = StoredEntry(objects=objects, upload=uuid.uuid4().hex, manifest=artifact.manifest, run=run)
    for name in file_sizes(artifact.manifest):
        objects.send(entry.key(name), path / name)
    key = entry_key(entry.address)
    if replaced is not None:
        objects.write(key, entry.to_bytes())
        remove_upload(replaced)
        return entry
    if objects.create(key, entry.to_bytes()):
        return entry
    stands = read_entry(objects, entry.address)
    if stands is None or stands.upload == entry.upload:  # its own, whose answer was lost; or removed at once
        return entry
    remove_upload(entry)
    return stands


def remove_upload(entry: StoredEntry) -> None:
    """Removes the files of an upload."""
    entry.objects.remove(each.key for each in entry.objects.listed(entry.prefix))
