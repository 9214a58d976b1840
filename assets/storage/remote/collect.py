"""Garbage collection of the object store, by the rules of assets/storage/collect.py: what no kept artifact and no living process refers to.

The artifacts of all homes count, and the leases of all machines. An artifact is taken away in this order, which leaves no reader with half
of one:

- readers go before their inputs;
- no process holds a lease, else it is spared;
- its entry is removed, so no job finds it any more;
- the leases and the entries are looked at once more: a job that took its lease before that finds the artifact gone or still there; if a
  lease or a reader has come, the entry is written again, as it was, and the artifact is spared;
- its files are removed. Killed before this, a collection leaves objects that no entry names.

Such objects, also of killed uploads, go as well, if they are older than a lease may be and no process holds one on their artifact. The
parts of an upload that S3 keeps until it is complete are not seen here: a lifecycle rule of the bucket (AbortIncompleteMultipartUpload)
ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from graphmill.assets.storage.collect import node_of
from graphmill.assets.storage.keep import Node, closure, readers_first, reasons_to_keep, splits_read
from graphmill.assets.storage.leases import Address
from graphmill.assets.storage.remote.checkpoints import stored_checkpoints
from graphmill.assets.storage.remote.entries import (
    CONTENT,
    CONTENT_PLACE,
    StoredEntry,
    content_prefix,
    entry_key,
    listed_entries,
    read_entries,
    read_entry,
)
from graphmill.assets.storage.remote.leases import EXPIRY_SECONDS, HeldArtifacts, held_remotely
from graphmill.assets.storage.remote.objects import Objects, Stored, require_objects
from graphmill.assets.storage.remote.upload import remove_upload
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError


@dataclass(frozen=True, kw_only=True)
class StoredItem:
    """An artifact of the object store, or objects that belong to none, and why it goes.

    Attributes:
        address: stage and version that it is or, for other objects, belongs to.
        num_bytes: bytes of its files.
        why: the reason, for people.
        about: the PIPELINE/STEP that it was built for, and its scores; "" if that is not known.
        keys: keys of the objects to remove; empty for an artifact.
    """

    address: Address
    num_bytes: int
    why: str
    about: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StoredGarbage:
    """The items that a collection of the object store would remove.

    Attributes:
        left: objects that belong to no artifact: of killed uploads, and checkpoints of models that were published.
        artifacts: artifacts to remove, readers before their inputs.
        num_kept: number of artifacts that stay.
        nodes: everything that the object store had when this was listed.
        damaged_leases: keys of leases that cannot be read: nothing goes as long as they count.
        damaged_entries: artifacts whose entries cannot be read; `graphmill repair` removes them.
    """

    left: tuple[StoredItem, ...]
    artifacts: tuple[StoredItem, ...]
    num_kept: int
    nodes: tuple[Node, ...] = field(repr=False)
    damaged_leases: tuple[str, ...] = ()
    damaged_entries: tuple[Address, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes that it would free."""
        return sum(item.num_bytes for item in (*self.left, *self.artifacts))


def find_stored_garbage(store: Store, keep: int) -> StoredGarbage:
    """Returns the items that `collect_stored` would remove; changes nothing but leases that have expired.

    Args:
        store: the store of this home, whose leases count as well.
        keep: number of the newest versions that stay, as in `find_garbage`.

    Raises:
        InputError: `keep` is negative, or the object store cannot be used.
    """
    if keep < 0:
        raise InputError(f"keep = {keep} is negative", "give the number of versions to keep, 0 or more")
    objects = require_objects()
    uploaded, now = objects.listed(CONTENT), objects.now()
    held = held_remotely(objects, now, store.leases.held())
    listed = listed_entries(objects)
    entries = {entry.address: entry for entry in read_entries(objects, listed)}
    nodes = [node_of(key, each.manifest, each.run, listed[key].written) for key, each in entries.items()]
    leased = {*listed, *held.addresses} if held.damaged else held.addresses
    reasons, splits = reasons_to_keep(nodes, keep, leased), splits_read(nodes)
    nodes = [
        replace(node, about=f"{node.about}, split {splits[node.address]}")
        if node.about and node.address in splits
        else node
        for node in nodes
    ]
    going = [node for node in readers_first(nodes) if node.address not in reasons]
    sizes = {key: sum(facts["bytes"] for facts in entry.manifest["files"].values()) for key, entry in entries.items()}
    old = [each for each in uploaded if now - each.written > timedelta(seconds=EXPIRY_SECONDS)]
    kept_uploads = {(key, entry.upload) for key, entry in entries.items()}
    unknown = leased | (listed.keys() - entries.keys())  # whose entry is damaged: `repair` removes it
    left = [] if held.damaged else [*_leftovers(old, kept_uploads, unknown), *_checkpoints(objects, listed, leased)]
    why = f"not among the newest {keep}"
    return StoredGarbage(
        left=tuple(left),
        artifacts=tuple(
            StoredItem(address=node.address, num_bytes=sizes[node.address], why=why, about=node.about) for node in going
        ),
        num_kept=len(nodes) - len(going),
        nodes=tuple(nodes),
        damaged_leases=held.damaged,
        damaged_entries=tuple(sorted(listed.keys() - entries.keys())),
    )


def collect_stored(
    store: Store, garbage: StoredGarbage, report: Callable[[StoredItem, str], None] = lambda item, word: None
) -> int:
    """Removes garbage of the object store, as far as it still is garbage.

    Args:
        store: the store of this home.
        garbage: what is removed, and nothing else.
        report: function that gets each item with "removed" or "spared".

    Returns:
        Freed bytes.
    """
    removal, freed_bytes = _Removal(store, garbage), 0
    for item in (*garbage.left, *garbage.artifacts):
        removed = removal.remove_left(item) if item.keys else removal.remove(item)
        freed_bytes += item.num_bytes if removed else 0
        report(item, "removed" if removed else "spared")
    return freed_bytes


def remove_stored(address: Address) -> None:
    """Removes an artifact from the object store, whatever reads it: one that is damaged, or its entry, serves no reader."""
    objects = require_objects()
    objects.remove([entry_key(address)])
    objects.remove(each.key for each in objects.listed(content_prefix(address)))


class _Removal:
    """Removes artifacts one by one and learns on the way which must be spared."""

    def __init__(self, store: Store, garbage: StoredGarbage):
        self.store, self.objects, self.spared = store, require_objects(), set()
        self.nodes = {node.address: node for node in garbage.nodes}

    def remove_left(self, item: StoredItem) -> bool:
        """Removes objects of no artifact; their upload may have been completed meanwhile only under a lease."""
        if self._held().covers([item.address]):
            return False
        entry = read_entry(self.objects, item.address)
        if entry is not None and any(f"/{entry.upload}/" in key for key in item.keys):
            return False
        self.objects.remove(item.keys)
        return True

    def remove(self, item: StoredItem) -> bool:
        """Removes an artifact; returns False if it came into use since it was listed."""
        node, key = self.nodes[item.address], entry_key(item.address)
        covered = {item.address, node.part_of}
        entry = None if self._held().covers(covered) or item.address in self.spared else self._entry(item.address)
        if entry is None:
            self._spare(item.address)
            return False
        self.objects.remove([key])
        self._learn()
        if self._held().covers(covered) or item.address in self.spared:
            self.objects.create(key, entry.to_bytes())
            self._spare(item.address)
            return False
        remove_upload(self.objects, entry)
        del self.nodes[item.address]
        return True

    def _entry(self, address: Address) -> StoredEntry | None:
        return read_entry(self.objects, address)

    def _held(self) -> HeldArtifacts:
        return held_remotely(self.objects, self.objects.now(), self.store.leases.held())

    def _learn(self) -> None:
        """Spares artifacts that were published since the listing, and all that they refer to."""
        listed = listed_entries(self.objects)
        for entry in read_entries(self.objects, listed.keys() - self.nodes.keys()):
            node = node_of(entry.address, entry.manifest, entry.run, listed[entry.address].written)
            self.nodes[node.address] = node
            self._spare(node.address)

    def _spare(self, address: Address) -> None:
        self.spared |= closure([address], {each.address: each.inputs for each in self.nodes.values()})


def _leftovers(
    old: Iterable[Stored], kept_uploads: set[tuple[Address, str]], unknown: Collection[Address]
) -> list[StoredItem]:
    """Returns the objects of uploads that no entry names, one item per upload."""
    found: dict[tuple[Address, str], list[Stored]] = {}
    for each in old:
        match = CONTENT_PLACE.fullmatch(each.key)
        if match is None:
            continue  # not ours
        address, upload = (match[1], match[2]), match[3]
        if (address, upload) not in kept_uploads and address not in unknown:
            found.setdefault((address, upload), []).append(each)
    return [
        StoredItem(
            address=address,
            num_bytes=sum(each.num_bytes for each in mine),
            why="left by an upload that was interrupted",
            keys=tuple(each.key for each in mine),
        )
        for (address, _), mine in found.items()
    ]


def _checkpoints(objects: Objects, listed: dict[Address, Stored], leased: Collection[Address]) -> list[StoredItem]:
    """Returns the checkpoints of models that were published after them."""
    return [
        StoredItem(
            address=address,
            num_bytes=each.num_bytes,
            why="checkpoint whose model is published",
            keys=(each.key,),
        )
        for address, each in stored_checkpoints(objects).items()
        if address in listed and address not in leased and each.written <= listed[address].written
    ]
